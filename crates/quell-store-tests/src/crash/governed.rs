//! Sources and real processes: the limit holds for all of them together in every window, the right to probe ends with the
//! lease of one that was killed, and of several that want the same answer one fetches it.
//!
//! A store's test starts itself again: its parent makes a [`Stage`] and calls one of the promises, its child calls [`errand`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::inspect::AuditFilter;
use quell_core::lifecycle::Change;
use quell_core::source::{Breaker, SourceRules};
use quell_core::store::Store;
use quell_torture::pause;
use rustix::process::Signal;
use serde_json::json;

use super::errands::{Handed, Line, Process, Told, WORK_LANES, put_up, read_log};
use super::kill_loop::{Crew, end, signal};
use crate::builders::{
    FAILED, append, append_one, breaker, claim_one, declare, event, fault, queue, rate, settle_saying,
};
use crate::reads::{health, source_row, trail, verify};

const PLACE: &str = "QUELL_GOVERNED_PLACE";
const ERRAND: &str = "QUELL_GOVERNED_ERRAND";
const NAME: &str = "QUELL_GOVERNED_NAME";
const FOLDER: &str = "QUELL_GOVERNED_FOLDER";

/// One token, and what a millisecond adds to it per request and minute.
const TOKEN: i64 = 60_000;
/// The source of one story.
pub(super) const SHOP: &str = "shop";
/// Answers that all processes want at once, one after the other.
pub(super) const FLIGHTS: usize = 12;
/// Processes of each story.
const CREW: [&str; 4] = ["ann", "bob", "cy", "dee"];
/// Nothing takes so long, even on a machine that has much else to do: 60 s.
const LOOKS_MAX: u32 = 12_000;
const LOOK: Duration = Duration::from_millis(5);

/// A queue with a source of the same name.
pub(super) struct Course {
    pub(super) name: &'static str,
    per_minute: u32,
    burst: u32,
    lanes: usize,
    /// Some runs make no request.
    pub(super) gives_back: bool,
}

/// Slow enough that four processes on a busy machine find every token in time: what a full bucket cannot take is lost.
pub(super) const COURSES: [Course; 3] = [
    Course { name: "one", per_minute: 300, burst: 1, lanes: 80, gives_back: false },
    Course { name: "few", per_minute: 1_200, burst: 5, lanes: 250, gives_back: false },
    Course { name: "many", per_minute: 2_400, burst: 20, lanes: 700, gives_back: true },
];

/// Where the processes of a story meet.
#[derive(Debug, Clone)]
pub struct Stage<Open> {
    /// The name of the test that calls [`errand`].
    pub child: &'static str,
    /// What `open` opens: a file, a URL.
    pub place: String,
    pub open: Open,
}

/// Does what the parent wants, in a process that was started for it; nothing when it runs as an ordinary test.
pub fn errand(open: impl AsyncFnOnce(&str) -> Arc<dyn Store>) {
    let var = |name| std::env::var(name).ok();
    let (Some(place), Some(errand), Some(name), Some(folder)) =
        (var(PLACE), var(ERRAND), var(NAME), var(FOLDER))
    else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a process can have a runtime").block_on(async {
        let store = open(&place).await;
        Process::new(store, Path::new(&folder), &name).run(&errand).await;
    });
}

/// The parent's side of a story.
struct Story {
    store: Arc<dyn Store>,
    folder: tempfile::TempDir,
    crew: Crew,
}

impl Story {
    /// Opens the store; the processes come with [`Story::cast`].
    async fn begin<Open: AsyncFn(&str) -> Arc<dyn Store>>(stage: &Stage<Open>) -> Story {
        let store = (stage.open)(&stage.place).await;
        Story { store, folder: tempfile::tempdir().expect("a folder for the logs"), crew: Crew(Vec::new()) }
    }

    /// Starts a process for each errand and waits until all have opened the store.
    async fn cast<Open>(&mut self, stage: &Stage<Open>, errands: [&str; CREW.len()]) {
        for (name, errand) in CREW.into_iter().zip(errands) {
            let child = Command::new(std::env::current_exe().expect("a test has a program"))
                .args(["--exact", stage.child, "--nocapture"])
                .env(PLACE, &stage.place)
                .env(ERRAND, errand)
                .env(NAME, name)
                .env(FOLDER, self.folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::inherit())
                .spawn();
            self.crew.0.push((name, child.expect("a process can be started")));
        }
        for name in CREW {
            self.until("a process opens the store", |story| story.log(name).contains(&Line::Ready)).await;
        }
    }

    fn log(&self, name: &str) -> Vec<Line> {
        read_log(self.folder.path(), name)
    }

    fn sign(&self, sign: &str) {
        put_up(self.folder.path(), sign);
    }

    async fn now(&self) -> Timestamp {
        health(&*self.store).await.now
    }

    /// Waits until it is so. A process that has ended by an error meanwhile is the error.
    async fn until(&mut self, what: &str, holds: impl Fn(&Story) -> bool) {
        for _ in 0..LOOKS_MAX {
            if holds(self) {
                return;
            }
            for (name, child) in &mut self.crew.0 {
                let ended = child.try_wait().expect("a child can be asked");
                assert!(ended.is_none_or(|status| status.success()), "{name} ended: {ended:?}");
            }
            pause(LOOK).await;
        }
        panic!("waited in vain: {what}");
    }

    fn kill(&mut self, victim: &str) {
        let place = self.crew.0.iter().position(|(name, _)| *name == victim).expect("it is there");
        let (name, mut child) = self.crew.0.remove(place);
        end(name, &mut child);
    }

    fn signal(&self, name: &str, what: Signal) {
        let (_, child) = self.crew.0.iter().find(|(known, _)| *known == name).expect("it is there");
        signal(child, what);
    }

    /// Lets everybody who is left end by itself.
    async fn end(mut self) -> (Arc<dyn Store>, tempfile::TempDir) {
        self.sign("stop");
        while let Some((name, mut child)) = self.crew.0.pop() {
            let mut looks = 0;
            let status = loop {
                if let Some(status) = child.try_wait().expect("a child can be asked") {
                    break status;
                }
                if looks == LOOKS_MAX {
                    let _ = child.kill();
                }
                looks += 1;
                pause(LOOK).await;
            };
            assert!(status.success(), "{name} ended: {status}");
        }
        let problems = verify(&*self.store).await.problems;
        assert_eq!(problems, Vec::<String>::new());
        (self.store, self.folder)
    }

    fn handed(&self, names: &[&str]) -> Vec<Handed> {
        handed(self.folder.path(), names)
    }

    fn nothing(&self, name: &str) -> Vec<Timestamp> {
        nothing(self.folder.path(), &[name])
    }
}

/// The times of the claims by which these found nothing.
fn nothing(folder: &Path, names: &[&str]) -> Vec<Timestamp> {
    let lines = names.iter().flat_map(|name| read_log(folder, name));
    lines.filter_map(|line| if let Line::Nothing { now } = line { Some(now) } else { None }).collect()
}

fn handed(folder: &Path, names: &[&str]) -> Vec<Handed> {
    let lines = names.iter().flat_map(|name| read_log(folder, name));
    lines.filter_map(|line| if let Line::Handed(handed) = line { Some(handed) } else { None }).collect()
}

fn block_on<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a test machine can start two threads").block_on(story)
}

/// Four processes ask three sources of different limits as fast as they can; one is killed, one is stopped for longer than
/// its leases last. `exact` when a claim reads its time under the lock by which it takes its tokens: then its time is the
/// source's own, and every hand-out of the trail is judged by it, also those that a killed process could not tell of.
pub fn no_window_holds_more_than_burst_and_rate_allow<Open: AsyncFn(&str) -> Arc<dyn Store>>(
    stage: &Stage<Open>,
    exact: bool,
) {
    block_on(async {
        let mut story = Story::begin(stage).await;
        for course in &COURSES {
            declare(&*story.store, course.name, rate(course.per_minute, course.burst)).await;
            let lane = |n| event(course.name, &format!("k{n}")).queue_source(course.name);
            append(&*story.store, (0..course.lanes).map(lane)).await;
        }
        story.cast(stage, ["work"; CREW.len()]).await;
        let begun = story.now().await;
        story.sign("go");
        pause(Duration::from_millis(1_200)).await;
        story.kill(CREW[0]);
        pause(Duration::from_millis(300)).await;
        story.signal(CREW[1], Signal::STOP);
        pause(Duration::from_millis(600)).await;
        story.signal(CREW[1], Signal::CONT);
        pause(Duration::from_millis(1_900)).await;
        let ended = story.now().await;
        let (store, folder) = story.end().await;
        let told = handed(folder.path(), &CREW);
        for name in CREW {
            assert!(!handed(folder.path(), &[name]).is_empty(), "{name} was handed nothing");
        }
        let mut asked = nothing(folder.path(), &CREW);
        asked.extend(told.iter().map(|one| one.at));
        asked.sort_unstable();
        asked.dedup();
        for course in &COURSES {
            let used = judge_course(&*store, course, &told, exact).await;
            // What a full bucket could not take while nobody asked is lost, and so is what was refused because another
            // claim was under way, on a machine that has much else to do.
            let to_those_who_asked = allowance(course, begun, asked.iter().copied());
            let moments = (begun.as_millis()..ended.as_millis()).map(Timestamp::from_millis);
            let in_all = allowance(course, begun, moments);
            println!("{}: {used} tokens used of {to_those_who_asked} (at all: {in_all})", course.name);
            assert!(used * 100 >= to_those_who_asked * 40, "{}: they asked in vain", course.name);
            assert!(used * 100 >= in_all * 10, "{}: too few tokens to judge by", course.name);
        }
    });
}

/// Holds all windows against the limit; the number of tokens that were used.
async fn judge_course(store: &dyn Store, course: &Course, told: &[Handed], exact: bool) -> i64 {
    let told: Vec<&Handed> = told.iter().filter(|one| one.queue == course.name).collect();
    let used: Vec<_> = told.iter().filter(|one| !one.unused).map(|one| (one.at, one.upto)).collect();
    let spare = fullest(course, &used);
    assert!(spare >= 0, "{}: a window holds {} sixty-thousandths too much", course.name, -spare);

    let filter = AuditFilter { queue: Some(queue(course.name)), ..AuditFilter::default() };
    let records = trail(store, filter).await;
    let claims: BTreeMap<u64, Timestamp> =
        records.iter().filter(|r| r.change == Change::Claimed).map(|r| (r.token, r.at)).collect();
    let tokens: BTreeSet<u64> = told.iter().map(|one| one.token).collect();
    assert_eq!(tokens.len(), told.len(), "{}: no token is handed out twice", course.name);
    assert!(tokens.iter().all(|token| claims.contains_key(token)), "{}: what was told happened", course.name);
    // The intent to give a token back is written before it is done: what nobody wrote of was used, or is held.
    let unused: BTreeSet<u64> = told.iter().filter(|one| one.unused).map(|one| one.token).collect();
    assert_eq!(!unused.is_empty(), course.gives_back, "{}: some runs make no request", course.name);
    let points: Vec<_> =
        claims.iter().filter(|(token, _)| !unused.contains(token)).map(|(_, at)| (*at, *at)).collect();
    let by_claims = fullest(course, &points);
    assert!(!exact || by_claims >= 0, "{}: a window holds {} too much", course.name, -by_claims);
    let (back, silent) = (unused.len(), claims.len() - told.len());
    println!("{}: the fullest window has {spare} to spare, by the times of claims {by_claims}", course.name);
    println!("{}: {back} given back, {silent} handed out that nobody told of", course.name);
    i64::try_from(used.len()).expect("a small number")
}

/// The tokens that the source can give to those who ask at these moments, in order.
fn allowance(course: &Course, begun: Timestamp, asked: impl Iterator<Item = Timestamp>) -> i64 {
    let most = i64::from(course.burst) * TOKEN;
    let (mut level, mut at, mut given) = (most, begun.as_millis(), 0);
    for now in asked.map(Timestamp::as_millis) {
        let now = now.max(at);
        level = most.min(level + (now - at) * i64::from(course.per_minute));
        let taken = (level / TOKEN).min(WORK_LANES);
        (level, at, given) = (level - taken * TOKEN, now, given + taken);
    }
    given
}

/// What the fullest window leaves of its allowance, in sixty-thousandths of a token: less than nothing when one holds too
/// much. Each token was taken between its two moments, so a window surely holds those that begin and end in it.
fn fullest(course: &Course, taken: &[(Timestamp, Timestamp)]) -> i64 {
    let mut taken: Vec<_> = taken.iter().map(|(from, upto)| (upto.as_millis(), from.as_millis())).collect();
    taken.sort_unstable();
    let mut least = i64::MAX;
    for begin in taken.iter().map(|(_, from)| *from).collect::<BTreeSet<_>>() {
        let mut inside = 0;
        for (upto, _) in taken.iter().filter(|(_, from)| *from >= begin) {
            inside += TOKEN;
            let allowed = i64::from(course.burst) * TOKEN + i64::from(course.per_minute) * (upto - begin);
            least = least.min(allowed - inside);
        }
    }
    least
}

/// The breaker is half-open and the process that probes is killed: nobody is handed a lane before its lease is over, then
/// exactly one is, and its good verdict lets all others go.
pub fn a_killed_probe_frees_its_place_when_its_lease_is_over<Open: AsyncFn(&str) -> Arc<dyn Store>>(
    stage: &Stage<Open>,
) {
    block_on(async {
        const LANES: usize = 6;
        let [prober, followers @ ..] = CREW;
        let mut story = Story::begin(stage).await;
        let store = story.store.clone();
        story.cast(stage, ["probe", "follow", "follow", "follow"]).await;
        let cooldown = Duration::from_millis(500);
        declare(&*store, SHOP, SourceRules { cooldown, ..breaker(2) }).await;
        for key in ["bad", "worse"] {
            append_one(&*store, event("q", key).queue_source(SHOP)).await;
            settle_saying(&*store, &claim_one(&*store).await, FAILED, fault()).await;
        }
        let row = source_row(&*store, "", SHOP).await;
        let paused = row.paused_until.expect("two faults open the breaker");
        append(&*store, (0..LANES).map(|n| event("q", &format!("k{n}")).queue_source(SHOP))).await;

        story.sign("probe");
        let kept = |line: &Line| if let Line::Kept { until } = line { Some(*until) } else { None };
        story.until("the probe is handed out", |s| s.log(prober).iter().any(|l| kept(l).is_some())).await;
        let lease_until = story.log(prober).iter().find_map(kept).expect("it has said so");
        let probes = story.handed(&[prober]);
        assert_eq!(probes.len(), 1, "one lane is enough to try: {probes:?}");
        assert!(probes[0].at >= paused, "the cooldown was over: {probes:?}, {paused}");

        story.sign("follow");
        let tried = |s: &Story, since| {
            followers.iter().filter(|name| s.nothing(name).iter().any(|now| *now > since)).count()
        };
        let began = probes[0].at;
        story.until("the others try", |s| tried(s, began) == followers.len()).await;
        story.kill(prober);
        let killed = story.now().await;
        let row = source_row(&*store, "", SHOP).await;
        assert!(killed < lease_until, "the machine is too slow for this test: {killed}, {lease_until}");
        assert_eq!(
            (row.breaker, row.probe),
            (Breaker::HalfOpen, Some(probes[0].run)),
            "the dead have it still"
        );

        story.until("somebody else probes", |s| !s.handed(&followers).is_empty()).await;
        let next = story.handed(&followers).remove(0);
        assert!(next.at >= lease_until, "the lease of the dead one counts: {next:?}, {lease_until}");
        let between = |name: &&str| {
            story.nothing(name).into_iter().filter(|now| *now > killed && *now < lease_until).count()
        };
        let tries: Vec<usize> = followers.iter().map(between).collect();
        assert!(tries.iter().sum::<usize>() > 0, "somebody tried in vain after the kill");
        println!("{tries:?} claims in vain between the kill and the end of the lease");
        println!("the next probe {} ms after it", next.at.since(lease_until).as_millis());
        // All but the one that has it.
        story.until("the others go on trying", |s| tried(s, next.upto) >= followers.len() - 1).await;
        assert_eq!(story.handed(&followers), std::slice::from_ref(&next), "exactly one");
        assert_eq!(source_row(&*store, "", SHOP).await.probe, Some(next.run));

        story.sign("well");
        story.until("all lanes are handed out", |s| s.handed(&followers).len() >= LANES).await;
        let all = story.handed(&followers);
        let settling = |line: Line| if let Line::Settling { now } = line { Some(now) } else { None };
        let told = followers.iter().flat_map(|name| story.log(name)).filter_map(settling).min();
        let told = told.expect("the probe said that the source is well");
        for other in all.iter().filter(|one| **one != next) {
            assert!(other.at >= told, "the verdict came at {told} or later: {other:?}");
        }
        assert_eq!(all.iter().map(|one| one.run).collect::<BTreeSet<_>>().len(), LANES);
        let (store, _folder) = story.end().await;
        let row = source_row(&*store, "", SHOP).await;
        assert_eq!((row.breaker, row.failure_streak, row.waiting), (Breaker::Closed, 0, 0));
    });
}

/// Four processes with a run each want the same answers at the same moments: one fetches, and the others have what it
/// kept. When it brings nothing, one of the others fetches in its place.
pub fn one_process_fetches_and_the_others_have_its_answer<Open: AsyncFn(&str) -> Arc<dyn Store>>(
    stage: &Stage<Open>,
) {
    block_on(async {
        let mut story = Story::begin(stage).await;
        declare(&*story.store, SHOP, breaker(5)).await;
        append(&*story.store, CREW.map(|name| event("q", name).queue_source(SHOP))).await;
        story.cast(stage, ["recall"; CREW.len()]).await;
        story.until("each has a run", |s| CREW.iter().all(|name| s.handed(&[name]).len() == 1)).await;
        let mut fetched: BTreeMap<&str, u32> = BTreeMap::new();
        for round in 0..FLIGHTS {
            let of = |s: &Story, wanted: fn(&Told) -> bool| -> Vec<&str> {
                let of_round = |line| match line {
                    Line::Told { round: at, answer } if at == round => Some(answer),
                    _ => None,
                };
                let all = |name: &'static str| {
                    let answers = s.log(name).into_iter().filter_map(of_round).filter(wanted);
                    answers.map(move |_| name).collect::<Vec<_>>()
                };
                CREW.into_iter().flat_map(all).collect()
            };
            let fetch = |s: &Story| of(s, |told| *told == Told::Fetch);
            let fetching = |s: &Story| of(s, |told| *told == Told::Fetching);
            let hits = |s: &Story| of(s, |told| matches!(told, Told::Hit(_)));
            story.sign(&format!("recall-{round}"));
            story.until("all are told", |s| fetch(s).len() + fetching(s).len() >= CREW.len()).await;
            let first = fetch(&story);
            assert_eq!(first.len(), 1, "round {round}: one fetches: {first:?}");
            assert_eq!(fetching(&story).len(), CREW.len() - 1, "round {round}: the others wait");
            assert!(hits(&story).is_empty(), "round {round}: there is no answer yet");
            *fetched.entry(first[0]).or_default() += 1;
            if round % 2 == 1 {
                story.sign(&format!("forget-{round}-{}", first[0]));
                story.until("another fetches", |s| fetch(s).len() == 2).await;
                assert!(hits(&story).is_empty(), "round {round}: there is no answer yet");
            }
            story.sign(&format!("keep-{round}"));
            story.until("all have the answer", |s| hits(s).len() == CREW.len()).await;
            assert_eq!(fetch(&story).len(), 1 + round % 2, "round {round}: nobody else fetches");
            let keeper = of(&story, |told| *told == Told::Kept);
            assert_eq!(keeper.len(), 1, "round {round}: {keeper:?}");
            let kept = Told::Hit(json!({ "round": round, "by": keeper[0] }));
            for name in CREW {
                let told = Line::Told { round, answer: kept.clone() };
                assert!(story.log(name).contains(&told), "round {round}: {name} has what {keeper:?} kept");
            }
        }
        println!("{FLIGHTS} answers, first fetched by {fetched:?}");
        let (store, _folder) = story.end().await;
        assert_eq!(source_row(&*store, "", SHOP).await.cached, FLIGHTS as u64);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: &Course = &COURSES[1];

    fn spare(moments: &[(i64, i64)]) -> i64 {
        let time = Timestamp::from_millis;
        fullest(FEW, &moments.iter().map(|(from, upto)| (time(*from), time(*upto))).collect::<Vec<_>>())
    }

    #[test]
    fn one_more_than_the_burst_or_one_millisecond_too_early_is_seen() {
        let mut taken = vec![(0, 0); 5];
        assert_eq!(spare(&taken), 0);
        taken.extend((1..40).map(|n| (n * 50, n * 50)));
        assert_eq!(spare(&taken), 0, "every fifty milliseconds");
        taken[20] = (799, 799);
        assert_eq!(spare(&taken), -1_200, "one of them a millisecond too early");
        assert_eq!(spare(&[(7, 7); 6]), -TOKEN);
    }

    #[test]
    fn who_may_have_had_its_token_outside_of_a_window_is_not_counted_in_it() {
        let mut taken = vec![(100, 100); 5];
        taken.push((90, 160));
        assert_eq!(spare(&taken), 0);
        taken[5] = (100, 149);
        assert_eq!(spare(&taken), -1_200);
    }

    #[test]
    fn what_a_full_bucket_cannot_take_is_lost() {
        let given = |moments: &[i64]| {
            allowance(FEW, Timestamp::from_millis(0), moments.iter().copied().map(Timestamp::from_millis))
        };
        assert_eq!(given(&[0, 0, 0]), 5);
        assert_eq!(given(&[0, 0, 49, 50]), 6);
        assert_eq!(given(&[0, 0, 10_000]), 5 + WORK_LANES);
    }
}
