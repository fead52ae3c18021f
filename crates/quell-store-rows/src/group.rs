//! Groups: calls that arrive while a transaction is under way are done together in the next one.
//!
//! Grouping matters more than any schema: the commit is paid once. Each verb has groups of its own, so appends, settles
//! and extends never queue behind one another, and two of them under way at once, so that one is decided and sent while
//! the other waits for the disk. A call waits for the end of a group that has its lane, and for nothing else. A group whose
//! transaction definitely failed is taken apart and each call is tried alone, so that none suffers for another; an unknown end is
//! told to each caller, who repeats by id or token.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::limits;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::append::Answers;
use crate::clock;
use crate::repeats::Repeats;
use crate::rows::{Patience, RowsResult, Trouble};

/// One verb, done for several calls at once.
#[async_trait]
pub(crate) trait Grouped: Send + Sync + 'static {
    type Request: Send + Sync + 'static;
    type Answer: Send + 'static;

    /// Calls for the same lane have the same place.
    fn place(request: &Self::Request) -> u64;

    /// What a call weighs; a group weighs at most [`Grouped::MOST`].
    fn weight(request: &Self::Request) -> usize;
    const MOST: usize;

    async fn perform(
        &self,
        requests: &[&Self::Request],
        patience: Patience,
    ) -> RowsResult<Answers<Self::Answer>>;
}

type Call<G> = (<G as Grouped>::Request, oneshot::Sender<StoreResult<<G as Grouped>::Answer>>, Instant);

/// A call beside the groups.
type Waiting<G> = (<G as Grouped>::Request, oneshot::Sender<StoreResult<<G as Grouped>::Answer>>);

/// Transactions of one verb that wait for busy lanes at once: each holds a connection meanwhile. As many calls may wait for one
/// of these places as for a group; beyond that the caller gets "unavailable" at once.
const PATIENT_AT_ONCE: usize = 2;
/// Groups of one verb under way at once. More than two make the groups smaller and the server no busier.
const AT_ONCE: usize = 2;
/// How often the callers of the last group get a turn before the next group leaves: see [`Served::gather`].
const TURNS: usize = 32;
/// How often calls whose lanes are busy are tried together before each waits for its own: a claim has a thousand lanes locked
/// until it commits, and their ends one by one would be a thousand transactions.
const ROUNDS: u32 = 4;
/// Before the first of these rounds; each later one waits twice as long. A claim that walks over many lanes takes a few times this.
const ROUND: Duration = Duration::from_millis(2);
/// Conflicts of one group before it is taken apart: some lane in it is changed all the time.
const CONFLICTS_MAX: u32 = 3;

/// The way in to a group.
pub(crate) struct Entrance<G: Grouped>(mpsc::Sender<Call<G>>);

/// A verb with the places for transactions that wait.
struct Counter<G> {
    verb: G,
    places: Semaphore,
    waiting: AtomicUsize,
}

impl<G: Grouped> Entrance<G> {
    pub(crate) fn open(verb: G) -> Self {
        let counter = Counter { verb, places: Semaphore::new(PATIENT_AT_ONCE), waiting: AtomicUsize::new(0) };
        let (sender, calls) = mpsc::channel(limits::STORE_QUEUE_MAX);
        tokio::spawn(Served::new(Arc::new(counter), calls).run());
        Entrance(sender)
    }

    pub(crate) async fn call(&self, request: G::Request) -> StoreResult<G::Answer> {
        let (answer, answered) = oneshot::channel();
        match self.0.try_send((request, answer, clock::now())) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                let max = limits::STORE_QUEUE_MAX;
                return Err(StoreError::unavailable(format!("{max} calls wait for the store already")));
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return Err(StoreError::unavailable("the store is closed"));
            }
        }
        answered.await.unwrap_or_else(|_| {
            let text = "the store gave no answer; repeat with the same id or token";
            Err(StoreError::new(ErrorKind::Unknown, text))
        })
    }
}

/// The calls of one verb: those that wait, and the groups that are under way.
struct Served<G: Grouped> {
    counter: Arc<Counter<G>>,
    calls: mpsc::Receiver<Call<G>>,
    /// With their places, in the order in which they came; as many as there are places at the entrance.
    waiting: VecDeque<(u64, Call<G>)>,
    /// Whether one of them could leave at once. Kept, because thousands may wait for one lane, and one more comes each moment.
    free: bool,
    groups: JoinSet<()>,
    under_way: HashMap<Id, UnderWay>,
    /// How many calls the group had that ended last.
    last: usize,
}

struct UnderWay {
    /// The places of its calls.
    places: HashSet<u64>,
    calls: usize,
}

impl<G: Grouped> Served<G> {
    fn new(counter: Arc<Counter<G>>, calls: mpsc::Receiver<Call<G>>) -> Self {
        let (waiting, groups, under_way) = (VecDeque::new(), JoinSet::new(), HashMap::new());
        Served { counter, calls, waiting, free: false, groups, under_way, last: 0 }
    }

    async fn run(mut self) {
        loop {
            self.take_in();
            while self.groups.len() < AT_ONCE && self.free {
                self.gather().await;
                self.leave();
            }
            let room = self.waiting.len() < limits::STORE_QUEUE_MAX;
            tokio::select! {
                call = self.calls.recv(), if room && !self.calls.is_closed() || self.groups.is_empty() => match call {
                    Some(call) => self.admit(call),
                    None if self.groups.is_empty() => return,
                    // The last groups are still under way.
                    None => {}
                },
                Some(ended) = self.groups.join_next_with_id(), if !self.groups.is_empty() => self.note(ended),
            }
        }
    }

    /// Calls that have come meanwhile.
    fn take_in(&mut self) {
        while self.waiting.len() < limits::STORE_QUEUE_MAX {
            let Ok(call) = self.calls.try_recv() else { return };
            self.admit(call);
        }
    }

    fn admit(&mut self, call: Call<G>) {
        let place = G::place(&call.0);
        self.free |= !self.is_taken(place);
        self.waiting.push_back((place, call));
    }

    fn note(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(
                    "a group of calls ended by a panic; its callers were told that the outcome is unknown"
                );
                error.id()
            }
        };
        self.last = self.under_way.remove(&id).map_or(0, |group| group.calls);
        self.look_who_is_free();
    }

    /// Whether a group has this lane: its events would be stored in another order than they came in.
    fn is_taken(&self, place: u64) -> bool {
        self.under_way.values().any(|group| group.places.contains(&place))
    }

    fn look_who_is_free(&mut self) {
        self.free = self.waiting.iter().any(|(place, _)| !self.is_taken(*place));
    }

    /// Callers that were just answered often come again at once. A group that left with the first of them would be followed
    /// by one with the others: twice the commits for the same calls. So those who are behind get a few turns first, which
    /// costs microseconds and nothing when nobody comes.
    async fn gather(&mut self) {
        let expected = std::mem::take(&mut self.last);
        for _ in 0..TURNS {
            if self.waiting.len() >= expected {
                break;
            }
            tokio::task::yield_now().await;
            self.take_in();
        }
    }

    /// The next group leaves. It takes its share of all calls that are waiting or under way, so that the groups stay alike: two of
    /// them with sixty calls and with four would pay for two commits, too. Whoever has the same lane as one of them comes along,
    /// because no other group could take him.
    fn leave(&mut self) {
        let all = self.waiting.len() + self.under_way.values().map(|group| group.calls).sum::<usize>();
        let share = all.div_ceil(AT_ONCE);
        let (mut group, mut places, mut weight) = (Vec::new(), HashSet::new(), 0);
        let mut passed = VecDeque::new();
        while let Some((place, call)) = self.waiting.pop_front() {
            let fits = group.len() < share || places.contains(&place);
            if !fits || self.is_taken(place) {
                passed.push_back((place, call));
                continue;
            }
            weight += G::weight(&call.0);
            if weight > G::MOST && !group.is_empty() {
                self.waiting.push_front((place, call));
                break;
            }
            places.insert(place);
            group.push(call);
        }
        passed.append(&mut self.waiting);
        self.waiting = passed;
        let calls = group.len();
        group.retain_mut(|call| !call.1.is_closed());
        let (late, group): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|(.., since)| since.elapsed() > limits::STORE_CALL_DEADLINE);
        for (_, answer, _) in late {
            let text = "the store is too busy or away: nothing was done, try again later";
            let _ = answer.send(Err(StoreError::unavailable(text)));
        }
        // In a task of its own: should it panic, its callers are told "unknown" and the next group is served.
        let id = self.groups.spawn(done_together(self.counter.clone(), group, ROUNDS)).id();
        self.under_way.insert(id, UnderWay { places, calls });
        self.look_who_is_free();
    }
}

/// Does calls in one transaction; those whose lane is busy apart, and all of them one by one when that does not work.
fn done_together<G: Grouped>(
    counter: Arc<Counter<G>>,
    group: Vec<Call<G>>,
    rounds: u32,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if group.is_empty() {
            return;
        }
        let mut repeats = Repeats::new();
        let mut conflicts = 0;
        let done = loop {
            let requests: Vec<&G::Request> = group.iter().map(|(request, ..)| request).collect();
            match counter.verb.perform(&requests, Patience::None).await {
                Err(Trouble::Again) if group.len() > 1 && conflicts == CONFLICTS_MAX => {
                    break Err(Trouble::Again);
                }
                Err(Trouble::Again) if repeats.again().await => conflicts += 1,
                other => break other,
            }
        };
        match done {
            Ok(answers) => {
                let mut busy: BTreeMap<u64, Vec<Call<G>>> = BTreeMap::new();
                for (call, done) in group.into_iter().zip(answers) {
                    match done {
                        // Nobody listens when the caller has given up; what was done stays done.
                        Some(done) => drop(call.1.send(done)),
                        None => busy.entry(G::place(&call.0)).or_default().push(call),
                    }
                }
                if busy.len() > 1 && rounds > 0 {
                    // Somebody has several of these lanes, and lets go of them together.
                    let group = busy.into_values().flatten().collect();
                    tokio::spawn(once_more(counter, group, rounds - 1));
                } else {
                    for calls in busy.into_values() {
                        let calls = calls.into_iter().map(|(request, answer, _)| (request, answer));
                        patiently(&counter, calls.collect());
                    }
                }
            }
            Err(Trouble::Again) if group.len() > 1 => {
                // The half without the lane that is changed all the time goes through.
                let mut group = group;
                let rest = group.split_off(group.len() / 2);
                done_together(counter.clone(), group, rounds).await;
                done_together(counter, rest, rounds).await;
            }
            Err(Trouble::Store(error)) if group.len() == 1 || !is_of_one(&error) => {
                for (_, answer, _) in group {
                    let _ = answer.send(Err(error.clone()));
                }
            }
            Err(_) => {
                for (request, answer, _) in group {
                    patiently(&counter, vec![(request, answer)]);
                }
            }
        }
    })
}

/// The next round of calls whose lanes were busy. They have left their group, which nobody waits for any longer.
async fn once_more<G: Grouped>(counter: Arc<Counter<G>>, group: Vec<Call<G>>, rounds: u32) {
    let many = group.len();
    if counter.waiting.fetch_add(many, Ordering::Relaxed) + many > limits::STORE_QUEUE_MAX {
        counter.waiting.fetch_sub(many, Ordering::Relaxed);
        let calls = group.into_iter().map(|(request, answer, _)| (request, answer)).collect();
        refuse::<G>(calls, &Repeats::too_many());
        return;
    }
    clock::pause(ROUND * 2u32.pow(ROUNDS.saturating_sub(rounds + 1))).await;
    counter.waiting.fetch_sub(many, Ordering::Relaxed);
    done_together(counter, group, rounds).await;
}

/// Whether the fault may lie with one of the calls; a store that is away is away for all of them.
fn is_of_one(error: &StoreError) -> bool {
    !matches!(error.kind, ErrorKind::Unknown | ErrorKind::Unavailable)
}

/// Does calls beside the groups, in a transaction that waits for their lanes: one call, or all of a group that met the same
/// busy lane. A key that gets thousands of events a second is busy again and again, and its calls one by one would be slower than
/// they come.
fn patiently<G: Grouped>(counter: &Arc<Counter<G>>, calls: Vec<Waiting<G>>) {
    let many = calls.len();
    if counter.waiting.fetch_add(many, Ordering::Relaxed) + many > limits::STORE_QUEUE_MAX {
        counter.waiting.fetch_sub(many, Ordering::Relaxed);
        refuse::<G>(calls, &Repeats::too_many());
        return;
    }
    let counter = counter.clone();
    tokio::spawn(async move {
        // Places are never closed; calls that get none all the same are done without.
        let place = counter.places.acquire().await;
        let left = waited_for(&counter, calls).await;
        drop(place);
        counter.waiting.fetch_sub(many, Ordering::Relaxed);
        for call in left {
            patiently(&counter, vec![call]);
        }
    });
}

/// Gives back the calls that have to be done one by one, because together they failed and only one of them may be at fault.
async fn waited_for<G: Grouped>(counter: &Counter<G>, mut calls: Vec<Waiting<G>>) -> Vec<Waiting<G>> {
    let mut repeats = Repeats::new();
    loop {
        let requests: Vec<&G::Request> = calls.iter().map(|(request, _)| request).collect();
        match counter.verb.perform(&requests, Patience::Answer).await {
            Ok(answers) => {
                let mut busy = Vec::new();
                for ((request, answer), done) in calls.into_iter().zip(answers) {
                    match done {
                        // Nobody listens when the caller has given up; what was done stays done.
                        Some(done) => drop(answer.send(done)),
                        None => busy.push((request, answer)),
                    }
                }
                calls = busy;
            }
            Err(Trouble::Again) => {}
            Err(Trouble::Store(error)) if calls.len() == 1 || !is_of_one(&error) => {
                refuse::<G>(calls, &error);
                return Vec::new();
            }
            Err(Trouble::Store(_)) => return calls,
        }
        if calls.is_empty() {
            return calls;
        }
        if !repeats.again().await {
            refuse::<G>(calls, &Repeats::too_many());
            return Vec::new();
        }
    }
}

fn refuse<G: Grouped>(calls: Vec<Waiting<G>>, error: &StoreError) {
    for (_, answer) in calls {
        let _ = answer.send(Err(error.clone()));
    }
}

/// How long a caller that repeats itself waits at the most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A lane that is always busy for those who do not wait. Notes how many calls each patient transaction did.
    #[derive(Default)]
    struct Busy(Arc<Mutex<Vec<usize>>>);

    #[async_trait]
    impl Grouped for Busy {
        type Request = u64;
        type Answer = u64;
        const MOST: usize = 1_000;

        fn place(request: &u64) -> u64 {
            request % 2
        }

        fn weight(_: &u64) -> usize {
            1
        }

        async fn perform(&self, requests: &[&u64], patience: Patience) -> RowsResult<Answers<u64>> {
            clock::pause(Duration::from_millis(5)).await;
            if patience == Patience::None {
                return Ok(requests.iter().map(|_| None).collect());
            }
            let refused = |n: &u64| *n == 13;
            if requests.iter().any(|n| refused(n)) {
                return Err(Trouble::Store(StoreError::new(ErrorKind::Limit, "thirteen")));
            }
            self.0.lock().unwrap().push(requests.len());
            Ok(requests.iter().map(|n| Some(Ok(**n))).collect())
        }
    }

    async fn asked(calls: std::ops::Range<u64>) -> (Vec<StoreResult<u64>>, Vec<usize>) {
        let done = Arc::new(Mutex::new(Vec::new()));
        let entrance = Entrance::open(Busy(done.clone()));
        let answers = futures_util::future::join_all(calls.map(|n| entrance.call(n))).await;
        let done = done.lock().unwrap().clone();
        (answers, done)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_meet_a_busy_lane_wait_for_it_together() {
        let (answers, done) = asked(100..700).await;
        assert_eq!(answers, (100..700).map(Ok).collect::<Vec<_>>());
        assert_eq!(done.iter().sum::<usize>(), 600);
        assert!(done.len() <= 8, "a transaction for each of them would be slower than they come: {done:?}");
    }

    /// Many lanes that are busy for the first four transactions. Notes how many calls each transaction did, and who waited.
    #[derive(Default)]
    struct Elsewhere {
        asked: AtomicUsize,
        done: Arc<Mutex<Vec<(usize, Patience)>>>,
    }

    #[async_trait]
    impl Grouped for Elsewhere {
        type Request = u64;
        type Answer = u64;
        const MOST: usize = 1_000;

        fn place(request: &u64) -> u64 {
            *request
        }

        fn weight(_: &u64) -> usize {
            1
        }

        async fn perform(&self, requests: &[&u64], patience: Patience) -> RowsResult<Answers<u64>> {
            clock::pause(Duration::from_millis(1)).await;
            let held = self.asked.fetch_add(1, Ordering::Relaxed) < 4 && patience == Patience::None;
            if !held {
                self.done.lock().unwrap().push((requests.len(), patience));
            }
            Ok(requests.iter().map(|n| (!held).then_some(Ok(**n))).collect())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_meet_many_busy_lanes_are_tried_together_again() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let entrance = Entrance::open(Elsewhere { done: done.clone(), ..Elsewhere::default() });
        let answers = futures_util::future::join_all((0..600).map(|n| entrance.call(n))).await;
        assert_eq!(answers, (0..600).map(Ok).collect::<Vec<_>>());
        let done = done.lock().unwrap().clone();
        assert_eq!(done.iter().map(|(many, _)| many).sum::<usize>(), 600);
        assert!(done.len() <= 6, "a transaction for each of them holds up everybody: {done:?}");
        assert!(
            done.iter().all(|(_, patience)| *patience == Patience::None),
            "nobody waits for one lane: {done:?}"
        );
    }

    /// Lanes by the tens of their calls. Notes the calls of each group, and fails when two groups have the same lane.
    #[derive(Default)]
    struct Lanes {
        groups: Arc<Mutex<Vec<Vec<u64>>>>,
        under_way: Mutex<HashSet<u64>>,
    }

    #[async_trait]
    impl Grouped for Lanes {
        type Request = u64;
        type Answer = u64;
        const MOST: usize = 1_000;

        fn place(request: &u64) -> u64 {
            request / 10
        }

        fn weight(_: &u64) -> usize {
            1
        }

        async fn perform(&self, requests: &[&u64], _: Patience) -> RowsResult<Answers<u64>> {
            let places: HashSet<u64> = requests.iter().map(|n| Lanes::place(n)).collect();
            for place in &places {
                assert!(self.under_way.lock().unwrap().insert(*place), "{place} is in two groups");
            }
            clock::pause(Duration::from_millis(1)).await;
            self.groups.lock().unwrap().push(requests.iter().map(|n| **n).collect());
            self.under_way.lock().unwrap().retain(|place| !places.contains(place));
            Ok(requests.iter().map(|n| Some(Ok(**n))).collect())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_in_one_group_at_a_time_and_its_calls_keep_their_order() {
        let groups = Arc::new(Mutex::new(Vec::new()));
        let entrance = Entrance::open(Lanes { groups: groups.clone(), ..Lanes::default() });
        // Each lane is called twice at once, and another time when the first groups are under way.
        let early = futures_util::future::join_all((0..400).map(|n| entrance.call(n)));
        let later = async {
            clock::pause(Duration::from_micros(500)).await;
            futures_util::future::join_all((0..400).step_by(10).map(|n| entrance.call(n + 9))).await
        };
        let (early, later) = tokio::join!(early, later);
        assert!(early.iter().chain(&later).all(Result::is_ok));
        let done: Vec<u64> = groups.lock().unwrap().concat();
        for lane in 0..40 {
            let of_lane: Vec<u64> = done.iter().copied().filter(|n| n / 10 == lane).collect();
            assert!(of_lane.is_sorted(), "{of_lane:?}");
            assert_eq!(of_lane.len(), 11);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn groups_share_the_calls_of_those_who_come_again_and_again() {
        let groups = Arc::new(Mutex::new(Vec::new()));
        let entrance = Entrance::open(Lanes { groups: groups.clone(), ..Lanes::default() });
        let caller = |n: u64| {
            let entrance = &entrance;
            async move {
                for _ in 0..20 {
                    entrance.call(n * 10).await.unwrap();
                }
            }
        };
        futures_util::future::join_all((0..64).map(caller)).await;
        let sizes: Vec<usize> = groups.lock().unwrap().iter().map(Vec::len).collect();
        // Not at the very beginning and end, where they come and go one by one.
        let whole = sizes.iter().filter(|size| (24..=40).contains(*size)).count();
        assert!(whole * 10 >= sizes.len() * 8, "{sizes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_refused_does_not_take_those_with_it_that_waited_for_the_same_lane() {
        let (answers, done) = asked(0..40).await;
        for (n, answer) in (0..40).zip(answers) {
            assert_eq!(answer.is_err(), n == 13, "{n}: {answer:?}");
        }
        assert_eq!(done.iter().sum::<usize>(), 39);
    }
}
