//! `quell redrive`: put the events of failed or cancelled runs back to work.
//!
//! One run, several, or with `--queue` everything that is dead there, the oldest first, so that the events of a key keep
//! their order. The list is made before the first one is touched: what dies again meanwhile is not taken twice. A run
//! that is not dead any more is left alone, so repeating the command is harmless.

mod dead_letter;

use clap::Args;
use indicatif::ProgressBar;
use quell::quell_core::batch::RunId;
use quell::quell_core::event::{EventId, LaneKey};
use quell::quell_core::inspect::RunDetail;
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::RedriveTo;
use quell::{Engine, EngineError, RedriveWish};
use serde::Serialize;

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::progress;
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell redrive run_9_b                      all events of this run, before anything that waits
  quell redrive run_9_b --event line-2       only this one of them
  quell redrive --queue orders --dry-run     what is dead there
  quell redrive --queue orders --all         all of it, the oldest first
  quell redrive --queue orders --limit 10    try ten of them first

The attempts start at 0. A run that is not dead any more is left alone, so repeating the
command is harmless.")]
pub(crate) struct RedriveArgs {
    /// Failed or cancelled runs
    #[arg(value_name = "RUN", required_unless_present = "queue", conflicts_with = "queue")]
    runs: Vec<String>,
    /// Only this event of the run; may be given several times
    #[arg(long = "event", value_name = "ID", conflicts_with = "queue")]
    events: Vec<String>,
    /// At the end of the key's lane with new numbers, instead of a run of their own before anything that waits
    #[arg(long)]
    as_new: bool,
    /// Forget what the steps of the old run remembered, and do everything again
    #[arg(long)]
    fresh: bool,
    /// Everything that is dead in this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// With --queue: only this key
    #[arg(long, value_name = "KEY", requires = "queue")]
    key: Option<String>,
    /// With --queue: only keys of this tenant
    #[arg(long, value_name = "TENANT", requires = "queue")]
    tenant: Option<String>,
    /// With --queue: all of it
    #[arg(long, requires = "queue")]
    all: bool,
    /// With --queue: so many runs at the most, the oldest
    #[arg(long, value_name = "N", requires = "queue", conflicts_with = "all",
        value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// With --queue: only say what would be redriven
    #[arg(long, requires = "queue")]
    dry_run: bool,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

/// What came of one run.
#[derive(Debug, Serialize)]
struct Redriven {
    run: RunId,
    #[serde(flatten)]
    lane: LaneKey,
    changed: bool,
    /// Events that went back, or would.
    events: u64,
    into: Option<RunId>,
    /// Why nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) async fn run(args: RedriveArgs, global: &Global) -> Result<u8, Failure> {
    let runs = args.runs.iter().map(|run| run.parse()).collect::<Result<Vec<RunId>, _>>()?;
    let events = args.events.iter().map(EventId::new).collect::<Result<Vec<_>, _>>()?;
    if !events.is_empty() && runs.len() != 1 {
        return Err(Failure::new(failure::USAGE, "--event names events of one run"));
    }
    let chosen = match &args.queue {
        Some(queue) => Some(dead_letter::Choice::of(&args, queue)?),
        None => None,
    };
    let engine = context::open_existing(global).await?;
    let to = if args.as_new { RedriveTo::New } else { RedriveTo::Head };
    let bulk = chosen.is_some();
    let mut work = Redriving {
        engine: &engine,
        wish: RedriveWish { events, edits: Vec::new(), to, fresh: args.fresh },
        actor: context::actor(&args.by),
        json: args.form.json,
        bar: ProgressBar::hidden(),
        done: Vec::new(),
    };
    let ended = match chosen {
        Some(choice) => work.dead_letter(&choice, args.dry_run).await,
        None => work.these(&runs).await,
    };
    work.bar.finish_and_clear();
    if ended.is_ok() || !work.done.is_empty() {
        work.summary(bulk, args.dry_run)?;
    }
    ended
}

struct Redriving<'a> {
    engine: &'a Engine,
    wish: RedriveWish,
    actor: String,
    json: bool,
    bar: ProgressBar,
    done: Vec<Redriven>,
}

impl Redriving<'_> {
    /// Runs by name: each is looked up, so that "nothing to do" comes with its reason.
    async fn these(&mut self, runs: &[RunId]) -> Result<u8, Failure> {
        for run in runs {
            let detail = context::found_run(self.engine, *run).await?;
            self.one(*run, detail.row.lane.clone(), Some(&detail)).await?;
        }
        Ok(self.code())
    }

    async fn dead_letter(&mut self, choice: &dead_letter::Choice, dry_run: bool) -> Result<u8, Failure> {
        let dead = choice.find(self.engine).await?;
        if dry_run {
            for (run, lane, events) in dead {
                self.tell(Redriven {
                    run,
                    lane,
                    changed: false,
                    events,
                    into: None,
                    note: None,
                    error: None,
                })?;
            }
            return Ok(0);
        }
        self.bar = progress::counted(u64::try_from(dead.len()).unwrap_or(u64::MAX));
        for (run, lane, _) in dead {
            self.one(run, lane, None).await?;
            self.bar.inc(1);
        }
        Ok(self.code())
    }

    async fn one(&mut self, run: RunId, lane: LaneKey, before: Option<&RunDetail>) -> Result<(), Failure> {
        let mut told = Redriven { run, lane, changed: false, events: 0, into: None, note: None, error: None };
        match self.engine.redrive(run, self.wish.clone(), &self.actor).await {
            Ok(done) if done.changed => {
                (told.changed, told.events, told.into) = (true, done.events, done.run);
            }
            Ok(_) => {
                told.note = Some(match before {
                    Some(before) => self.why_not(before).await?,
                    None => "it is not dead any more".to_owned(),
                })
            }
            // One key that is full says nothing about the next one; a store that is away says it about all.
            Err(EngineError::Store(error)) if !error.is_temporary() => told.error = Some(error.to_string()),
            Err(error) => return Err(Failure::from(error).help("repeating the command goes on from here")),
        }
        self.tell(told)
    }

    /// Why a run that is there was not redriven.
    async fn why_not(&self, before: &RunDetail) -> Result<String, Failure> {
        let row = &before.row;
        for id in &self.wish.events {
            if self.engine.event(row.lane.clone(), id.clone()).await?.is_none() {
                let text = format!("{} never had an event {id}, or it is gone", row.lane);
                return Err(Failure::new(failure::NOT_FOUND, text));
            }
        }
        Ok(match (row.state, row.links.redriven_into) {
            (_, Some(into)) => format!("its events went into {into}"),
            (RunState::Succeeded, None) => "it succeeded".to_owned(),
            (state, None) if !state.is_final() => format!("it has not ended, it is {state}"),
            (_, None) if row.events == 0 => "it has no events any more".to_owned(),
            (_, None) => "those events are not in it".to_owned(),
        })
    }

    fn tell(&mut self, told: Redriven) -> Result<(), Failure> {
        if !self.json {
            let line = told.line(self.wish.to);
            self.bar.suspend(|| match told.error {
                Some(_) => {
                    output::say(line);
                    Ok(())
                }
                None => output::line(line),
            })?;
        }
        self.done.push(told);
        Ok(())
    }

    /// Refused ones make the whole less than done.
    fn code(&self) -> u8 {
        if self.done.iter().any(|told| told.error.is_some()) { failure::FAILED } else { 0 }
    }

    fn summary(&self, bulk: bool, dry_run: bool) -> std::io::Result<()> {
        let moved = || self.done.iter().filter(|told| told.changed || dry_run);
        let (runs, events) = (moved().count() as u64, moved().map(|told| told.events).sum());
        if self.json {
            let refused = self.done.iter().filter(|told| told.error.is_some()).count();
            return output::json(&serde_json::json!({
                "items": self.done,
                "runs": runs,
                "events": events,
                "refused": refused,
                "dry_run": dry_run,
                "next": null,
            }));
        }
        if !bulk {
            return Ok(());
        }
        let what = format!("{} with {}", times::count(runs, "run"), times::count(events, "event"));
        output::line(match (dry_run, self.done.is_empty()) {
            (_, true) => "nothing to do: nothing is dead there".to_owned(),
            (true, false) => format!("would redrive {what}; nothing was changed"),
            (false, false) => format!("redriven {what}"),
        })
    }
}

impl Redriven {
    fn line(&self, to: RedriveTo) -> String {
        let Redriven { run, lane, events, .. } = self;
        let events = times::count(*events, "event");
        match (&self.error, &self.note, self.into) {
            (Some(error), ..) => format!("{run} of {lane}: {error}"),
            (None, Some(note), _) => format!("{run} of {lane}: nothing to do, {note}"),
            (None, None, Some(into)) => match to {
                RedriveTo::Head => {
                    format!("redriven {run} of {lane}: {events} in {into}, before anything that waits")
                }
                RedriveTo::New => format!("redriven {run} of {lane}: {events} as new in {into}"),
            },
            (None, None, None) => format!("{run} of {lane}: {events}"),
        }
    }
}
