//! `quell tail`: what happens, as it happens, from the store itself: no server is needed, and every process is seen.

use std::time::Duration;

use clap::Args;
use quell::clock;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::event::Key;
use quell::quell_core::inspect::AuditFilter;

use crate::args::{Form, Global};
use crate::commands::audit;
use crate::context;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;

/// Without a sign of the store it is looked at this often.
const LOOK: Duration = Duration::from_millis(500);
/// After a sign, what follows at once is taken along.
const GATHER: Duration = Duration::from_millis(50);
/// What is shown of one look; more is said to be left out.
const MOST: usize = 10_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell tail                          everything, until Ctrl-C
  quell tail --queue chat --key 7     one key
  quell tail --json | jq .change      for programs: one record of the audit trail per line")]
pub(crate) struct TailArgs {
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only keys of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// First the last so many that have happened already, up to 1000
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1000))]
    last: u16,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &TailArgs, global: &Global) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let filter = AuditFilter {
        tenant: context::tenant_of(args.tenant.as_deref())?,
        queue: context::queue_of(args.queue.as_deref())?,
        key: args.key.as_deref().map(Key::new).transpose()?,
        ..AuditFilter::default()
    };
    let engine = context::open_existing(global).await?;
    if let Some(queue) = &filter.queue {
        context::known_queue(&engine, queue).await?;
    }
    let mut wakeups = engine.store().wakeups();
    let mut seen = engine.newest_record().await?;
    if args.last > 0 {
        let page = engine.audit(AuditFilter { limit: args.last.into(), ..filter.clone() }).await?;
        for record in page.items.iter().rev().filter(|record| record.id <= seen) {
            show(record, args.form)?;
        }
    }
    output::say("what happens from now on is shown here; Ctrl-C ends it");
    loop {
        tokio::select! {
            _ = signals.next_stop() => return Ok(0),
            () = wakeups.woken() => clock::sleep(GATHER).await,
            () = clock::sleep(LOOK) => {}
        }
        // The newest of all, so that nothing of others is looked at twice.
        let newest = engine.newest_record().await?;
        if newest <= seen {
            continue;
        }
        let (records, whole) = engine.audit_since(seen, filter.clone(), MOST).await?;
        if !whole && records.len() >= MOST {
            output::say("more happened at once than is shown here: `quell audit` has all of it");
        }
        for record in &records {
            show(record, args.form)?;
        }
        seen = records.last().map_or(newest, |record| record.id.max(newest));
    }
}

fn show(record: &AuditRecord, form: Form) -> Result<(), Failure> {
    if form.json {
        output::json(record)?
    } else {
        output::line(audit::one_line(record))?
    }
    Ok(())
}
