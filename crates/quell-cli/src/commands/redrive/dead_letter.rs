//! Which runs `quell redrive --queue` means.

use quell::Engine;
use quell::quell_core::batch::RunId;
use quell::quell_core::event::{Key, LaneKey, QueueName};
use quell::quell_core::inspect::RunFilter;
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::limits;

use super::RedriveArgs;
use crate::context;
use crate::failure::{self, Failure};

/// The filter, and how many of what it finds.
pub(super) struct Choice {
    queue: QueueName,
    filter: RunFilter,
    limit: usize,
}

impl Choice {
    pub(super) fn of(args: &RedriveArgs, queue: &str) -> Result<Choice, Failure> {
        let limit = match (args.limit, args.all || args.dry_run) {
            (Some(limit), _) => usize::try_from(limit).unwrap_or(usize::MAX),
            (None, true) => usize::MAX,
            (None, false) => {
                return Err(Failure::new(failure::USAGE, "--queue needs --all, --limit N or --dry-run")
                    .help("--dry-run says what is dead there and changes nothing"));
            }
        };
        let queue = QueueName::new(queue)?;
        let filter = RunFilter {
            tenant: context::tenant_of(args.tenant.as_deref())?,
            queue: Some(queue.clone()),
            key: args.key.as_deref().map(Key::new).transpose()?,
            state: Some(RunState::Failed),
            cursor: None,
            limit: limits::PAGE_MAX,
        };
        Ok(Choice { queue, filter, limit })
    }

    /// The oldest first. A run whose events have all gone elsewhere is not dead any more.
    pub(super) async fn find(&self, engine: &Engine) -> Result<Vec<(RunId, LaneKey, u64)>, Failure> {
        context::known_queue(engine, &self.queue).await?;
        let mut filter = self.filter.clone();
        let mut dead = Vec::new();
        loop {
            let page = engine.runs(filter.clone()).await?;
            let rows = page.items.into_iter().filter(|row| row.events > 0);
            dead.extend(rows.map(|row| (row.id, row.lane, row.events)));
            match page.next {
                Some(next) => filter.cursor = Some(next),
                None => break,
            }
        }
        dead.reverse();
        dead.truncate(self.limit);
        Ok(dead)
    }
}
