//! Queues that are full: a bound on what waits, over all keys of a tenant.
//!
//! Somebody who sends ten million keys fills a disk, not one lane. The store keeps totals per tenant and queue; they are
//! read once a second and only when a queue has a bound, so an append costs a look into memory. The bound is soft: what
//! arrives within that second passes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::StatusCode;
use quell::clock::Stopwatch;
use quell::config::QueueSettings;
use quell::quell_core::event::Tenant;
use quell::quell_core::inspect::QueueStats;

use crate::app::App;
use crate::error::{Answer, Problem};

/// How old the totals may be.
const AGE: Duration = Duration::from_secs(1);

type Waiting = Arc<HashMap<(Tenant, String), u64>>;

/// What waits where, as it was a moment ago.
#[derive(Default)]
pub(crate) struct Depths {
    known: Mutex<Option<(Waiting, Stopwatch)>>,
    /// One at a time asks the store.
    asking: tokio::sync::Mutex<()>,
}

impl Depths {
    fn locked(&self) -> MutexGuard<'_, Option<(Waiting, Stopwatch)>> {
        self.known.lock().expect("no panic happens while it is locked")
    }

    fn fresh(&self) -> Option<Waiting> {
        self.locked().as_ref().filter(|(_, since)| since.elapsed() < AGE).map(|(known, _)| known.clone())
    }

    async fn waiting(&self, app: &App) -> Answer<Waiting> {
        if let Some(known) = self.fresh() {
            return Ok(known);
        }
        let _one = self.asking.lock().await;
        if let Some(known) = self.fresh() {
            return Ok(known);
        }
        let of = |stats: QueueStats| {
            let waiting = stats.totals.buffered + stats.totals.delayed + stats.totals.in_flight;
            ((stats.tenant, stats.queue.as_str().to_owned()), waiting)
        };
        let known: Waiting = Arc::new(app.engine.stats().await?.into_iter().map(of).collect());
        *self.locked() = Some((known.clone(), Stopwatch::start()));
        Ok(known)
    }
}

/// 429 when as much waits for this tenant as its queue allows.
pub(crate) async fn check(
    app: &App,
    queue: &QueueSettings,
    tenants: impl Iterator<Item = &Tenant>,
) -> Answer<()> {
    let Some(most) = queue.max_waiting else { return Ok(()) };
    let waiting = app.depths.waiting(app).await?;
    for tenant in tenants {
        let here = waiting.get(&(tenant.clone(), queue.name.as_str().to_owned())).copied().unwrap_or(0);
        if here >= most {
            let detail = format!(
                "{here} events wait in queue {} and its limit is {most}; nothing was stored, send again later",
                queue.name
            );
            let full = Problem::too_many(detail, AGE);
            return Err(full.status(StatusCode::TOO_MANY_REQUESTS, "queue-full"));
        }
    }
    Ok(())
}
