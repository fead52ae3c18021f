//! `quell runs`: runs in all states, those that seem stuck, or counts of them.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use quell::Engine;
use quell::config::DurationText;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Key;
use quell::quell_core::inspect::{Page, RunFilter, RunRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::limits;

use crate::args::{Form, Global, Paging};
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, cell};
use crate::times;

const LANE_CHARS: usize = 40;
const ERROR_CHARS: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only keys of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only runs in this state
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<RunState>,
    /// Only running ones without a sign of life for this long, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse, conflicts_with = "state")]
    stuck: Option<Duration>,
    /// Count runs instead of listing them, by `state`, `worker`, `queue`, or several: state,worker
    #[arg(long, value_name = "BY", value_delimiter = ',', value_enum)]
    count_by: Vec<CountBy>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CountBy {
    State,
    Worker,
    Queue,
}

pub(super) fn state(text: &str) -> Result<RunState, String> {
    RunState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
        let known: Vec<_> = RunState::ALL.iter().map(|state| state.as_str()).collect();
        format!("the states are {}", known.join(", "))
    })
}

pub(crate) async fn run(args: &RunsArgs, global: &Global) -> Result<u8, Failure> {
    let filter = RunFilter {
        tenant: context::tenant_of(args.tenant.as_deref())?,
        queue: context::queue_of(args.queue.as_deref())?,
        key: args.key.as_deref().map(Key::new).transpose()?,
        state: if args.stuck.is_some() { Some(RunState::Running) } else { args.state },
        cursor: args.paging.cursor.clone(),
        limit: usize::from(args.paging.limit),
    };
    let engine = context::open_existing(global).await?;
    let now = context::now(&engine).await?;
    let older = |row: &RunRow| match args.stuck {
        Some(silence) => row.heartbeat_at.is_none_or(|beat| now.since(beat) >= silence),
        None => true,
    };
    let queue = filter.queue.clone();
    if !args.count_by.is_empty() {
        let counts = count(&engine, filter, &args.count_by, older).await?;
        if let Some(queue) = queue.as_ref().filter(|_| counts.is_empty()) {
            context::known_queue(&engine, queue).await?;
        }
        return show_counts(&args.count_by, &counts, args.form.json);
    }
    let page = match args.stuck {
        Some(_) => {
            let all = every(&engine, filter, older).await?;
            Page { items: all, next: None }
        }
        None => engine.runs(filter).await?,
    };
    context::known_if_empty(&engine, queue.as_ref(), &page).await?;
    if args.form.json {
        output::json(&page)?;
        return Ok(0);
    }
    if args.stuck.is_some() {
        show_stuck(&page, now)?
    } else {
        show(&page, now)?
    }
    output::page_end(&page, if args.stuck.is_some() { "stuck runs" } else { "runs" });
    Ok(0)
}

fn show(page: &Page<RunRow>, now: Timestamp) -> std::io::Result<()> {
    let names =
        ["RUN", "STATE", "LANE", "EVENTS", "TRIES", "FIRED BY", "WORKER", "CREATED", "UPDATED", "ERROR"];
    let mut table = Columns::new(&names).right(3).right(4);
    for row in &page.items {
        table.row([
            cell(row.id),
            output::state(Some(row.state)),
            cell(times::one_line(&row.lane.to_string(), LANE_CHARS)),
            cell(row.events),
            cell(row.attempts),
            cell(row.fired_by.map_or("-", |by| by.as_str())),
            cell(output::worker(row.worker.as_deref())),
            cell(times::short(row.created_at, now)),
            cell(times::short(row.updated_at, now)),
            cell(times::one_line(row.error.as_deref().unwrap_or("-"), ERROR_CHARS)),
        ]);
    }
    table.write()
}

fn show_stuck(page: &Page<RunRow>, now: Timestamp) -> std::io::Result<()> {
    let names = ["RUN", "LANE", "WORKER", "TOKEN", "CLAIMED", "LAST SIGN OF LIFE", "LEASE"];
    let mut table = Columns::new(&names).right(3);
    for row in &page.items {
        table.row([
            cell(row.id),
            cell(times::one_line(&row.lane.to_string(), LANE_CHARS)),
            cell(output::worker(row.worker.as_deref())),
            cell(row.token),
            cell(times::short_or_dash(row.claimed_at, now)),
            cell(times::short_or_dash(row.heartbeat_at, now)),
            cell(times::short_or_dash(row.lease_until, now)),
        ]);
    }
    table.write()
}

/// Page by page through everything that matches.
async fn each(
    engine: &Engine,
    filter: RunFilter,
    wanted: impl Fn(&RunRow) -> bool,
    mut visit: impl FnMut(RunRow),
) -> Result<(), Failure> {
    let mut filter = RunFilter { limit: limits::PAGE_MAX, ..filter };
    loop {
        let page = engine.runs(filter.clone()).await?;
        page.items.into_iter().filter(|row| wanted(row)).for_each(&mut visit);
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => return Ok(()),
        }
    }
}

async fn every(
    engine: &Engine,
    filter: RunFilter,
    wanted: impl Fn(&RunRow) -> bool,
) -> Result<Vec<RunRow>, Failure> {
    let mut all = Vec::new();
    each(engine, filter, wanted, |row| all.push(row)).await?;
    Ok(all)
}

type Counts = BTreeMap<Vec<String>, (u64, u64)>;

/// Runs and their events, grouped.
async fn count(
    engine: &Engine,
    filter: RunFilter,
    by: &[CountBy],
    wanted: impl Fn(&RunRow) -> bool,
) -> Result<Counts, Failure> {
    let mut counts = Counts::new();
    each(engine, filter, wanted, |row| {
        let group = by.iter().map(|by| match by {
            CountBy::State => row.state.to_string(),
            CountBy::Worker => output::worker(row.worker.as_deref()),
            CountBy::Queue => row.lane.queue.to_string(),
        });
        let entry = counts.entry(group.collect()).or_default();
        entry.0 += 1;
        entry.1 += row.events;
    })
    .await?;
    Ok(counts)
}

fn show_counts(by: &[CountBy], counts: &Counts, json: bool) -> Result<u8, Failure> {
    let name = |by: &CountBy| match by {
        CountBy::State => "state",
        CountBy::Worker => "worker",
        CountBy::Queue => "queue",
    };
    if json {
        let items = counts.iter().map(|(group, (runs, events))| {
            let mut item = serde_json::Map::new();
            for (by, value) in by.iter().zip(group) {
                item.insert(name(by).to_owned(), value.as_str().into());
            }
            item.insert("runs".to_owned(), (*runs).into());
            item.insert("events".to_owned(), (*events).into());
            serde_json::Value::Object(item)
        });
        output::json(&serde_json::json!({ "items": items.collect::<Vec<_>>(), "next": null }))?;
        return Ok(0);
    }
    let mut names: Vec<String> = by.iter().map(|by| name(by).to_uppercase()).collect();
    names.extend(["RUNS".to_owned(), "EVENTS".to_owned()]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = Columns::new(&names).right(by.len()).right(by.len() + 1);
    for (group, (runs, events)) in counts {
        table.row(group.iter().map(cell).chain([cell(runs), cell(events)]));
    }
    table.write()?;
    Ok(0)
}
