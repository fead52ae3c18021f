//! A caller that keeps the contract, before a store whose calls fail as they are told to.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::{Batch, WorkerId};
use quell_core::clock::{ManualClock, Timestamp};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::NewEvent;
use quell_core::inspect::{AuditFilter, Inspect, Inspected, LaneFilter, RunFilter};
use quell_core::memory::MemoryStore;
use quell_core::store::*;
use quell_sim::ready;

use super::stories::queue;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Definitely not done.
    Refused,
    /// Unknown, and not done.
    LostBefore,
    /// Unknown, and done.
    LostAfter,
}

pub(crate) struct Caller {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    faults: Vec<(usize, Fault)>,
    calls: usize,
    claims: u32,
    guesses: bool,
}

impl Caller {
    pub(crate) fn new(faults: &[(usize, Fault)]) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_767_600_000_000)));
        let store = MemoryStore::new(clock.clone());
        Caller { store, clock, faults: faults.to_vec(), calls: 0, claims: 0, guesses: false }
    }

    /// Never says that it repeats itself.
    pub(crate) fn guessing(faults: &[(usize, Fault)]) -> Self {
        Caller { guesses: true, ..Caller::new(faults) }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    pub(crate) fn wait(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// One call, with the fault that is meant for it. The second value is the answer that nobody heard.
    fn call<T>(
        &mut self,
        work: impl FnOnce(&MemoryStore) -> StoreResult<T>,
    ) -> (StoreResult<T>, Option<StoreResult<T>>) {
        let number = self.calls;
        self.calls += 1;
        let fault = self.faults.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        let unknown = || Err(StoreError::new(ErrorKind::Unknown, "the answer is lost"));
        match fault {
            None => (work(&self.store), None),
            Some(Fault::Refused) => (Err(StoreError::unavailable("not now")), None),
            Some(Fault::LostBefore) => (unknown(), None),
            Some(Fault::LostAfter) => (unknown(), Some(work(&self.store))),
        }
    }

    /// Repeats a call until it is answered; the answer must be `like` the first one that was lost, if one was.
    fn until_answered<T: Debug>(
        &mut self,
        work: impl Fn(&MemoryStore, bool) -> StoreResult<T>,
        like: impl Fn(&T, &T) -> bool,
    ) -> StoreResult<T> {
        let (mut unknown, mut lost): (bool, Option<StoreResult<T>>) = (false, None);
        for _ in 0..50 {
            let (answer, unheard) = self.call(|store| work(store, unknown));
            lost = lost.or(unheard);
            match answer {
                Err(error) if error.is_temporary() => unknown |= error.is_unknown(),
                answer => {
                    let same = match (&lost, &answer) {
                        (None, _) => true,
                        (Some(Ok(first)), Ok(second)) => like(first, second),
                        (Some(Err(first)), Err(second)) => first.kind == second.kind,
                        _ => false,
                    };
                    assert!(same, "the lost answer was {lost:?}, the repeated call got {answer:?}");
                    return answer;
                }
            }
        }
        panic!("no answer after fifty calls")
    }

    pub(crate) fn append(&mut self, events: &[NewEvent]) -> StoreResult<Appended> {
        let same = |a: &Appended, b: &Appended| {
            let pairs = a.receipts.iter().zip(&b.receipts);
            pairs.into_iter().all(|(a, b)| {
                // What was new is answered as a duplicate of itself, in the same place.
                b.duplicate && (&a.event_id, a.seq, a.run_id) == (&b.event_id, b.seq, b.run_id)
            })
        };
        let guesses = self.guesses;
        self.until_answered(
            |store, repeat| {
                ready(store.append(AppendRequest { events: events.to_vec(), repeat: repeat && !guesses }))
            },
            same,
        )
    }

    /// Claims with an id of its own.
    pub(crate) fn claim(&mut self, max: usize) -> Vec<Batch> {
        self.claims += 1;
        let id = format!("claim-{}", self.claims);
        let worker = Arc::new(WorkerId { name: "w".into(), pid: 1, start: "a".into() });
        let request = move || ClaimRequest {
            worker: worker.clone(),
            queues: ClaimQueues::Listed(queue::all()),
            tenant: None,
            max,
            reclaim: true,
            claim_id: Some(id.clone()),
        };
        let claimed = self.until_answered(
            |store, _| ready(store.claim(request())),
            |a: &Claimed, b: &Claimed| a.batches == b.batches,
        );
        claimed.expect("a claim is never refused for good").batches
    }

    pub(crate) fn claim_one(&mut self) -> Batch {
        let mut batches = self.claim(1);
        assert_eq!(batches.len(), 1, "one lane is due");
        batches.remove(0)
    }

    pub(crate) fn extend(&mut self, batch: &Batch) -> StoreResult<Extended> {
        let (run_id, token, lease) = (batch.run_id, batch.token, Duration::from_secs(10));
        self.until_answered(
            |store, _| ready(store.extend(ExtendRequest { run_id, token, lease })),
            |a, b| a == b,
        )
    }

    pub(crate) fn hold(&mut self, batch: &Batch, if_head: bool) -> StoreResult<Held> {
        let if_head = if_head.then_some(batch.head_seq);
        let request = HoldRequest { run_id: batch.run_id, token: batch.token, if_head };
        self.until_answered(|store, _| ready(store.hold(request.clone())), |a, b| a == b)
    }

    pub(crate) fn step(&mut self, batch: &Batch, name: &str, action: StepAction) -> StoreResult<StepAnswer> {
        let (run_id, token, name) = (batch.run_id, batch.token, name.to_owned());
        let request = StepRequest { run_id, token, name, action };
        let same = |a: &StepAnswer, b: &StepAnswer| match (a, b) {
            (StepAnswer::Done { value: a, .. }, StepAnswer::Done { value: b, .. }) => a == b,
            (a, b) => a == b,
        };
        self.until_answered(|store, _| ready(store.step(request.clone())), same)
    }

    pub(crate) fn settle(&mut self, request: &SettleRequest) -> StoreResult<Settled> {
        let same = |a: &Settled, b: &Settled| {
            b.repeated && (a.state, a.change, a.next_at) == (b.state, b.change, b.next_at)
        };
        self.until_answered(|store, _| ready(store.settle(request.clone())), same)
    }

    pub(crate) fn sweep(&mut self, retention: Option<Duration>) -> StoreResult<Swept> {
        let request = SweepRequest { reclaim: true, retention };
        self.until_answered(|store, _| ready(store.sweep(request.clone())), |_, _| true)
    }

    /// An operator's hand: done once, and a repetition changes nothing more.
    pub(crate) fn control(&mut self, action: ControlAction) -> StoreResult<Controlled> {
        let control = Control { actor: "ada".into(), action };
        self.until_answered(
            |store, _| ready(store.control(control.clone())),
            |a: &Controlled, b: &Controlled| !b.changed || !a.changed,
        )
    }

    fn read(&self, what: Inspect) -> Inspected {
        ready(self.store.inspect(what)).expect("the memory store can be read")
    }

    /// The store's own equation holds.
    pub(crate) fn assert_sound(&self, text: &str) {
        let Inspected::Verify(verified) = self.read(Inspect::Verify) else { panic!("not what was asked") };
        assert!(verified.problems.is_empty(), "{text}: {:?}", verified.problems);
    }

    /// Everything the store tells, one fact per line.
    pub(crate) fn picture(&self) -> String {
        let Inspected::Runs(runs) =
            self.read(Inspect::Runs(RunFilter { limit: 1_000, ..Default::default() }))
        else {
            panic!("not what was asked")
        };
        let mut lines = Vec::new();
        for row in runs.items {
            let Inspected::Run(Some(detail)) = self.read(Inspect::Run(row.id)) else {
                panic!("a listed run is there")
            };
            lines.push(format!("run {:?}", detail.row));
            lines.extend(detail.list.iter().map(|e| format!("event {e:?} {}", e.payload.as_str())));
            lines.extend(detail.steps.iter().map(|s| format!("step {s:?}")));
        }
        let filter = AuditFilter { limit: 1_000, ..Default::default() };
        let Inspected::Audit(audit) = self.read(Inspect::Audit(filter)) else { panic!("not what was asked") };
        lines.extend(audit.items.iter().map(|a| format!("audit {a:?}")));
        let Inspected::Stats(stats) = self.read(Inspect::Stats) else { panic!("not what was asked") };
        lines.extend(stats.iter().map(|s| format!("stats {s:?}")));
        let filter = LaneFilter { idle: true, limit: 1_000, ..Default::default() };
        let Inspected::Lanes(lanes) = self.read(Inspect::Lanes(filter)) else { panic!("not what was asked") };
        lines.extend(lanes.items.iter().map(|l| format!("lane {l:?}")));
        let Inspected::Schedules(schedules) = self.read(Inspect::Schedules) else {
            panic!("not what was asked")
        };
        lines.extend(schedules.iter().map(|s| format!("schedule {s:?}")));
        lines.join("\n")
    }
}
