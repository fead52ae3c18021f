//! One look as text, for pipes and scripts.

use owo_colors::OwoColorize;
use quell::quell_core::inspect::span;

use super::figures::Figures;
use crate::commands::doctor::equation;
use crate::output::{self, Columns, Facts, cell};
use crate::times;

const KEY_CHARS: usize = 40;
const WHY_CHARS: usize = 100;

pub(super) fn write(figures: &Figures) -> std::io::Result<()> {
    let (about, now) = (&figures.health.description, figures.now());
    let mut facts = Facts::default();
    facts.add("store", format!("{} {} at {}", about.kind, about.version, about.place));
    facts.add("time", now.to_string());
    facts.add("workers", figures.workers.len().to_string());
    facts.write()?;
    for queue in figures.broken() {
        output::line(format!(
            "{} the totals of queue {} do not add up: run `quell doctor`",
            "alarm".red(),
            queue.queue
        ))?;
    }
    if !figures.queues.is_empty() {
        output::line("")?;
        equation(&figures.queues).write()?;
    }
    if !figures.lanes.is_empty() {
        output::line("")?;
        lanes(figures).write()?;
    }
    if !figures.workers.is_empty() {
        output::line("")?;
        workers(figures).write()?;
    }
    if figures.more_lanes {
        output::say("there are more lanes; `quell lanes` pages through all of them");
    }
    Ok(())
}

fn lanes(figures: &Figures) -> Columns {
    let mut table = Columns::new(&["QUEUE", "KEY", "WAITS FOR", "BUFFERED", "IN FLIGHT", "WHY IT WAITS"])
        .right(3)
        .right(4);
    for row in &figures.lanes {
        table.row([
            cell(&row.lane.queue),
            cell(times::one_line(row.lane.key.as_str(), KEY_CHARS)),
            cell(row.reason.as_str().replace('_', " ")),
            cell(row.buffered),
            cell(row.in_flight),
            cell(times::one_line(&row.why, WHY_CHARS)),
        ]);
    }
    table
}

fn workers(figures: &Figures) -> Columns {
    let mut table = Columns::new(&["WORKER", "PID", "STATE", "AT ONCE", "HEARD OF"]).right(3);
    for (about, seen_at) in &figures.workers {
        table.row([
            cell(times::one_line(&about.worker, KEY_CHARS)),
            cell(about.pid),
            cell(&about.state),
            cell(about.concurrency),
            cell(format!("{} ago", span(figures.now(), *seen_at))),
        ]);
    }
    table
}
