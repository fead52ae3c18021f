//! `quell simulate`: what would happen, when and why, by the settings of quell.toml and a script of arrivals and failures.
//!
//! The shipped engine and worker run under a virtual clock (`quell::testing`) over a store in memory; handlers do what the script
//! says. Nothing is sent, started or stored, and no store is opened. With `--capacity` there is no script, and what is simulated is
//! how many machines a load needs (`capacity.rs`).

mod capacity;
mod handler;
mod report;
mod script;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use quell::config::{Flags, Settings};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{QueueName, Tenant};
use quell::quell_core::inspect::{LaneFilter, RunFilter};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::{QueueScope, SourceScope};
use quell::testing::{Rehearsal, Staging};
use quell::{Incoming, RedriveWish, WorkerOptions};

use crate::args::{Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::times;
use capacity::CapacityArgs;
use handler::Habits;
use report::{Line, Summary, show, show_ms};
use script::{Action, Place, Script, ScriptError, SourceHand, Step};

/// Without `until`, what is not done after this long behind the last line of the script is told as waiting.
const PATIENCE: Duration = Duration::from_secs(86_400);
/// Lanes that are told as waiting.
const WAITING_SHOWN: usize = 20;
/// Runs that one line of a script puts back to work.
const REDRIVEN_MAX: usize = 1_000;
/// A script is typed by people.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;
/// Who steers, in the audit.
const ACTOR: &str = "script";

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The script, or - for standard input
    #[arg(value_name = "SCRIPT", required_unless_present = "capacity")]
    script: Option<PathBuf>,
    /// Another draw of everything that is left to chance: the jitter of backoffs, `fails 20%`, `takes 1s..3s`, arrivals
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    capacity: CapacityArgs,
}

pub(crate) async fn run(args: SimulateArgs, global: &Global) -> Result<u8, Failure> {
    let Some(file) = &args.script else { return capacity::run(&args.capacity, args.seed, args.form.json) };
    let name = file.display().to_string();
    let text = read(file)?;
    let script = Script::parse(&text).map_err(|error| of(&name, error))?;
    let mut settings = context::load(global, Flags::default())?.settings;
    name_queues(&mut settings, &script).map_err(|error| of(&name, error))?;
    let seed = args.seed;
    // On a thread of its own: a simulation has a runtime of its own, with another clock.
    let simulated = tokio::task::spawn_blocking(move || simulate(script, settings, seed)).await;
    let told = match simulated {
        Ok(told) => told.map_err(|error| of(&name, error))?,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    if args.form.json {
        told.write_json(seed)?
    } else {
        told.write()?
    }
    Ok(0)
}

fn read(script: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let mut text = String::new();
    let read = match script.to_str() {
        Some("-") => std::io::stdin().lock().take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut text),
        _ => std::fs::File::open(script)
            .and_then(|file| file.take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut text)),
    };
    let name = script.display();
    read.map_err(|error| {
        Failure::new(failure::USAGE, format!("the script {name} cannot be read: {error}"))
            .help("`quell help simulate` shows one")
    })?;
    if text.len() as u64 > SCRIPT_BYTES_MAX {
        let problem = format!("the script {name} has more than {}", times::bytes(SCRIPT_BYTES_MAX));
        return Err(
            Failure::new(failure::USAGE, problem).help("x1000 every 10ms says as much as a thousand lines")
        );
    }
    Ok(text)
}

fn of(script: &str, error: ScriptError) -> Failure {
    let help = error.help.clone();
    Failure::new(failure::USAGE, format!("{script}, {error}")).help(help)
}

/// Refuses queues and sources that the configuration does not know. Without a configuration every queue is there with the defaults.
fn name_queues(settings: &mut Settings, script: &Script) -> Result<(), ScriptError> {
    for step in &script.steps {
        let problem = |problem: String, help: String| {
            let text =
                format!("(the {} of this line)", if help.contains("[sources") { "source" } else { "queue" });
            ScriptError { line: step.line, text, problem, help }
        };
        if let Action::Source { name, .. } = &step.action
            && !settings.sources.iter().any(|source| source.name == *name)
        {
            let text = format!("the configuration has no source {name}");
            return Err(problem(text, format!("declare it as [sources.{name}] in quell.toml")));
        }
        let Some(queue) = step.action.queue() else { continue };
        match settings.queue(queue) {
            Some(known) => drop(settings.queues.insert(queue.clone(), known)),
            None => {
                let known: Vec<&str> = settings.queues.keys().map(QueueName::as_str).collect();
                let text = format!("the configuration has no queue {queue}");
                return Err(problem(text, format!("it knows {}", known.join(", "))));
            }
        }
    }
    settings.default_queue = None;
    Ok(())
}

impl Action {
    fn queue(&self) -> Option<&QueueName> {
        match self {
            Action::Send { lane, .. } | Action::Flush(lane) | Action::Cancel(lane) | Action::Erase(lane) => {
                Some(&lane.queue)
            }
            Action::Handler { of: place, .. }
            | Action::Pause(place)
            | Action::Resume(place)
            | Action::Redrive(place) => Some(place.queue()),
            Action::CrashWorker(_) | Action::StartWorker | Action::StopWorker(_) | Action::Source { .. } => {
                None
            }
        }
    }
}

/// What came of it.
struct Told {
    lines: Vec<Line>,
    queues: std::collections::BTreeMap<String, Summary>,
    /// Lanes that are not done, with the reason.
    waiting: Vec<(String, String)>,
    begins: Timestamp,
    lasted: Duration,
    nothing_is_lost: bool,
}

fn simulate(script: Script, settings: Settings, seed: u64) -> Result<Told, ScriptError> {
    let staging = Staging {
        seed,
        begins: script.begins.unwrap_or(Staging::default().begins),
        workers: script.workers.unwrap_or(1),
    };
    let habits = Habits::new(seed);
    let handlers = handler::all(&settings, &habits);
    let options = WorkerOptions { handlers, ..WorkerOptions::default() };
    // Handlers of the beginning are told before any worker is there.
    let mut rehearsal =
        Rehearsal::of_settings(&staging, settings.clone(), options).map_err(|error| ScriptError {
            line: 0,
            text: String::new(),
            problem: error.to_string(),
            help: "`quell check` says more".to_owned(),
        })?;
    let last = script.steps.last().map_or(Duration::ZERO, |step| step.at);
    for step in script.steps {
        if script.until.is_some_and(|until| step.at > until) {
            break;
        }
        rehearsal.advance(step.at.saturating_sub(rehearsal.now()));
        perform(&mut rehearsal, &habits, step)?;
    }
    match script.until {
        Some(until) => rehearsal.advance(until.saturating_sub(rehearsal.now())),
        None => {
            rehearsal.advance(last.saturating_sub(rehearsal.now()));
            rehearsal.until_idle(PATIENCE);
        }
    }
    let happened = rehearsal.happened();
    let lasted = script.until.or_else(|| happened.last().map(|one| one.at)).unwrap_or_default();
    Ok(Told {
        lines: report::lines(&happened, &settings),
        queues: report::summaries(&happened, &rehearsal.batches()),
        waiting: waiting(&mut rehearsal),
        begins: staging.begins,
        lasted,
        nothing_is_lost: rehearsal.nothing_is_lost(),
    })
}

fn perform(rehearsal: &mut Rehearsal, habits: &Arc<Habits>, step: Step) -> Result<(), ScriptError> {
    let engine = rehearsal.engine().clone();
    let line = step.line;
    let wrong = |problem: String, help: &str| ScriptError {
        line,
        text: format!("(at {})", show(step.at)),
        problem,
        help: help.to_owned(),
    };
    match step.action {
        Action::Send { lane, payload, id, delay, priority } => {
            let mut incoming = Incoming::to(lane, payload);
            (incoming.id, incoming.delay) = (id, delay);
            incoming.priority = priority.unwrap_or(incoming.priority);
            // A refusal (a full lane, a used id) is a line of the table.
            let _ = rehearsal.append(vec![incoming]);
        }
        Action::Handler { of, habit } => habits.tell(of, habit),
        Action::CrashWorker(number) | Action::StopWorker(number) => {
            let number = number.or_else(|| rehearsal.workers().first().copied());
            let is_there = number.filter(|number| rehearsal.workers().contains(number));
            let Some(number) = is_there else {
                let problem = match number {
                    Some(number) => format!("there is no worker {number} at this moment"),
                    None => "there is no worker at this moment".to_owned(),
                };
                return Err(wrong(
                    problem,
                    "workers are counted from 1 in the order of their start; `start worker` brings one",
                ));
            };
            if matches!(step.action, Action::CrashWorker(_)) {
                rehearsal.crash_worker(number);
            } else {
                rehearsal.stop_worker(number);
            }
        }
        Action::StartWorker => {
            rehearsal.start_worker().map_err(|error| wrong(error.to_string(), "`quell check` says more"))?;
        }
        Action::Pause(place) => steer(rehearsal, &engine, place, true),
        Action::Resume(place) => steer(rehearsal, &engine, place, false),
        Action::Flush(lane) => drop(rehearsal.perform(engine.flush(lane, ACTOR))),
        Action::Cancel(lane) => drop(rehearsal.perform(engine.cancel(lane, None, ACTOR))),
        Action::Erase(lane) => drop(rehearsal.perform(engine.erase_lane(lane, ACTOR))),
        Action::Redrive(place) => {
            let filter = match place {
                Place::Queue(queue) => RunFilter { queue: Some(queue), ..RunFilter::default() },
                Place::Lane(lane) => RunFilter {
                    tenant: Some(lane.tenant),
                    queue: Some(lane.queue),
                    key: Some(lane.key),
                    ..RunFilter::default()
                },
            };
            let filter = RunFilter { state: Some(RunState::Failed), limit: REDRIVEN_MAX, ..filter };
            // Oldest first, as they came.
            for run in rehearsal.runs(filter).into_iter().rev() {
                drop(rehearsal.perform(engine.redrive(run.id, RedriveWish::default(), ACTOR)));
            }
        }
        Action::Source { name, hand } => {
            let scope = SourceScope { tenant: Tenant::none(), name };
            let done = match hand {
                SourceHand::Disable => rehearsal.perform(engine.disable_source(scope, ACTOR)),
                SourceHand::Enable => rehearsal.perform(engine.enable_source(scope, ACTOR)),
                SourceHand::Reset => rehearsal.perform(engine.reset_source(scope, ACTOR)),
            };
            done.map_err(|error| wrong(error.to_string(), "a source is there from its first event on"))?;
        }
    }
    Ok(())
}

fn steer(rehearsal: &mut Rehearsal, engine: &quell::Engine, place: Place, pause: bool) {
    match place {
        Place::Lane(lane) if pause => drop(rehearsal.perform(engine.pause(lane, ACTOR))),
        Place::Lane(lane) => drop(rehearsal.perform(engine.resume(lane, ACTOR))),
        Place::Queue(queue) => {
            let scope = QueueScope { queue, tenant: None };
            if pause {
                drop(rehearsal.perform(engine.pause_queue(scope, ACTOR)));
            } else {
                drop(rehearsal.perform(engine.resume_queue(scope, ACTOR)));
            }
        }
    }
}

/// Lanes that have something to do in the end, and why it is not done.
fn waiting(rehearsal: &mut Rehearsal) -> Vec<(String, String)> {
    let engine = rehearsal.engine().clone();
    let filter = LaneFilter { limit: WAITING_SHOWN, ..LaneFilter::default() };
    let read = async {
        let now = engine.health().await?.now;
        let mut found = Vec::new();
        for row in engine.lanes(filter).await?.items {
            if let Some(detail) = engine.lane(row.lane.clone()).await? {
                found.push((row.lane.to_string(), detail.waiting.sentence(now)));
            }
        }
        Ok::<_, quell::quell_core::error::StoreError>(found)
    };
    rehearsal.perform(read).unwrap_or_default()
}

impl Told {
    fn write(&self) -> Result<(), Failure> {
        let mut table = Columns::new(&["TIME", "KEY", "WHAT", "WHY"]).right(0);
        for (left_out, line) in report::shown(&self.lines) {
            if left_out > 0 {
                table.row([
                    cell("…"),
                    cell(line.about()),
                    cell("…"),
                    cell(format!("{left_out} more events")),
                ]);
            }
            let why = times::one_line(&line.why, 120);
            table.row([cell(show_ms(line.at_ms)), cell(line.about()), cell(line.what), cell(why)]);
        }
        table.write()?;
        output::line("")?;
        let mut sums = Columns::new(&[
            "QUEUE",
            "EVENTS",
            "BATCHES",
            "SUCCEEDED",
            "RETRIES",
            "DEAD",
            "LEASES LOST",
            "WAIT P50",
            "WAIT MAX",
        ]);
        for right in 1..9 {
            sums = sums.right(right);
        }
        for (queue, sum) in &self.queues {
            let numbers = [sum.events, sum.batches, sum.succeeded, sum.retries, sum.dead, sum.leases_lost];
            let waits = [sum.wait_p50_ms, sum.wait_max_ms].map(|wait| output::or_dash(wait.map(show_ms)));
            let row = numbers.map(|number| number.to_string());
            table_row(&mut sums, queue, row.into_iter().chain(waits));
        }
        sums.write()?;
        for (lane, reason) in &self.waiting {
            output::line(format!("still there: {lane}: {reason}"))?;
        }
        if !self.nothing_is_lost {
            output::line("events are missing: this is a mistake in Quell; please report it with the script")?;
        }
        output::say(format!("simulated {} from {} on; nothing was stored", show(self.lasted), self.begins));
        Ok(())
    }

    fn write_json(&self, seed: u64) -> Result<(), Failure> {
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(lane, reason)| serde_json::json!({ "lane": lane, "reason": reason }));
        output::json(&serde_json::json!({
            "seed": seed,
            "begins": self.begins,
            "lasted_ms": u64::try_from(self.lasted.as_millis()).unwrap_or(u64::MAX),
            "items": self.lines,
            "queues": self.queues,
            "waiting": waiting.collect::<Vec<_>>(),
            "nothing_is_lost": self.nothing_is_lost,
        }))?;
        Ok(())
    }
}

fn table_row(table: &mut Columns, name: &str, cells: impl Iterator<Item = String>) {
    table.row(std::iter::once(cell(name)).chain(cells.map(cell)));
}
