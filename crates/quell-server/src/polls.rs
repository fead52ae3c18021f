//! Long polls: many pull workers that wait for the same queues, at the cost of one.
//!
//! Those who wait for the same thing form a group. One of them at a time stands at the front: it listens to the store and
//! sleeps until the next lane is due; the others sleep until the front is free. Whoever gets something leaves, and the next
//! one at the front looks at once, because there may be more. So an event wakes one worker, not a thousand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use quell::clock::{self, Stopwatch};
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::{QueueName, Tenant};
use quell::quell_core::store::{ClaimQueues, ClaimRequest, Wakeups};
use tokio::sync::Mutex as AsyncMutex;

use crate::app::App;
use crate::claims::Delivery;

/// Without a sign of the store the front looks at least this often.
const LOOK: Duration = Duration::from_secs(5);

/// What those who wait together wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    /// None means every queue.
    queues: Option<Vec<QueueName>>,
    tenant: Option<Tenant>,
}

/// The groups that somebody waits in.
#[derive(Default)]
pub(crate) struct Polls(Mutex<HashMap<Wanted, Weak<Group>>>);

/// The front of a group, held by one at a time; fair, so whoever came first is served first.
struct Group(AsyncMutex<Front>);

struct Front {
    wakeups: Box<dyn Wakeups>,
    /// The latest look found nothing, and nothing before this moment (by the stopwatch) is due.
    quiet_for: Option<(Stopwatch, Option<Duration>)>,
}

impl Polls {
    fn group(&self, app: &App, wanted: Wanted) -> Arc<Group> {
        let mut groups = self.0.lock().expect("no panic happens while it is locked");
        if let Some(group) = groups.get(&wanted).and_then(Weak::upgrade) {
            return group;
        }
        groups.retain(|_, group| group.strong_count() > 0);
        let front = Front { wakeups: app.engine.store().wakeups(), quiet_for: None };
        let group = Arc::new(Group(AsyncMutex::new(front)));
        groups.insert(wanted, Arc::downgrade(&group));
        group
    }
}

/// Claims, and waits for something to claim for at most `wait`. An empty answer means that there was nothing.
pub(crate) async fn claim(app: &App, request: ClaimRequest, wait: Duration) -> StoreResult<Delivery> {
    let started = Stopwatch::start();
    let first = Delivery::claim(app, request.clone()).await?;
    if !first.is_empty() || wait.is_zero() {
        return Ok(first);
    }
    let queues = match &request.queues {
        ClaimQueues::Any(_) => None,
        ClaimQueues::Listed(list) => {
            let mut names: Vec<QueueName> = list.iter().map(|queue| queue.queue.clone()).collect();
            names.sort();
            Some(names)
        }
    };
    let group = app.polls.group(app, Wanted { queues, tenant: request.tenant.clone() });
    let _counted = Counted::new();
    let front = tokio::select! {
        front = group.0.lock() => Some(front),
        () = clock::sleep(started.left(wait)) => None,
        () = app.stop.cancelled() => None,
    };
    let answer = match front {
        Some(mut front) => front.wait_and_claim(app, &request, started, wait).await?,
        None => None,
    };
    Ok(answer.unwrap_or(first))
}

/// One who waits, for the metric: also whoever hangs up meanwhile is subtracted again. The gauge is kept, so that one who came
/// before anybody counted is not subtracted from those who were.
struct Counted(metrics::Gauge);

impl Counted {
    fn new() -> Self {
        let gauge = metrics::gauge!("quell_http_long_polls");
        gauge.increment(1.0);
        Counted(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Front {
    /// Nothing when the wait is over. A claim that has begun is seen to its end: whoever named it would otherwise be told
    /// that there was nothing, and hold it.
    async fn wait_and_claim(
        &mut self,
        app: &App,
        request: &ClaimRequest,
        started: Stopwatch,
        wait: Duration,
    ) -> StoreResult<Option<Delivery>> {
        loop {
            if let Some((since, due)) = self.quiet_for {
                let pause = due.map_or(LOOK, |due| since.left(due).min(LOOK));
                let left = started.left(wait);
                let over = tokio::select! {
                    () = self.wakeups.woken() => false,
                    () = clock::sleep(pause.min(left)) => pause >= left,
                    () = app.stop.cancelled() => true,
                };
                if over {
                    return Ok(None);
                }
            }
            // Whoever is cut off from here on leaves the front as one that has to look.
            self.quiet_for = None;
            let claimed = Delivery::claim(app, request.clone()).await?;
            if !claimed.is_empty() {
                return Ok(Some(claimed));
            }
            self.quiet_for = Some((Stopwatch::start(), claimed.next_in()));
            if started.left(wait).is_zero() {
                return Ok(None);
            }
        }
    }
}
