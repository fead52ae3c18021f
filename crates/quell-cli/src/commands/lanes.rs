//! `quell lanes`: the keys that have something to do, and why they wait.

use clap::Args;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{LaneFilter, LaneRow, Page, span};

use crate::args::{Form, Global, Paging};
use crate::commands::lane;
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, cell};
use crate::times;

/// A key longer than this is cut in tables; JSON has all of it.
const KEY_CHARS: usize = 60;
const WHY_CHARS: usize = 400;

#[derive(Debug, Args)]
pub(crate) struct LanesArgs {
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only keys of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only keys that start with this
    #[arg(long, value_name = "PREFIX")]
    key: Option<String>,
    /// Only keys that a worker holds: who, since when, how much of the lease is left
    #[arg(long)]
    running: bool,
    /// Also keys that have nothing to do
    #[arg(long, conflicts_with = "running")]
    idle: bool,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &LanesArgs, global: &Global) -> Result<u8, Failure> {
    let filter = LaneFilter {
        tenant: context::tenant_of(args.tenant.as_deref())?,
        queue: context::queue_of(args.queue.as_deref())?,
        key_prefix: args.key.clone(),
        running: args.running,
        idle: args.idle,
        cursor: args.paging.cursor.clone(),
        limit: usize::from(args.paging.limit),
    };
    let engine = context::open_existing(global).await?;
    let queue = filter.queue.clone();
    let page = engine.lanes(filter).await?;
    context::known_if_empty(&engine, queue.as_ref(), &page).await?;
    if args.form.json {
        output::json(&page)?;
        return Ok(0);
    }
    let now = context::now(&engine).await?;
    if args.running {
        held(&page, now)?
    } else {
        waiting(&page)?
    }
    output::page_end(&page, if args.running { "running lanes" } else { "lanes with something to do" });
    Ok(0)
}

fn waiting(page: &Page<LaneRow>) -> std::io::Result<()> {
    let mut table = Columns::new(&["LANE", "STATE", "BUFFERED", "IN FLIGHT", "WHY"]).right(2).right(3);
    for row in &page.items {
        table.row([
            cell(shown(row)),
            output::state(row.state),
            cell(row.buffered),
            cell(row.in_flight),
            cell(why(row)),
        ]);
    }
    table.write()
}

fn held(page: &Page<LaneRow>, now: Timestamp) -> std::io::Result<()> {
    let mut table =
        Columns::new(&["LANE", "EVENTS", "WORKER", "TOKEN", "SINCE", "LEASE LEFT"]).right(1).right(3);
    for row in &page.items {
        let left = match row.lease_until {
            Some(until) if until > now => span(until, now),
            Some(until) => format!("ran out {}", times::relative(until, now)),
            None => "-".to_owned(),
        };
        table.row([
            cell(shown(row)),
            cell(row.in_flight),
            cell(output::worker(row.worker.as_deref())),
            cell(output::or_dash(row.token)),
            cell(times::short_or_dash(row.claimed_at, now)),
            cell(left),
        ]);
    }
    table.write()
}

/// The store's sentence with what else is special about the key. It names actors, who may call themselves anything.
fn why(row: &LaneRow) -> String {
    let mut text = times::one_line(&row.why, WHY_CHARS);
    if let Some(priority) = lane::priority(row.priority) {
        text += &format!("; priority {priority}");
    }
    text
}

fn shown(row: &LaneRow) -> String {
    times::one_line(&row.lane.to_string(), KEY_CHARS)
}
