//! The end of a schedule: the faults stop, the world heals, and everything that can finish must.
//!
//! This is the liveness half: what is left in the end is either done, dead, discarded, or waits behind a pause or a
//! block that somebody put there. Anything else after a long time is a failure, told with the state of its lane.

use quell_core::inspect::{Inspect, Inspected, LaneFilter, LaneRow, QueueStats};
use quell_core::store::{Control, ControlAction};

use quell_check::history::Action;

use crate::call::{Request, ready};
use crate::node::Node;
use crate::plan::WorkerPlan;
use crate::seen::Sight;
use crate::world::{What, Who, World};

/// How long after the faults everything must be done, in simulated milliseconds: many leases, every backoff and every
/// delay that a plan can draw.
const BOUND: u64 = 120_000;
/// The same over several databases: what is relayed between them waits for a lease of a minute when its process died, for up to a
/// minute after a failure, and for the next sweep each time.
const BOUND_SEVERAL: u64 = 600_000;
/// How long zombies and late answers may still do their worst after all work is done.
const AFTERMATH: u64 = 4_000;

impl World {
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        self.clear_weather();
        let others = self.nodes.iter().any(Node::is_full_worker);
        if self.plan.shape.closer || !others {
            self.nodes.push(Node::worker(WorkerPlan {
                queues: Vec::new(),
                concurrency: 8,
                skew: 0,
                idle_max: 1_000,
                sweep_every: 500,
                error_wait: 100,
                grace: 0,
            }));
        }
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        let tenant = self.plan.shape.queues[0].tenant.clone();
        for name in ["s0", "s1"] {
            let action = ControlAction::RemoveSchedule { tenant: tenant.clone(), name: name.to_owned() };
            self.put_right(action, Action::Other { name: "remove schedule".into() });
        }
        self.later(self.now + 100, What::Look);
    }

    pub(crate) fn put_right(&mut self, action: ControlAction, told: Action) {
        let control = Control { actor: "closing".to_owned(), action };
        self.ask(Who::Closing, Request::Control { control, action: told });
    }

    /// Is everything done? Looked at again and again, with growing pauses.
    pub(crate) fn look(&mut self) {
        let waits = self.waits();
        let healed_for = self.now - self.plan.shape.span;
        let busy = self.nodes.iter().any(|n| !n.handlers.is_empty()) || self.open_calls > 0;
        match waits {
            None => {
                let since = *self.calm_since.get_or_insert(self.now);
                if !busy || self.now >= since + AFTERMATH {
                    self.done = true;
                    return;
                }
            }
            Some(text) => {
                self.calm_since = None;
                let bound = if self.databases.are_several() { BOUND_SEVERAL } else { BOUND };
                if healed_for > bound {
                    self.stuck = Some(text);
                    self.done = true;
                    return;
                }
            }
        }
        self.later(self.now + (50 + healed_for / 8).min(2_000), What::Look);
    }

    /// What still has to be done, if anything. Pauses and blocks are lifted, or accepted as a reason.
    fn waits(&mut self) -> Option<String> {
        let stats = match ready(self.store.inspect(Inspect::Stats)) {
            Ok(Inspected::Stats(stats)) => stats,
            other => panic!("{other:?}"),
        };
        let left = |s: &QueueStats| s.totals.buffered + s.totals.in_flight + s.totals.delayed;
        if stats.iter().all(|s| left(s) == 0) {
            return None;
        }
        let filter = LaneFilter { limit: 1_000, ..LaneFilter::default() };
        let lanes = match ready(self.store.inspect(Inspect::Lanes(filter))) {
            Ok(Inspected::Lanes(page)) => page.items,
            other => panic!("{other:?}"),
        };
        if self.enable_sources() {
            return Some(tell(&stats, &lanes));
        }
        if self.plan.shape.resume_all {
            self.resume(&stats, &lanes);
            return Some(tell(&stats, &lanes));
        }
        let paused = |s: &QueueStats| s.paused_by.is_some();
        let stands = |l: &LaneRow| {
            let queue = stats.iter().find(|s| s.tenant == l.lane.tenant && s.queue == l.lane.queue);
            l.token.is_none()
                && (l.paused_by.is_some() || l.blocked_by.is_some() || queue.is_some_and(paused))
        };
        let explained = lanes.iter().filter(|l| l.buffered + l.in_flight > 0).all(stands);
        // An event stays aside only when its lane is full, and a lane that stands still may be.
        let aside: u64 = stats.iter().map(|s| s.totals.delayed).sum();
        if explained && (aside == 0 || self.now > self.plan.shape.span + 10_000) {
            self.seen.saw(Sight::LeftWaiting);
            return None;
        }
        Some(tell(&stats, &lanes))
    }

    fn resume(&mut self, stats: &[QueueStats], lanes: &[LaneRow]) {
        if self.open_calls > 0 {
            return;
        }
        for queue in 0..self.plan.shape.queues.len() {
            let shape = &self.plan.shape.queues[queue];
            let own = stats.iter().find(|s| s.tenant == shape.tenant && s.queue == shape.name);
            if own.is_some_and(|s| s.paused_by.is_some()) {
                let action = ControlAction::ResumeQueue(self.scope(queue));
                let queue = self.queue_name(queue);
                self.put_right(action, Action::ResumeQueue { queue });
            }
        }
        for lane in lanes.iter().filter(|l| l.paused_by.is_some() || l.blocked_by.is_some()) {
            let name = self.recorder.lane(&lane.lane);
            self.put_right(ControlAction::ResumeLane(lane.lane.clone()), Action::ResumeLane { lane: name });
        }
    }
}

fn tell(stats: &[QueueStats], lanes: &[LaneRow]) -> String {
    let mut text = String::from("not everything was finished:");
    for s in stats {
        text += &format!("\n  queue {}: {:?}", s.queue, s.totals);
    }
    for l in lanes {
        text += &format!("\n  lane {}: {:?}, {}", l.lane, l.state, l.why);
    }
    text
}
