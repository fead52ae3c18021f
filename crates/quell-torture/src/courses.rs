//! The queues of the kill loop: every policy of the contract once, on few lanes, so that processes meet.

use std::sync::Arc;
use std::time::Duration;

use quell_check::history::{self, Op, Policy, Record};
use quell_core::event::{AppendPolicy, LaneKey, NewEvent, NewEventId, Overflow, Payload};
use quell_core::lane::{DuringRun, Notify, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::store::{ClaimQueue, RunPolicy};
use quell_core::window::{Window, WindowPolicy};
use serde_json::json;

use crate::record::same_word;
use crate::requests::{id, lane, queue};

/// Lanes of each queue.
pub(crate) const LANES: u64 = 2;
/// Short, so that a killed worker's lane comes back while the loop still runs.
pub(crate) const LEASE: Duration = Duration::from_millis(400);
const ATTEMPTS: u32 = 6;
/// Who is told how runs of the first queue ended.
const NOTICES: &str = "notices";

/// One queue with its rules.
pub(crate) struct Course {
    pub(crate) name: &'static str,
    pub(crate) append: Arc<AppendPolicy>,
    pub(crate) run: Arc<RunPolicy>,
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Every course, the queue of notices last: nobody sends there.
pub(crate) fn courses() -> Vec<Course> {
    let quiet = Window::quiet_capped(ms(5), ms(20));
    let rules = RunRules::default;
    let newer = || RunRules { retry_with: RetryWith::Newer, ..rules() };
    let during = |during_run| RunRules { during_run, max_interrupts: 2, ..newer() };
    let failed = |on_failed| RunRules { on_failed, ..rules() };
    let mut all = vec![
        course("plain", Window::none().max_events(3), rules()),
        course("newer", quiet, newer()),
        course("bisect", Window::fixed(ms(10)).max_bytes(400), failed(OnFailed::Bisect)),
        course("interrupt", quiet, during(DuringRun::Interrupt)),
        course("gate", Window::quiet_capped(ms(3), ms(15)), during(DuringRun::Gate)),
        course("block", Window::none(), failed(OnFailed::Block)),
        course("full", Window::none(), rules()),
        course(NOTICES, Window::none(), rules()),
    ];
    let policy = AppendPolicy { window: Window::none(), ..AppendPolicy::default() };
    let on = vec![RunState::Succeeded, RunState::Failed];
    let told = Notify { queue: queue(NOTICES), on, policy };
    all[0].run = Arc::new(RunPolicy { notify: Some(Arc::new(told)), ..(*all[0].run).clone() });
    let full = &mut all[6].append;
    *full = Arc::new(AppendPolicy { lane_events: 6, overflow: Overflow::DropOldest, ..(**full).clone() });
    all
}

fn course(name: &'static str, window: Window, rules: RunRules) -> Course {
    let append = AppendPolicy { window, lane_events: 2_000, ..AppendPolicy::default() };
    let run = RunPolicy { lease: LEASE, max_attempts: ATTEMPTS, rules, ..RunPolicy::default() };
    Course { name, append: Arc::new(append), run: Arc::new(run) }
}

impl Course {
    pub(crate) fn lane(&self, n: u64) -> LaneKey {
        lane(self.name, &format!("lane-{n}"))
    }

    pub(crate) fn event(&self, n: u64, name: &str) -> NewEvent {
        let payload = Payload::of(&json!({ "canary": name }));
        NewEvent::new(self.lane(n), NewEventId::Given(id(name)), payload, self.append.clone())
    }

    pub(crate) fn claim(&self) -> ClaimQueue {
        ClaimQueue::new(queue(self.name), self.run.clone(), 2)
    }
}

/// What the checker has to know before the first event.
pub(crate) fn policies() -> Vec<Record> {
    let policy = |course: &Course| {
        let (window, rules) = (course.append.window, course.run.rules);
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        Policy {
            window: match window.policy {
                WindowPolicy::None => history::Window::None,
                WindowPolicy::Fixed { wait } => history::Window::Fixed { wait_ms: millis(wait) },
                WindowPolicy::Quiet { quiet, max_wait } => {
                    history::Window::Quiet { quiet_ms: millis(quiet), max_wait_ms: millis(max_wait) }
                }
            },
            max_events: u64::from(window.max_events),
            max_bytes: window.max_bytes,
            during_run: same_word(&rules.during_run),
            max_interrupts: rules.max_interrupts,
            retry_with: same_word(&rules.retry_with),
            on_failed: same_word(&rules.on_failed),
            max_attempts: course.run.max_attempts,
            lease_ms: millis(LEASE),
            ..Policy::plain(course.name)
        }
    };
    courses().iter().map(|course| Record::fact(0, Op::Policy(Box::new(policy(course))))).collect()
}
