//! `quell dead`: the dead letter, which is the failed runs and why they failed.

use clap::Args;
use quell::Engine;
use quell::quell_core::event::Key;
use quell::quell_core::inspect::{Page, RunFilter, RunRow};
use quell::quell_core::lifecycle::RunState;

use crate::args::{Form, Global, Paging};
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, cell};
use crate::times;

const LANE_CHARS: usize = 40;
const ERROR_CHARS: usize = 120;

#[derive(Debug, Args)]
pub(crate) struct DeadArgs {
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only keys of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &DeadArgs, global: &Global) -> Result<u8, Failure> {
    let filter = RunFilter {
        tenant: context::tenant_of(args.tenant.as_deref())?,
        queue: context::queue_of(args.queue.as_deref())?,
        key: args.key.as_deref().map(Key::new).transpose()?,
        state: Some(RunState::Failed),
        cursor: args.paging.cursor.clone(),
        limit: usize::from(args.paging.limit),
    };
    let engine = context::open_existing(global).await?;
    let queue = filter.queue.clone();
    let page = dead(&engine, filter).await?;
    context::known_if_empty(&engine, queue.as_ref(), &page).await?;
    if args.form.json {
        output::json(&page)?;
        return Ok(0);
    }
    let now = context::now(&engine).await?;
    let mut table = Columns::new(&["RUN", "LANE", "EVENTS", "TRIES", "FAILED", "ERROR"]).right(2).right(3);
    for row in &page.items {
        table.row([
            cell(row.id),
            cell(times::one_line(&row.lane.to_string(), LANE_CHARS)),
            cell(row.events),
            cell(row.attempts),
            cell(times::short_or_dash(row.completed_at, now)),
            cell(times::one_line(row.error.as_deref().unwrap_or("-"), ERROR_CHARS)),
        ]);
    }
    table.write()?;
    output::page_end(&page, "failed runs");
    Ok(0)
}

/// A page of failed runs that still have their events: those that were redriven are not dead any more.
async fn dead(engine: &Engine, filter: RunFilter) -> Result<Page<RunRow>, Failure> {
    let mut filter = filter;
    let mut items: Vec<RunRow> = Vec::new();
    let wanted = filter.limit;
    loop {
        filter.limit = wanted - items.len();
        let page = engine.runs(filter.clone()).await?;
        items.extend(page.items.into_iter().filter(|row| row.events > 0));
        if page.next.is_none() || items.len() >= wanted {
            return Ok(Page { items, next: page.next });
        }
        filter.cursor = page.next;
    }
}
