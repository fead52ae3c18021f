//! `quell send`: one event from the command line, or many with `--bulk` (`send/bulk.rs`).
//!
//! The answer comes after the store has made the event durable, and never before; with `--wait` it comes when the run of
//! the event has ended (`send/wait.rs`). What can be refused without a store is refused before one is opened or made.

mod bulk;
mod wait;
mod window;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quell::config::{DurationText, Flags, Settings};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::quell_core::event::{EventId, Headers, LaneKey, NewEvent, NewEventId, Payload, SourceName};
use quell::quell_core::limits;
use quell::quell_core::store::{AppendRequest, Receipt};
use quell::quell_core::window::WindowPolicy;
use quell::{EngineError, Incoming};

use crate::args::{Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::payload;
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell send chat customer-7 '{\"text\":\"hi\"}'
  quell send chat customer-7 --text 'hi there' --id msg-1
  curl -s https://example.org/order.json | quell send orders 4711 -
  quell send orders 4711 --wait=30s --json | jq .ended.result    what the handler answered
  quell send mail ada --delay 1h --priority 9
  quell send reindex all --only-if-idle                          not while one is going on
  quell send chat ada '{\"text\":\"now!\"}' --window none            hands the key over at once
  quell send chat --bulk events.ndjson

A line of a bulk is {\"key\":…,\"payload\":…}, with id, tenant, delay_ms, priority and source if you like.
With --wait the exit code tells the end: 0 succeeded, 6 failed, 7 cancelled, 8 not in time.")]
pub(crate) struct SendArgs {
    /// The kind of work
    queue: String,
    /// Who the event belongs to
    #[arg(required_unless_present = "bulk", conflicts_with = "bulk")]
    key: Option<String>,
    /// The payload as JSON; `-` reads it from stdin; `{}` when left out
    #[arg(value_name = "JSON", conflicts_with = "bulk", allow_negative_numbers = true)]
    payload: Option<String>,
    /// The payload is plain text: it is stored as a JSON string
    #[arg(long, conflicts_with = "bulk")]
    text: bool,
    /// Your id of the event: sent twice, it is stored once
    #[arg(long, conflicts_with = "bulk")]
    id: Option<String>,
    /// The owner of the key
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    wishes: Wishes,
    /// Wait until the run of the event has ended, and tell how; with a time, at most so long: --wait=30s
    #[arg(long, value_name = "TIMEOUT", num_args = 0..=1, require_equals = true, conflicts_with = "bulk",
        value_parser = DurationText::parse)]
    #[expect(clippy::option_option, reason = "not asked for, asked for, asked for with a time")]
    wait: Option<Option<Duration>>,
    /// Many events, one JSON object per line, from a file or `-` for stdin
    #[arg(long, value_name = "FILE")]
    bulk: Option<PathBuf>,
    /// With --bulk: stop at the first line that is refused
    #[arg(long, requires = "bulk")]
    stop_on_error: bool,
    #[command(flatten)]
    form: Form,
}

/// What the W3C's *Trace Context* asks everybody to pass on of a `tracestate`; longer ones are left out.
const TRACE_MAX: usize = 512;

/// What an event may wish for itself; with `--bulk`, what lines without wishes of their own get.
#[derive(Debug, Clone, Args)]
struct Wishes {
    /// Enter the lane only after this long, such as 90s or 2h, at most 366 days; meanwhile it has no number and no run, and blocks
    /// nobody
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse)]
    delay: Option<Duration>,
    /// 0 to 9, 9 first: overtakes other keys by a bounded time, never events of its own
    #[arg(long, value_name = "N", default_value_t = limits::PRIORITY_DEFAULT,
        value_parser = clap::value_parser!(u8).range(0..=i64::from(limits::PRIORITY_MAX)))]
    priority: u8,
    /// A window of its own: none, fixed=65s, quiet=2s, or quiet=2s,max_wait=20s; an open window is only shortened
    #[arg(long, value_name = "WINDOW", value_parser = window::parse)]
    window: Option<WindowPolicy>,
    /// Refuse the event when the key has anything to do
    #[arg(long)]
    only_if_idle: bool,
    /// Governed by this source, in place of the queue's
    #[arg(long, value_name = "SOURCE", value_parser = source_name)]
    source: Option<SourceName>,
}

/// The trace that this command is part of, as whoever started it says: its events belong to it.
fn trace() -> Headers {
    let value =
        |name: &str| std::env::var(name.to_ascii_uppercase()).ok().filter(|value| value.len() <= TRACE_MAX);
    let kept =
        ["traceparent", "tracestate"].into_iter().filter_map(|name| Some((name.to_owned(), value(name)?)));
    kept.filter(|(_, value)| value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())).collect()
}

fn source_name(text: &str) -> Result<SourceName, String> {
    SourceName::new(text).map_err(|problem| problem.to_string())
}

impl Wishes {
    fn event(&self, lane: LaneKey, payload: Payload) -> Incoming {
        Incoming {
            priority: self.priority,
            delay: self.delay,
            window: self.window,
            only_if_idle: self.only_if_idle,
            source: self.source.clone(),
            headers: trace(),
            ..Incoming::to(lane, payload)
        }
    }
}

pub(crate) async fn run(args: SendArgs, global: &Global) -> Result<u8, Failure> {
    if let Some(file) = &args.bulk {
        return bulk::run(&args, file, global).await;
    }
    let key = args.key.as_deref().unwrap_or_default();
    let lane = context::lane_key(&args.queue, key, args.tenant.as_deref())?;
    let id = args.id.as_deref().map(EventId::new).transpose()?;
    let event = Incoming { id, ..args.wishes.event(lane.clone(), payload(&args)?) };
    let loaded = context::load(global, Flags::default())?;
    check(&loaded.settings, &event)?;
    let engine = context::open_now(&loaded).await?;
    let receipts = engine.append(vec![event]).await.map_err(|error| refusal(error, &lane))?;
    let receipt = receipts.into_iter().next().expect("one receipt per event");
    if let Some(timeout) = args.wait {
        return wait::run(&engine, lane, &receipt, timeout, args.form.json).await;
    }
    if args.form.json {
        output::json(&receipt)?;
    } else {
        output::line(told(&receipt, context::now(&engine).await?))?;
    }
    Ok(0)
}

/// The same checks as at the store's door, so that an event which could never be stored makes no store.
fn check(settings: &Settings, event: &Incoming) -> Result<(), Failure> {
    context::configured_queue(settings, &event.lane.queue)?;
    let Some(queue) = settings.queue(&event.lane.queue) else { return Ok(()) };
    let id = NewEventId::Made(EventId::new("not-sent-yet")?);
    let new = NewEvent::new(event.lane.clone(), id, event.payload.clone(), queue.append.clone());
    let new = NewEvent { delay: event.delay, window: event.window, priority: event.priority, ..new };
    Ok(AppendRequest { events: vec![new], repeat: false }.check()?)
}

fn refusal(error: EngineError, lane: &LaneKey) -> Failure {
    match &error {
        EngineError::Store(StoreError { kind: ErrorKind::NotIdle, .. }) => {
            let (queue, key) = (&lane.queue, output::quoted(lane.key.as_str()));
            Failure::from(error).help(format!("`quell lane {queue} {key}` says what it is doing"))
        }
        _ => error.into(),
    }
}

fn told(receipt: &Receipt, now: Timestamp) -> String {
    let Receipt { event_id, seq, run_id, duplicate, due_at, .. } = receipt;
    let mut text = format!("{} {event_id}", if *duplicate { "already there:" } else { "stored" });
    let due = |due: &Timestamp| if *due > now { times::relative(*due, now) } else { "now".to_owned() };
    let Some(seq) = seq else {
        // Kept aside: no number and no run before it enters its lane.
        text += ", delayed";
        if let Some(ready) = due_at {
            text += &format!(": it enters its lane {}", due(ready));
        }
        return text;
    };
    text += &format!(" as {seq}");
    if let Some(run) = run_id {
        text += &format!(" in {run}");
    }
    if let Some(due_at) = due_at {
        text += &format!(", due {}", due(due_at));
    }
    text
}

fn payload(args: &SendArgs) -> Result<Payload, Failure> {
    match args.payload.as_deref() {
        Some(given) if args.text => payload::text(given),
        Some(given) => payload::json(given),
        None if args.text => Err(Failure::new(failure::USAGE, "--text needs a text, or `-` for stdin")),
        None => Ok(payload::empty()),
    }
}
