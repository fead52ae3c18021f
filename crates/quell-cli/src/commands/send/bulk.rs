//! `quell send QUEUE --bulk`: lines of JSON, sent in groups.
//!
//! Every event has an id before its group is first tried, its own or one made here, so a group whose answer got lost is
//! sent again and nothing is stored twice. A group is all or nothing in the store; if one line of it is refused, the
//! group is halved until that line stands alone, so the others are stored, in their order. A store that is away is
//! waited for; if it stays away, the summary says from which line to go on.

mod lines;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use quell::clock::{self, Chance, Ids, RealTime};
use quell::config::Flags;
use quell::quell_core::error::StoreError;
use quell::quell_core::event::{EventId, Key, LaneKey, Payload, QueueName, SourceName, Tenant};
use quell::quell_core::store::Receipt;
use quell::{Engine, EngineError, Incoming};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{SendArgs, Wishes};
use crate::args::Global;
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::progress;
use lines::Lines;

/// Events of one request: one commit, and one answer that a person would still wait for.
const GROUP_EVENTS: usize = 1_000;
/// Payload bytes of one request, far below what the engine takes at once.
const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// How long a store that is away is waited for.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
];

/// One line of the input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkLine {
    key: String,
    payload: Box<RawValue>,
    id: Option<String>,
    tenant: Option<String>,
    delay_ms: Option<u64>,
    priority: Option<u8>,
    source: Option<String>,
}

/// One line of the answer with `--json`.
#[derive(Serialize)]
#[serde(untagged)]
enum LineAnswer<'a> {
    Stored {
        line: u64,
        #[serde(flatten)]
        receipt: &'a Receipt,
    },
    Refused {
        line: u64,
        error: &'a str,
    },
}

#[derive(Clone)]
struct Pending {
    line: u64,
    event: Incoming,
    /// The id is ours and new, so "already there" can only mean an earlier try of this very event.
    made: bool,
}

pub(super) async fn run(args: &SendArgs, file: &Path, global: &Global) -> Result<u8, Failure> {
    let queue = QueueName::new(&args.queue)?;
    let tenant = context::tenant_of(args.tenant.as_deref())?;
    let mut lines = Lines::open(file)?;
    let loaded = context::load(global, Flags::default())?;
    // A queue that does not exist refuses every line, and makes no store.
    context::configured_queue(&loaded.settings, &queue)?;
    let engine = context::open_now(&loaded).await?;
    let (time, chance) = (Arc::new(RealTime::new()), Arc::new(Chance::from_system()));
    let mut bulk = Bulk {
        engine,
        json: args.form.json,
        stop_on_error: args.stop_on_error,
        bar: progress::bytes(lines.size()),
        group: Vec::new(),
        bytes: 0,
        tally: Tally::default(),
    };
    let ids = Ids::new(time, chance);
    let read = Reading { queue, tenant, wishes: args.wishes.clone(), ids };
    let ended = bulk.send_all(&mut lines, &read).await;
    bulk.bar.finish_and_clear();
    let summary = bulk.tally.to_string();
    if args.form.json {
        output::say(summary)
    } else {
        // Nobody reading the summary does not change what became of the lines.
        let _ = output::line(summary);
    }
    ended?;
    Ok(if bulk.tally.refused > 0 { failure::FAILED } else { 0 })
}

/// From a line to an event.
struct Reading {
    queue: QueueName,
    tenant: Option<Tenant>,
    wishes: Wishes,
    ids: Ids,
}

impl Reading {
    fn event(&self, line: u64, bytes: &[u8]) -> Result<Pending, String> {
        let read: BulkLine = serde_json::from_slice(bytes).map_err(|e| shorter(&e))?;
        let check = |e: quell::quell_core::event::Invalid| e.to_string();
        let tenant = match read.tenant {
            Some(tenant) => Tenant::new(tenant).map_err(check)?,
            None => self.tenant.clone().unwrap_or_else(Tenant::none),
        };
        let lane = LaneKey { tenant, queue: self.queue.clone(), key: Key::new(read.key).map_err(check)? };
        let payload = Payload::from_json(read.payload.get().as_bytes()).map_err(check)?;
        let made = read.id.is_none();
        let id = match read.id {
            Some(id) => EventId::new(id).map_err(check)?,
            None => self.ids.event_id(),
        };
        let mut event = Incoming { id: Some(id), ..self.wishes.event(lane, payload) };
        event.delay = read.delay_ms.map(Duration::from_millis).or(event.delay);
        event.priority = read.priority.unwrap_or(event.priority);
        event.source = read.source.map(SourceName::new).transpose().map_err(check)?.or(event.source);
        Ok(Pending { line, event, made })
    }
}

/// serde's text says "at line 1" of what is one line of many; only the column helps.
fn shorter(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!(
        "{what} (column {}); a line is {{\"key\":…,\"payload\":…,\"id\"?,\"tenant\"?,\"delay_ms\"?,\"priority\"?}}",
        error.column()
    )
}

#[derive(Default)]
struct Tally {
    stored: u64,
    duplicates: u64,
    refused: u64,
    /// Every line up to this one has been answered.
    done_to: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { stored, duplicates, refused, .. } = self;
        write!(f, "{} stored, {duplicates} already there, {refused} refused", stored)
    }
}

struct Bulk {
    engine: Engine,
    json: bool,
    stop_on_error: bool,
    bar: ProgressBar,
    group: Vec<Pending>,
    bytes: usize,
    tally: Tally,
}

impl Bulk {
    async fn send_all(&mut self, lines: &mut Lines, reading: &Reading) -> Result<(), Failure> {
        while let Some((line, read)) = lines.next()? {
            let event = read.and_then(|bytes| reading.event(line, &bytes));
            match event {
                Ok(pending) => {
                    let size = pending.event.payload.len();
                    if self.group.len() == GROUP_EVENTS || self.bytes + size > GROUP_BYTES {
                        self.send_group().await?;
                    }
                    self.bytes += size;
                    self.group.push(pending);
                }
                Err(problem) => {
                    // What stands before a bad line is sent first, so that answers keep the order of the lines.
                    self.send_group().await?;
                    self.refuse(line, &problem)?;
                }
            }
            self.bar.set_position(lines.bytes_read());
        }
        self.send_group().await
    }

    /// Sends what was collected; a refused part is halved until the culprit stands alone.
    async fn send_group(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        let mut parts = vec![std::mem::take(&mut self.group)];
        while let Some(mut part) = parts.pop() {
            let (Some(first), Some(last)) = (part.first().map(|p| p.line), part.last().map(|p| p.line))
            else {
                continue;
            };
            match self.append(&part).await {
                Ok(receipts) => self.stored(&part, receipts, last)?,
                Err(EngineError::Store(error)) if error.is_temporary() => return Err(self.away(&error)),
                Err(EngineError::UnknownQueue { queue, known }) => {
                    return Err(EngineError::UnknownQueue { queue, known }.into());
                }
                Err(error) if part.len() == 1 => self.refuse(first, &error.to_string())?,
                Err(_) => {
                    let right = part.split_off(part.len() / 2);
                    parts.push(right);
                    parts.push(part);
                }
            }
        }
        Ok(())
    }

    async fn append(&self, part: &[Pending]) -> Result<Vec<Receipt>, EngineError> {
        let events = || part.iter().map(|pending| pending.event.clone()).collect();
        let mut answer = self.engine.append(events()).await;
        for pause in PAUSES {
            match &answer {
                Err(EngineError::Store(error)) if error.is_temporary() => {
                    self.say(&format!("the store is not ready, trying again: {error}"));
                    clock::sleep(pause).await;
                    answer = self.engine.append(events()).await;
                }
                _ => break,
            }
        }
        answer
    }

    /// One line of `--json`. A reader that has seen enough ends the answers, never the sending.
    fn answer(&mut self, answer: &LineAnswer<'_>) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        match output::json(answer) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.json = false,
            told => told?,
        }
        Ok(())
    }

    fn stored(&mut self, part: &[Pending], receipts: Vec<Receipt>, last: u64) -> Result<(), Failure> {
        for (pending, mut receipt) in part.iter().zip(receipts) {
            receipt.duplicate &= !pending.made;
            if receipt.duplicate {
                self.tally.duplicates += 1
            } else {
                self.tally.stored += 1
            }
            self.answer(&LineAnswer::Stored { line: pending.line, receipt: &receipt })?;
        }
        self.tally.done_to = last;
        Ok(())
    }

    fn refuse(&mut self, line: u64, problem: &str) -> Result<(), Failure> {
        self.tally.refused += 1;
        self.tally.done_to = line;
        self.say(&format!("line {line}: {problem}"));
        self.answer(&LineAnswer::Refused { line, error: problem })?;
        if self.stop_on_error {
            return Err(Failure::new(
                failure::FAILED,
                format!("stopped at line {line}; nothing after it was sent"),
            ));
        }
        Ok(())
    }

    fn away(&self, error: &StoreError) -> Failure {
        let next = self.tally.done_to + 1;
        Failure::new(failure::STORE, error.to_string()).help(format!(
            "everything before line {next} has its answer; send again from line {next} (lines with ids may be repeated)"
        ))
    }

    /// Without tearing the progress bar.
    fn say(&self, text: &str) {
        self.bar.suspend(|| output::say(text));
    }
}
