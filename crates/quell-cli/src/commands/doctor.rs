//! `quell doctor`: is the store well, and is the machine under it?
//!
//! Reads everything: the counters are compared with the rows themselves, so that a lost event is found and not believed.
//! A *problem* is something that is wrong now and makes the exit code 1; a *warning* is worth a look. Each says what to do.

mod drift;
mod machine;

use clap::Args;
use owo_colors::OwoColorize;
use quell::config::Flags;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{Health, QueueStats, Verified, span};
use quell::quell_core::store::Durability;
use quell::{Engine, Presence};
use serde::Serialize;

use crate::args::{Form, Global};
use crate::context::{self, Loaded};
use crate::failure::{self, Failure};
use crate::output::{self, Columns, Facts, cell};
use crate::times;
use machine::Machine;

/// A lane that has been due for so long is not being worked on.
const OVERDUE_MS: u64 = 60_000;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Warning,
    Problem,
}

#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    text: String,
    /// What to do about it.
    fix: String,
}

/// Everything that was looked at: the answer with `--json`.
#[derive(Debug, Serialize)]
struct Examination {
    ok: bool,
    store: Option<Health>,
    queues: Vec<QueueStats>,
    verified: Option<Verified>,
    /// How many schedules the store keeps.
    schedules: Option<usize>,
    /// How many processes have told of themselves within the last minute.
    workers: Option<usize>,
    machine: Machine,
    findings: Vec<Finding>,
}

pub(crate) async fn run(args: &DoctorArgs, global: &Global) -> Result<u8, Failure> {
    let loaded = context::load(global, Flags::default())?;
    context::must_exist(&loaded.settings)?;
    let machine = Machine::look(&loaded.settings.store);
    let mut exam = Examination {
        ok: true,
        store: None,
        queues: Vec::new(),
        verified: None,
        schedules: None,
        workers: None,
        machine,
        findings: Vec::new(),
    };
    let check = "change the file; `quell check` shows what it means";
    exam.findings.extend(loaded.settings.warnings.iter().map(|text| warning(text, check)));
    exam.findings.extend(exam.machine.findings());
    let opened = match context::open_now(&loaded).await {
        Ok(engine) => {
            let own = loaded.file.as_ref().map(|_| loaded.settings.fingerprints());
            exam.look(&engine, &own).await
        }
        Err(failure) => Err(failure),
    };
    exam.ok = opened.is_ok() && exam.findings.iter().all(|finding| finding.level != Level::Problem);
    if args.form.json {
        output::json(&exam)?
    } else {
        exam.show(&loaded)?
    }
    opened?;
    Ok(if exam.ok { 0 } else { failure::FAILED })
}

fn warning(text: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { level: Level::Warning, text: text.into(), fix: fix.into() }
}

fn problem(text: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { level: Level::Problem, text: text.into(), fix: fix.into() }
}

impl Examination {
    async fn look(&mut self, engine: &Engine, own: &drift::Own) -> Result<(), Failure> {
        let health = engine.health().await?;
        if let Durability::BestEffort(why) = &health.description.durability {
            let fix = "an acknowledged event may be lost: mend what is named here, or keep nothing in it that matters";
            self.findings.push(warning(format!("best effort: {why}"), fix));
        }
        self.findings.extend(health.warnings.iter().map(|of| warning(&of.text, &of.fix)));
        self.store = Some(health);

        let workers: Vec<Presence> = engine.workers().await?.into_iter().map(|(about, _)| about).collect();
        self.findings.extend(drift::findings(&workers, own));
        self.workers = Some(workers.len());
        self.schedules = Some(engine.schedules().await?.len());
        self.queues = engine.stats().await?;
        for queue in &self.queues {
            let name = name_of(queue);
            let overdue = queue.oldest_due_ms.filter(|ms| *ms >= OVERDUE_MS && queue.paused_by.is_none());
            if let Some(ms) = overdue {
                let since =
                    span(Timestamp::from_millis(i64::try_from(ms).unwrap_or(0)), Timestamp::default());
                let text =
                    format!("queue {name}: a key has been due for {since}; is a worker running for it?");
                let fix = "`quell top` shows who works; `quell work` starts one more, and `quell lane` says why a key waits";
                self.findings.push(warning(text, fix));
            }
        }
        let verified = engine.verify().await?;
        let fix = "stop what writes to the store from outside, keep a copy of it as it is, and report this: no event \
                   may ever be lost";
        self.findings.extend(verified.problems.iter().map(|text| problem(text, fix)));
        self.verified = Some(verified);
        Ok(())
    }

    fn show(&self, loaded: &Loaded) -> std::io::Result<()> {
        let mut facts = Facts::default();
        let store = &loaded.settings.store;
        facts.add("store", format!("{} (from {})", store.url, loaded.told(&store.origin)));
        if let Some(health) = &self.store {
            let about = &health.description;
            let durability = match &about.durability {
                Durability::Durable => "durable",
                Durability::BestEffort(_) => "best effort",
            };
            facts.add("version", format!("{} {}, schema {}", about.kind, about.version, about.schema));
            facts.add("durability", durability);
            let apart = health.wall_divergence_ms;
            facts.add("store time", format!("{}, {apart} ms from this machine's clock", health.now));
            for (name, value) in &health.facts {
                let value = match value.parse() {
                    Ok(n) if name.ends_with("_bytes") => times::bytes(n),
                    _ => value.clone(),
                };
                facts.add(&name.replace("_bytes", "_size").replace('_', " "), value);
            }
        }
        facts.add_some("workers", self.workers.map(|n| n.to_string()));
        facts.add_some("schedules", self.schedules.filter(|n| *n > 0).map(|n| n.to_string()));
        self.machine.tell(&mut facts);
        facts.write()?;
        if !self.queues.is_empty() {
            output::line("")?;
            self.equation().write()?;
        }
        output::line("")?;
        if let Some(verified) = &self.verified
            && verified.problems.is_empty()
        {
            let (events, queues) =
                (times::count(verified.events, "event"), times::count(verified.queues, "queue"));
            output::line(format!(
                "{} nothing is lost: {events} in {queues} agree with the counters",
                "ok".green()
            ))?;
        }
        for finding in &self.findings {
            let word = match finding.level {
                Level::Warning => "warning".yellow().to_string(),
                Level::Problem => "problem".red().to_string(),
            };
            output::line(format!("{word} {}", times::one_line(&finding.text, 1_000)))?;
            let fix = format!("    fix {}", times::one_line(&finding.fix, 1_000));
            output::line(fix.dimmed().to_string())?;
        }
        Ok(())
    }

    /// accepted = succeeded + dead + discarded + delayed + buffered + in flight, per queue.
    fn equation(&self) -> Columns {
        equation(&self.queues)
    }
}

/// The no-loss equation as a table; the demo shows it too.
pub(super) fn equation(queues: &[QueueStats]) -> Columns {
    let names = [
        "QUEUE",
        "ACCEPTED",
        "=",
        "SUCCEEDED",
        "DEAD",
        "DISCARDED",
        "DELAYED",
        "BUFFERED",
        "IN FLIGHT",
        "VERDICT",
    ];
    let mut table = Columns::new(&names);
    for column in [1, 3, 4, 5, 6, 7, 8] {
        table = table.right(column);
    }
    for queue in queues {
        let totals = &queue.totals;
        let verdict = if totals.hold() { "holds" } else { "DOES NOT HOLD" };
        table.row([
            cell(name_of(queue)),
            cell(totals.accepted),
            cell("="),
            cell(totals.succeeded),
            cell(totals.dead),
            cell(totals.discarded),
            cell(totals.delayed),
            cell(totals.buffered),
            cell(totals.in_flight),
            cell(verdict),
        ]);
    }
    table
}

fn name_of(queue: &QueueStats) -> String {
    if queue.tenant.is_none() { queue.queue.to_string() } else { format!("{}:{}", queue.tenant, queue.queue) }
}
