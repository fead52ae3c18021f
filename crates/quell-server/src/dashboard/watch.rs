//! What the server remembers of its store so that the first page can show how things go: rates over the last minutes, for what
//! lanes wait, and what failed.
//!
//! One task of the server looks at the totals every few seconds, from its start on, so that the page knows of an incident also
//! when it is opened in the middle of it. Neither what it reads nor what a page reads depends on the number of lanes or of
//! visitors: totals are counters, and of the lanes one page is counted, once for all who look.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use quell::Engine;
use quell::clock::{self, Stopwatch};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::{QueueName, Tenant};
use quell::quell_core::inspect::{LaneFilter, LaneRow, QueueStats, Reason, RunFilter, RunRow};
use quell::quell_core::lifecycle::RunState;
use quell::rates::{self, Seen, Trail};
use tokio::sync::Mutex as AsyncMutex;

use crate::limits;

/// What a server remembers of its store.
pub(crate) struct Watch {
    since: Stopwatch,
    trail: Mutex<Trail>,
    lanes: Recent<LaneCounts>,
    dead: Recent<Vec<RunRow>>,
    clock: Recent<(Stopwatch, Timestamp)>,
}

/// What was read lately, for all who look: whoever comes while it is read waits for that.
struct Recent<T>(AsyncMutex<Option<(Stopwatch, Arc<T>)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent(AsyncMutex::default())
    }
}

impl<T> Recent<T> {
    async fn or_read(&self, read: impl Future<Output = StoreResult<T>>) -> StoreResult<Arc<T>> {
        let mut latest = self.0.lock().await;
        match &*latest {
            Some((when, found)) if when.elapsed() < limits::LOOK_AGE => Ok(found.clone()),
            _ => {
                let found = Arc::new(read.await?);
                *latest = Some((Stopwatch::start(), found.clone()));
                Ok(found)
            }
        }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            since: Stopwatch::start(),
            trail: Mutex::default(),
            lanes: Recent::default(),
            dead: Recent::default(),
            clock: Recent::default(),
        }
    }
}

impl Watch {
    /// Looks at the totals until the server ends. A store that is away leaves a gap.
    pub(crate) async fn run(&self, engine: &Engine) {
        loop {
            match engine.stats().await {
                Ok(stats) => self.trail().note(self.since.elapsed(), &stats),
                Err(error) => tracing::debug!(%error, "the totals could not be looked at"),
            }
            clock::sleep(rates::EVERY).await;
        }
    }

    /// The clock of the store. Every page needs it, and the only question that tells it is the one for the health of the
    /// store, which is a heavy one where the store is a server: it is asked once in a while, and time passes here as there.
    pub(crate) async fn now(&self, engine: &Engine) -> StoreResult<Timestamp> {
        let read = async {
            // Started first: a page that is a little late shows ages a little too large, and never the future.
            let asked = Stopwatch::start();
            Ok((asked, engine.health().await?.now))
        };
        let known = self.clock.or_read(read).await?;
        let (asked, then) = &*known;
        Ok(then.after(asked.elapsed()))
    }

    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().expect("no panic happens while it is locked")
    }

    /// What was seen of these queues, with what is there now as the newest.
    pub(super) fn seen(&self, now: &[QueueStats], sees: impl Fn(&Tenant, &QueueName) -> bool) -> Vec<Seen> {
        let mut seen = self.trail().seen(sees);
        seen.push(Seen { at: self.since.elapsed(), counted: rates::sum(now) });
        seen
    }

    /// For what lanes wait, a moment ago at the most.
    pub(super) async fn lanes(&self, engine: &Engine) -> StoreResult<Arc<LaneCounts>> {
        let read = async {
            let filter = LaneFilter { limit: limits::LANES_COUNTED, ..LaneFilter::default() };
            let page = engine.lanes(filter).await?;
            Ok(LaneCounts::of(&page.items, page.next.is_some()))
        };
        self.lanes.or_read(read).await
    }

    /// The newest dead letters, a moment ago at the most.
    pub(super) async fn dead(&self, engine: &Engine) -> StoreResult<Arc<Vec<RunRow>>> {
        let read = async {
            let (state, limit) = (Some(RunState::Failed), limits::DEAD_LOOKED);
            Ok(engine.runs(RunFilter { state, limit, ..RunFilter::default() }).await?.items)
        };
        self.dead.or_read(read).await
    }
}

/// For what lanes wait, counted over one page of them.
#[derive(Debug, Default)]
pub(super) struct LaneCounts {
    counts: BTreeMap<(Tenant, QueueName), HashMap<Reason, u64>>,
    /// There are more than were counted.
    pub(super) more: bool,
}

impl LaneCounts {
    fn of(rows: &[LaneRow], more: bool) -> Self {
        let mut all = LaneCounts { counts: BTreeMap::new(), more };
        for row in rows {
            let owner = (row.lane.tenant.clone(), row.lane.queue.clone());
            *all.counts.entry(owner).or_default().entry(row.reason).or_default() += 1;
        }
        all
    }

    /// Of the queues that may be seen, in the order of the reasons; those that no lane has are left out.
    pub(super) fn counts(&self, sees: impl Fn(&Tenant, &QueueName) -> bool) -> Vec<(Reason, u64)> {
        let own: Vec<_> =
            self.counts.iter().filter(|((tenant, queue), _)| sees(tenant, queue)).map(|(_, of)| of).collect();
        let count = |reason: Reason| (reason, own.iter().filter_map(|of| of.get(&reason)).sum());
        Reason::ALL.into_iter().map(count).filter(|(_, n)| *n > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quell::quell_core::clock::Timestamp;
    use quell::quell_core::event::{EventId, Key, LaneKey, NewEvent, NewEventId, Payload};
    use quell::quell_core::lane::Lane;
    use quell::quell_core::window::Window;

    use super::*;

    fn lane(queue: &str, pause: bool) -> LaneRow {
        let (start, now) = (Timestamp::from_millis(0), Timestamp::from_millis(500));
        let key = LaneKey::new(QueueName::new(queue).unwrap(), Key::new("k").unwrap());
        let policy = quell::quell_core::event::AppendPolicy {
            window: Window::quiet(Duration::from_secs(1)),
            ..Default::default()
        };
        let id = NewEventId::Made(EventId::new("e").unwrap());
        let event = NewEvent::new(key.clone(), id, Payload::of(&serde_json::json!(1)), policy.into());
        let mut lane = Lane::new(1, start);
        lane.append(start, 1, &event, None, || 7);
        if pause {
            lane.pause(start, "ada");
        }
        LaneRow::of(&lane, &key, now, None, None)
    }

    #[test]
    fn every_lane_is_counted_once_and_for_those_who_may_see_it() {
        let rows = [lane("chat", false), lane("chat", true), lane("jobs", false)];
        let counts = LaneCounts::of(&rows, false);
        assert_eq!(counts.counts(|_, _| true), [(Reason::Paused, 1), (Reason::Window, 2)]);
        assert_eq!(counts.counts(|_, queue| queue.as_str() == "jobs"), [(Reason::Window, 1)]);
        assert_eq!(counts.counts(|_, _| false), []);
    }
}
