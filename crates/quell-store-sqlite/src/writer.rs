//! The one writer of a process: requests of many callers become one durable transaction.
//!
//! Callers put a request into a bounded queue and await the answer; the writer thread takes what has gathered while the
//! previous commit was being made durable, and commits it together. That is where the speed comes from: the cost of an
//! fsync is shared by everybody who waited for it. Nobody is answered before the commit has returned.
//!
//! Extends and settles go first and claims last, so a heartbeat never queues behind appends and a claim sees everything
//! of its group. A request refused for its own fault has changed nothing. If the transaction definitely failed, each
//! request is tried alone once; if the commit's fate is unknown, everyone is told so and the store refuses to go on,
//! because a failed fsync must not be tried again.
//!
//! Several processes take turns (`turn.rs`). Hand-written because the queue, the order and the three answers are the product.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use quell_core::copy::sealed;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::limits;
use quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, ExtendRequest, Extended, Held,
    HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer, StepRequest, SweepRequest,
    Swept,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::checkpoint::Checkpointer;
use crate::error::{at_commit, not_done};
use crate::turn::Turn;
use crate::tx::{CommitError, Names, Statements, Tx};
use crate::wake::Bell;
use crate::{
    append, claim, clock, control, copy, erase, extend, hold, settle, shelves, sources, step, sweep,
    transact, tx,
};

/// Requests of one transaction: bounds how long it holds the file and how long an urgent request waits.
const GROUP_REQUESTS_MAX: usize = 1_024;
/// The pause between two tries to clear what an erase has left: a reader that is in the way stays for a while.
const CLEAR_PAUSE_MILLIS: i64 = 2_000;
/// Events of one transaction, for the same reason.
const GROUP_EVENTS_MAX: usize = 4_096;

pub(crate) enum Request {
    Append(AppendRequest),
    Claim(ClaimRequest),
    Extend(ExtendRequest),
    Hold(HoldRequest),
    Step(StepRequest),
    Source(SourceRequest),
    Settle(SettleRequest),
    Shelf(ShelfRequest),
    Sweep(SweepRequest),
    Control(Control),
    Transact(transact::Transaction),
    Copy(copy::Change),
    #[cfg(feature = "test-clock")]
    MoveClock(i64),
}

pub(crate) enum Answer {
    Append(Appended),
    Claim(Claimed),
    Extend(Extended),
    Hold(Held),
    Step(StepAnswer),
    Source(SourceAnswer),
    Settle(Settled),
    Shelf(ShelfAnswer),
    Sweep(Swept),
    Control(Controlled),
    Transact,
    Copy,
    #[cfg(feature = "test-clock")]
    MoveClock,
}

impl Request {
    /// The place in the group: holders first, claimers last.
    fn rank(&self) -> u8 {
        match self {
            Request::Extend(_) => 0,
            Request::Hold(_) | Request::Step(_) | Request::Source(_) | Request::Settle(_) => 1,
            Request::Control(_) | Request::Shelf(_) => 2,
            Request::Append(_) | Request::Transact(_) | Request::Copy(_) => 3,
            Request::Sweep(_) => 4,
            Request::Claim(_) => 5,
            #[cfg(feature = "test-clock")]
            Request::MoveClock(_) => 6,
        }
    }

    /// Whether it removes content for good.
    fn erases(&self) -> bool {
        matches!(self, Request::Control(control) if erase::erases(&control.action))
    }

    /// Whether it is done on a sealed store, too.
    fn passes_seal(&self) -> bool {
        match self {
            Request::Copy(_) => true,
            Request::Transact(transaction) => transaction.passes_seal,
            #[cfg(feature = "test-clock")]
            Request::MoveClock(_) => true,
            _ => false,
        }
    }

    fn events(&self) -> usize {
        match self {
            Request::Append(request) => request.events.len(),
            Request::Copy(change) => change.rows(),
            _ => 1,
        }
    }
}

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const GIVEN_UP: u8 = 2;

struct Job {
    request: Request,
    reply: oneshot::Sender<StoreResult<Answer>>,
    /// Whether the writer has begun it: before that its caller may still give up and know that nothing was done.
    progress: Arc<AtomicU8>,
}

impl Job {
    /// Takes it on, unless its caller gave up or went away: then nothing of it is done.
    fn begin(&self) -> bool {
        let begun = self.progress.compare_exchange(WAITING, STARTED, Ordering::SeqCst, Ordering::SeqCst);
        (begun.is_ok() || begun == Err(STARTED)) && !self.reply.is_closed()
    }
}

/// The queue between callers and the writer thread.
pub(crate) struct Inbox {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    poisoned: AtomicBool,
}

#[derive(Default)]
struct Jobs {
    urgent: VecDeque<Job>,
    ordinary: VecDeque<Job>,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Inbox { jobs: Mutex::default(), arrived: Condvar::new(), poisoned: AtomicBool::new(false) })
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().expect("no panic happens while the inbox is locked")
    }

    /// Sends a request to the writer and awaits its durable answer.
    pub(crate) async fn call(&self, request: Request) -> StoreResult<Answer> {
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(poisoned());
        }
        let (reply, mut answer) = oneshot::channel();
        let progress = Arc::new(AtomicU8::new(WAITING));
        let urgent = request.rank() <= 1;
        {
            let mut jobs = self.jobs();
            if jobs.closed {
                return Err(StoreError::unavailable("the store is closed"));
            }
            if !urgent && jobs.ordinary.len() >= limits::STORE_QUEUE_MAX {
                return Err(StoreError::unavailable(
                    "too many requests wait for the store; send again later",
                ));
            }
            let job = Job { request, reply, progress: progress.clone() };
            if urgent { jobs.urgent.push_back(job) } else { jobs.ordinary.push_back(job) }
        }
        self.arrived.notify_one();
        match tokio::time::timeout(limits::STORE_CALL_DEADLINE, &mut answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(gone())),
            Err(_) => {
                match progress.compare_exchange(WAITING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => Err(StoreError::unavailable(
                        "the store did not get to this request in time (another process holds the file); nothing was done",
                    )),
                    // It has begun: only its answer tells what became of it.
                    Err(_) => answer.await.unwrap_or_else(|_| Err(gone())),
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        self.jobs().closed = true;
        self.arrived.notify_all();
    }

    /// Takes the next group, in the order in which it will be done. Nothing when the store is closed and empty.
    fn next_group(&self) -> Option<Vec<Job>> {
        let mut jobs = self.jobs();
        while jobs.urgent.is_empty() && jobs.ordinary.is_empty() {
            if jobs.closed {
                return None;
            }
            jobs = self.arrived.wait(jobs).expect("no panic happens while the inbox is locked");
        }
        let mut group = Vec::new();
        let mut events = 0;
        while group.len() < GROUP_REQUESTS_MAX && events < GROUP_EVENTS_MAX {
            let Some(job) = jobs.urgent.pop_front().or_else(|| jobs.ordinary.pop_front()) else { break };
            events += job.request.events();
            group.push(job);
        }
        group.sort_by_key(|job| job.request.rank());
        Some(group)
    }
}

fn poisoned() -> StoreError {
    let detail =
        "the disk failed during an earlier commit; restart the process, then repeat what was unknown";
    StoreError::new(ErrorKind::Corrupt, detail)
}

fn gone() -> StoreError {
    StoreError::new(ErrorKind::Unknown, "the store was closed while the request was under way")
}

/// The writer thread.
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) turn: Turn,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) statements: Arc<std::sync::atomic::AtomicU64>,
    pub(crate) checkpointer: Checkpointer,
    /// What an erase has left to do, perhaps in an earlier process.
    pub(crate) left: Option<erase::Left>,
}

/// What a group came to.
enum Ended {
    Answers(Vec<StoreResult<Answer>>),
    /// Nothing was done; each may be tried alone.
    Failed(StoreError),
    Unknown(StoreError),
}

impl Writer {
    pub(crate) fn run(self) {
        let _closing = CloseAtEnd(self.inbox.clone());
        let Writer { connection, turn, inbox, bell, statements, checkpointer, left } = self;
        let prepared = Statements::new(&connection);
        let names = Names::default();
        let mut turns = Turns {
            connection: &connection,
            prepared,
            names,
            turn,
            inbox,
            bell,
            checkpointer,
            left,
            clear_at: 0,
        };
        while let Some(group) = turns.inbox.next_group() {
            if !group.is_empty() {
                statements.fetch_add(1, Ordering::Relaxed);
                turns.take(group);
            }
        }
    }
}

/// However the writer ends, also by a panic: nobody waits for it any longer.
struct CloseAtEnd(Arc<Inbox>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        let mut jobs = self.0.jobs();
        jobs.closed = true;
        jobs.urgent.clear();
        jobs.ordinary.clear();
    }
}

/// What one group after the other is done with.
struct Turns<'c> {
    connection: &'c Connection,
    prepared: Statements<'c>,
    names: Names,
    turn: Turn,
    inbox: Arc<Inbox>,
    bell: Arc<Bell>,
    checkpointer: Checkpointer,
    left: Option<erase::Left>,
    /// When that is tried again, by the boot clock.
    clear_at: i64,
}

impl Turns<'_> {
    /// A caller's closure gets a transaction of its own: whatever it does, nothing of others is rolled back with it. What
    /// a seal does not stop is never in one transaction with what it stops.
    fn take(&mut self, group: Vec<Job>) {
        let (own, shared): (Vec<Job>, Vec<Job>) =
            group.into_iter().partition(|job| matches!(job.request, Request::Transact(_)));
        let (passing, shared): (Vec<Job>, Vec<Job>) =
            shared.into_iter().partition(|job| job.request.passes_seal());
        for together in [shared, passing] {
            if !together.is_empty() {
                self.take_together(together);
            }
        }
        own.into_iter().for_each(|job| self.take_together(vec![job]));
    }

    fn take_together(&mut self, group: Vec<Job>) {
        if self.inbox.poisoned.load(Ordering::SeqCst) {
            group.into_iter().for_each(|job| reply(job, Err(poisoned())));
            return;
        }
        let Some(mut group) = self.answer_idle_claim(group) else { return };
        match self.transaction(&mut group) {
            Ended::Answers(answers) => {
                group.into_iter().zip(answers).for_each(|(job, answer)| reply(job, answer))
            }
            Ended::Failed(error) if group.len() == 1 => {
                group.into_iter().for_each(|job| reply(job, Err(error.clone())));
            }
            Ended::Failed(_) => group.into_iter().for_each(|job| self.alone(job)),
            Ended::Unknown(error) => {
                self.poison(&error);
                group.into_iter().for_each(|job| reply(job, Err(error.clone())));
            }
        }
    }

    /// The group failed, perhaps because of one request: each is tried alone, once.
    fn alone(&mut self, job: Job) {
        if self.inbox.poisoned.load(Ordering::SeqCst) {
            return reply(job, Err(poisoned()));
        }
        let mut group = vec![job];
        let ended = self.transaction(&mut group);
        let Some(job) = group.pop() else { return };
        let answer = match ended {
            Ended::Answers(mut answers) => answers.pop().expect("one request has one answer"),
            Ended::Failed(error) => Err(error),
            Ended::Unknown(error) => {
                self.poison(&error);
                Err(error)
            }
        };
        reply(job, answer);
    }

    fn poison(&self, error: &StoreError) {
        tracing::error!(%error, "the store stops: a commit's fate is unknown");
        self.inbox.poisoned.store(true, Ordering::SeqCst);
    }

    /// A claim that finds nothing needs neither the lock nor a transaction: idle workers disturb nobody.
    fn answer_idle_claim(&mut self, group: Vec<Job>) -> Option<Vec<Job>> {
        let [Job { request: Request::Claim(request), .. }] = group.as_slice() else { return Some(group) };
        let look = || -> rusqlite::Result<Option<Claimed>> {
            let facts = tx::facts(self.connection)?;
            if facts.sealed.is_some() {
                return Ok(None);
            }
            claim::nothing_due(self.connection, request, facts.now)
        };
        match look() {
            Ok(Some(claimed)) => {
                group.into_iter().for_each(|job| reply(job, Ok(Answer::Claim(claimed.clone()))));
                None
            }
            Ok(None) | Err(_) => Some(group),
        }
    }

    /// Waits for this process's turn, then does what is still wanted of the group in one transaction.
    fn transaction(&mut self, group: &mut Vec<Job>) -> Ended {
        if let Err(error) = self.turn.take() {
            return Ended::Failed(StoreError::unavailable(format!("cannot lock the side file: {error}")));
        }
        let erasing = group.iter().any(|job| job.request.erases());
        let overwrite = |all| if erasing { erase::overwrite_all(self.connection, all) } else { Ok(()) };
        let (ended, wake) = match overwrite(true) {
            Ok(()) => self.locked(group),
            Err(error) => (Ended::Failed(not_done(&error)), false),
        };
        if let Err(error) = overwrite(false) {
            tracing::warn!(%error, "deletes stay slower than they need to be");
        }
        self.clear(erasing);
        if let Err(error) = self.turn.give_up() {
            tracing::error!(%error, "unlock of the side file");
        }
        if wake {
            self.bell.ring();
        }
        self.checkpointer.committed();
        ended
    }

    /// Does what an erase has left to do. While a long reader is in the way, others do not wait for it each time.
    fn clear(&mut self, erasing: bool) {
        let Some(left) = self.left else { return };
        let now = clock::boot_millis();
        if !erasing && now < self.clear_at {
            return;
        }
        self.left = erase::after_erase(self.connection, left);
        self.clear_at = clock::boot_millis() + CLEAR_PAUSE_MILLIS;
    }

    fn locked(&mut self, group: &mut Vec<Job>) -> (Ended, bool) {
        let mut tx = match Tx::begin(&mut self.prepared, &mut self.names) {
            Ok(tx) => tx,
            Err(error) => return (Ended::Failed(not_done(&error)), false),
        };
        // Only now is a request begun: whoever gave up while others held the file knows that nothing was done.
        group.retain(Job::begin);
        if let Some(by) = tx.sealed.take()
            && group.iter().any(|job| !job.request.passes_seal())
        {
            tx.rollback();
            let refused = || Err(sealed(&by));
            return (Ended::Answers(group.iter().map(|_| refused()).collect()), false);
        }
        let mut answers = Vec::with_capacity(group.len());
        for job in group.iter() {
            let answer = perform(&mut tx, &job.request);
            // An error of the database, unlike a refusal, may have left half a request behind.
            // A closure that was refused has perhaps written something of its own.
            if let Err(error) = &answer
                && (matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Corrupt)
                    || matches!(job.request, Request::Transact(_)))
            {
                let error = error.clone();
                tx.rollback();
                return (Ended::Failed(error), false);
            }
            answers.push(answer);
        }
        let changed = |answer: &StoreResult<Answer>| matches!(answer, Ok(Answer::Control(c)) if c.changed);
        let erased =
            tx.erased && group.iter().zip(&answers).any(|(job, a)| job.request.erases() && changed(a));
        if erased && let Err(error) = erase::remember(&mut tx) {
            tx.rollback();
            return (Ended::Failed(not_done(&error)), false);
        }
        match tx.commit() {
            Ok(wake) => {
                if erased {
                    self.left = Some(erase::Left::All);
                }
                (Ended::Answers(answers), wake)
            }
            Err(CommitError::Before(error)) => (Ended::Failed(not_done(&error)), false),
            Err(CommitError::During(error)) => {
                let error = at_commit(&error);
                let ended = if error.is_unknown() { Ended::Unknown(error) } else { Ended::Failed(error) };
                (ended, false)
            }
        }
    }
}

fn perform(tx: &mut Tx<'_, '_>, request: &Request) -> StoreResult<Answer> {
    match request {
        Request::Append(request) => append::append(tx, request).map(Answer::Append),
        Request::Claim(request) => claim::claim(tx, request).map(Answer::Claim),
        Request::Extend(request) => extend::extend(tx, request).map(Answer::Extend),
        Request::Hold(request) => hold::hold(tx, request).map(Answer::Hold),
        Request::Step(request) => step::step(tx, request).map(Answer::Step),
        Request::Source(request) => sources::source(tx, request).map(Answer::Source),
        Request::Settle(request) => settle::settle(tx, request).map(Answer::Settle),
        Request::Shelf(request) => shelves::shelf(tx, request).map(Answer::Shelf),
        Request::Sweep(request) => sweep::sweep(tx, request).map(Answer::Sweep),
        Request::Control(request) => control::control(tx, request).map(Answer::Control),
        Request::Transact(request) => transact::transact(tx, request).map(|()| Answer::Transact),
        Request::Copy(change) => copy::perform(tx, change).map(|()| Answer::Copy),
        #[cfg(feature = "test-clock")]
        Request::MoveClock(millis) => {
            let sql = "UPDATE meta SET test_offset = test_offset + ?1";
            tx.wake = true;
            let moved = tx.execute(sql, [rusqlite::types::Value::Integer(*millis)]);
            moved.map(|_| Answer::MoveClock).map_err(|e| not_done(&e))
        }
    }
}

fn reply(job: Job, answer: StoreResult<Answer>) {
    // A caller that went away has its answer in the store; nothing is lost by not telling it.
    let _ = job.reply.send(answer);
}
