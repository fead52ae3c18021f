//! What there is at one moment, and how a thing that happens changes it: by the functions that the stores call.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use quell_core::batch::{RunId, WorkerId};
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName};
use quell_core::lane::{Attention, Lane};
use quell_core::lifecycle::{Change, RunState};
use quell_core::outcome::{Verdict, VerdictKind};
use quell_core::store::{
    AppendRequest, ClaimQueues, ClaimRequest, ControlAction, ExtendRequest, RunPolicy, SettleRequest, Settled,
};
use quell_core::window::Window;
use quell_core::working_set::WorkingSet;

use crate::view::View;
use crate::{Action, Clock, LEASE, UNIT};

/// Everything that can matter for what happens next.
#[derive(Clone)]
pub struct State {
    pub(crate) set: WorkingSet,
    /// In the order of what they do, because nothing depends on who is who.
    pub workers: Vec<Worker>,
    /// Events that were sent, heard of or not.
    pub sent: u8,
    /// Events whose senders have not heard of them.
    pub unheard: Vec<u8>,
    pub crashes: u8,
    pub pauses: u8,
    pub lost: u8,
    pub repeated: u8,
    /// Which promise the step that led here broke, if it did.
    pub broken: Option<&'static str>,
    /// What is compared, made once.
    view: View,
}

/// What a worker believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worker {
    Idle,
    /// It was handed a batch. Whether it still holds it is another question.
    Holding {
        run: RunId,
        token: u64,
    },
    /// It has settled so, and has not heard the answer, which was this.
    Unheard {
        run: RunId,
        token: u64,
        verdict: VerdictKind,
        state: RunState,
        change: Change,
    },
}

static LANE: LazyLock<LaneKey> = LazyLock::new(|| {
    let queue = QueueName::new("q").expect("a name of ours");
    LaneKey::new(queue, Key::new("k").expect("a key of ours"))
});

static WORKER: LazyLock<Arc<WorkerId>> =
    LazyLock::new(|| Arc::new(WorkerId { name: "w".into(), pid: 1, start: "a".into() }));

impl State {
    pub(crate) fn new(workers: u8) -> Self {
        let mut state = State {
            set: WorkingSet::default(),
            workers: vec![Worker::Idle; usize::from(workers)],
            sent: 0,
            unheard: Vec::new(),
            crashes: 0,
            pauses: 0,
            lost: 0,
            repeated: 0,
            broken: None,
            view: View::default(),
        };
        state.look();
        state
    }

    /// Makes of a state that was changed one that can be compared. Records that nobody can ask for any more are put
    /// away, because every state that is waiting to be searched carries its own.
    pub(crate) fn look(&mut self) {
        self.workers.sort_unstable();
        let workers = &self.workers;
        let asked = |token: u64| {
            let holds = |w: &Worker| matches!(w, Worker::Holding { token: t, .. } | Worker::Unheard { token: t, .. } if *t == token);
            workers.iter().any(holds)
        };
        self.set.audit.retain(|trail| asked(trail.record.token));
        self.view = View::of(self);
    }

    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.set.lanes.get(&*LANE).map(|inhabited| &*inhabited.lane)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.lane().is_some_and(|lane| lane.paused.is_some())
    }

    /// The moment at which a call comes, by its clock.
    fn at(&self, clock: Clock) -> Timestamp {
        let latest = self.lane().map_or(Timestamp::from_millis(1_000_000), |lane| lane.updated_at);
        match clock {
            Clock::Behind => latest.before(UNIT),
            Clock::Same => latest,
            Clock::Soon => latest.after(UNIT),
            Clock::Late => latest.after(LEASE + UNIT),
        }
    }

    /// Where each event is, in the order of the lane: its state, as far as its run has one.
    pub(crate) fn events(&self) -> impl Iterator<Item = (u64, Option<RunState>)> {
        let inhabited = self.set.lanes.get(&*LANE);
        let places =
            inhabited.into_iter().flat_map(|l| l.events.iter().map(move |(seq, kept)| (l, *seq, kept)));
        places.map(|(l, seq, kept)| {
            let live = l.lane.run_of(seq, kept.mark).map(|(_, state)| state);
            let ended = self
                .set
                .finished
                .iter()
                .find(|run| run.ended.run.count > 0 && run.ended.run.has(seq, kept.mark));
            (seq, live.or(ended.map(|run| run.ended.state)))
        })
    }

    pub(crate) fn perform(&mut self, action: Action, policy: &Arc<RunPolicy>, batch: u32) {
        match action {
            Action::Send { clock, lost } => {
                let event = self.sent;
                self.sent += 1;
                let answer = self.append(event, clock, batch, false);
                if answer.is_none_or(|duplicate| duplicate) {
                    self.broken = Some("a new event is accepted as new");
                }
                if lost {
                    self.lost += 1;
                    self.unheard.push(event);
                }
            }
            Action::Resend { event, clock } => {
                self.unheard.retain(|known| *known != event);
                if self.append(event, clock, batch, true) != Some(true) {
                    self.broken = Some("an event that was accepted unheard is known when it is repeated");
                }
            }
            Action::SendAgain { event, clock } => {
                self.repeated += 1;
                if self.append(event, clock, batch, false) != Some(true) {
                    self.broken = Some("an event that is known is a duplicate");
                }
            }
            Action::Claim { worker, clock, lost } => {
                let claimed = self.claim(clock, policy);
                match claimed {
                    // The lane is held by somebody who does not know it.
                    Some(_) if lost => self.lost += 1,
                    Some((run, token)) => self.workers[usize::from(worker)] = Worker::Holding { run, token },
                    None => {}
                }
            }
            Action::Extend { worker, clock } => self.extend(worker, clock),
            Action::Settle { worker, verdict, clock, lost } => self.settle(worker, verdict, clock, lost),
            Action::SettleAgain { worker, clock } => self.settle_again(worker, clock),
            Action::Crash { worker } => {
                self.crashes += 1;
                self.workers[usize::from(worker)] = Worker::Idle;
            }
            Action::Pause { clock } => {
                self.pauses += 1;
                self.control(clock, ControlAction::PauseLane(LANE.clone()));
            }
            Action::Resume { clock } => self.control(clock, ControlAction::ResumeLane(LANE.clone())),
            Action::Sweep { clock } => {
                self.set.reclaim(self.at(clock), &LANE);
            }
        }
    }

    /// Whether it was known; nothing when it was refused.
    fn append(&mut self, event: u8, clock: Clock, batch: u32, repeat: bool) -> Option<bool> {
        let id = EventId::new(format!("e{event}")).expect("an id of ours");
        let window = Window::quiet_capped(UNIT, UNIT * 2).max_events(batch);
        let policy = Arc::new(AppendPolicy { window, ..AppendPolicy::default() });
        let payload = Payload::from_json(b"1").expect("a number is JSON");
        let new = NewEvent::new(LANE.clone(), NewEventId::Given(id), payload, policy);
        let request = AppendRequest { events: vec![new], repeat };
        let answer = self.set.append(self.at(clock), &request).ok()?;
        Some(answer.receipts[0].duplicate)
    }

    /// What every store does in a claim: take back what is over, then hand out what is due.
    fn claim(&mut self, clock: Clock, policy: &Arc<RunPolicy>) -> Option<(RunId, u64)> {
        let now = self.at(clock);
        self.set.reclaim(now, &LANE);
        if !matches!(self.lane()?.attention(now), Attention::Again | Attention::Cut) {
            return None;
        }
        let request = ClaimRequest {
            worker: WORKER.clone(),
            queues: ClaimQueues::Any(policy.clone()),
            tenant: None,
            max: 1,
            reclaim: true,
            claim_id: None,
        };
        let batch = self.set.hand_out(now, &LANE, &request, policy);
        Some((batch.run_id, batch.token))
    }

    fn extend(&mut self, worker: u8, clock: Clock) {
        let Worker::Holding { run, token } = self.workers[usize::from(worker)] else { return };
        let request = ExtendRequest { run_id: run, token, lease: LEASE };
        let before = self.holder();
        let answer = self.set.extend(self.at(clock), &request);
        if answer.is_ok() != (before == Some((run, token))) {
            self.broken = Some("the holder and nobody else extends the lease");
        }
        if answer.is_err() {
            self.workers[usize::from(worker)] = Worker::Idle;
        }
    }

    /// Who holds the lane, by the lane.
    pub(crate) fn holder(&self) -> Option<(RunId, u64)> {
        let lane = self.lane()?;
        let current = lane.current.as_ref().filter(|run| run.state == RunState::Running)?;
        Some((lane.run_id(current.number), current.token))
    }

    fn settle(&mut self, worker: u8, verdict: Verdict, clock: Clock, lost: bool) {
        let Worker::Holding { run, token } = self.workers[usize::from(worker)] else { return };
        let holds = self.holder() == Some((run, token));
        let answer = self.end(run, token, verdict, clock);
        match &answer {
            Ok(settled) if !holds || settled.repeated => {
                self.broken = Some("only the holder settles, and once");
            }
            Err(_) if holds => self.broken = Some("the holder can settle"),
            _ => {}
        }
        let knows = match answer {
            Ok(settled) if lost => {
                self.lost += 1;
                let (state, change) = (settled.state, settled.change);
                Worker::Unheard { run, token, verdict: verdict.kind(), state, change }
            }
            _ => Worker::Idle,
        };
        self.workers[usize::from(worker)] = knows;
    }

    fn settle_again(&mut self, worker: u8, clock: Clock) {
        let Worker::Unheard { run, token, verdict, state, change } = self.workers[usize::from(worker)] else {
            return;
        };
        let verdict = match verdict {
            VerdictKind::Succeeded => Verdict::Succeeded,
            _ => Verdict::Retry { after: None },
        };
        let again = self.end(run, token, verdict, clock);
        if !again.is_ok_and(|s| s.repeated && s.state == state && s.change == change) {
            self.broken = Some("a settlement that is repeated gets the answer that was lost");
        }
        self.workers[usize::from(worker)] = Worker::Idle;
    }

    fn end(&mut self, run: RunId, token: u64, verdict: Verdict, clock: Clock) -> StoreResult<Settled> {
        let request = SettleRequest { delay: UNIT, ..SettleRequest::new(run, token, verdict) };
        self.set.settle(self.at(clock), request)
    }

    fn control(&mut self, clock: Clock, action: ControlAction) {
        if self.set.control(self.at(clock), "ada", action).is_err() {
            self.broken = Some("a lane can be paused and resumed");
        }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.view == other.view
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view.hash(state);
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { workers, sent, unheard, broken, .. } = self;
        writeln!(f, "sent {sent}, unheard {unheard:?}, workers {workers:?}, broken {broken:?}")?;
        writeln!(f, "events {:?}", self.events().collect::<Vec<_>>())?;
        write!(f, "{:?}", self.lane())
    }
}
