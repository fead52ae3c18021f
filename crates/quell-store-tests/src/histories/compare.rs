//! When are two answers the same? Numbers are paired instead of equal, moments may differ by what real time adds.
//!
//! Every number of the store under test stands for exactly one number of the memory store, and the other way round; the
//! first time they meet they are paired, afterwards they must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use quell_core::attempt::ReportedAttempt;
use quell_core::audit::AuditRecord;
use quell_core::batch::{Batch, RunId};
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::Event;
use quell_core::inspect::RunLinks;
use quell_core::inspect::{
    AuditFilter, LaneDetail, LaneFilter, LaneRow, QueueLeases, RunFilter, RunRow, SourceFilter, SourceRow,
};
use quell_core::store::{
    Appended, Claimed, Controlled, Extended, Held, HoldAnswer, Reclaimed, Settled, SourceAnswer, StepAnswer,
    StepRow, Store, Swept,
};

use crate::reads::{
    TOLERANCE, all_lanes, all_runs, lane_detail, leases, run_detail, source_page, stats, trail, verify,
};

/// The pairs so far.
#[derive(Default)]
pub(super) struct Compare {
    clock_runs: bool,
    lanes: Pairs,
    runs: Pairs,
    seqs: Pairs,
    tokens: Pairs,
    sources: Pairs,
    /// What has happened at least once: a history in which nothing happens proves nothing.
    pub(super) seen: BTreeSet<String>,
}

#[derive(Default)]
struct Pairs {
    model_of: BTreeMap<u64, u64>,
    subject_of: BTreeMap<u64, u64>,
}

impl Pairs {
    fn pair(&mut self, subject: u64, model: u64, what: &str) {
        let known = *self.model_of.entry(subject).or_insert(model);
        assert_eq!(known, model, "{what}: {subject} stood for {known} so far");
        let known = *self.subject_of.entry(model).or_insert(subject);
        assert_eq!(known, subject, "{what}: {model} was told as {known} so far");
    }
}

impl Compare {
    pub(super) fn new(clock_runs: bool) -> Self {
        let mut compare = Compare { clock_runs, ..Compare::default() };
        // Nothing stands for nothing.
        compare.tokens.pair(0, 0, "token");
        compare.seqs.pair(0, 0, "seq");
        compare.sources.pair(0, 0, "source");
        compare
    }

    fn time(&self, subject: Timestamp, model: Timestamp, what: &str) {
        let apart = subject.since(model).max(model.since(subject));
        let allowed = if self.clock_runs { TOLERANCE } else { std::time::Duration::ZERO };
        assert!(apart <= allowed, "{what}: {subject}, but the memory store says {model}");
    }

    fn maybe_time(&self, subject: Option<Timestamp>, model: Option<Timestamp>, what: &str) {
        match (subject, model) {
            (Some(subject), Some(model)) => self.time(subject, model, what),
            (subject, model) => assert_eq!(subject, model, "{what}"),
        }
    }

    fn run(&mut self, subject: RunId, model: RunId) {
        self.lanes.pair(subject.lane, model.lane, "lane of a run");
        self.runs.pair(subject.number, model.number, "run");
    }

    fn maybe_run(&mut self, subject: Option<RunId>, model: Option<RunId>, what: &str) {
        match (subject, model) {
            (Some(subject), Some(model)) => self.run(subject, model),
            (subject, model) => {
                assert_eq!(subject.is_some(), model.is_some(), "{what}: {subject:?} {model:?}")
            }
        }
    }

    /// Both done or both refused in the same way; what was done is handed on.
    fn both<T: Debug>(&mut self, subject: StoreResult<T>, model: StoreResult<T>) -> Option<(T, T)> {
        match (subject, model) {
            (Ok(subject), Ok(model)) => Some((subject, model)),
            (Err(subject), Err(model)) => {
                assert_eq!(subject.kind, model.kind, "{subject} / {model}");
                self.seen.insert(model.kind.as_str().into());
                None
            }
            (subject, model) => panic!("{subject:?}, but the memory store says {model:?}"),
        }
    }

    pub(super) fn appended(&mut self, subject: StoreResult<Appended>, model: StoreResult<Appended>) {
        let Some((subject, model)) = self.both(subject, model) else { return };
        assert_eq!(subject.receipts.len(), model.receipts.len());
        for (s, m) in subject.receipts.iter().zip(&model.receipts) {
            assert_eq!((&s.event_id, s.duplicate, s.met), (&m.event_id, m.duplicate, m.met), "{s:?} {m:?}");
            if m.duplicate {
                self.seen.insert("duplicate".into());
            }
            assert_eq!((s.seq.is_some(), s.state), (m.seq.is_some(), m.state), "{s:?} {m:?}");
            self.seqs.pair(s.seq.unwrap_or(0), m.seq.unwrap_or(0), "seq of a receipt");
            self.maybe_run(s.run_id, m.run_id, "run of a receipt");
            self.maybe_time(s.due_at, m.due_at, "due time of a receipt");
        }
    }

    /// Gives back the batches in pairs.
    pub(super) fn claimed(
        &mut self,
        subject: StoreResult<Claimed>,
        model: StoreResult<Claimed>,
    ) -> Vec<(Batch, Batch)> {
        let Some((mut subject, mut model)) = self.both(subject, model) else { return Vec::new() };
        self.reclaimed(&mut subject.reclaimed, &mut model.reclaimed);
        self.time(subject.now, model.now, "now of a claim");
        self.next_at(&subject, &model);
        subject.batches.sort_by(|a, b| a.lane.cmp(&b.lane));
        model.batches.sort_by(|a, b| a.lane.cmp(&b.lane));
        let lanes =
            |claimed: &Claimed| claimed.batches.iter().map(|b| b.lane.to_string()).collect::<Vec<_>>();
        assert_eq!(lanes(&subject), lanes(&model), "the claimed lanes");
        let pairs: Vec<_> = subject.batches.into_iter().zip(model.batches).collect();
        for (s, m) in &pairs {
            self.batch(s, m);
        }
        pairs
    }

    /// A store may ask to be looked at earlier than needed, but never later, and never again at once for nothing.
    fn next_at(&self, subject: &Claimed, model: &Claimed) {
        match (subject.next_at, model.next_at) {
            (Some(s), Some(m)) => {
                assert!(s <= m.after(TOLERANCE), "next_at {s} is later than {m}");
                assert!(s > subject.now || m <= model.now, "next_at {s} sends the claimer into a loop");
            }
            (s, m) => assert_eq!(s, m, "next_at"),
        }
    }

    fn batch(&mut self, s: &Batch, m: &Batch) {
        self.seen.insert(format!("fired by {}", m.fired_by.as_str()));
        self.run(s.run_id, m.run_id);
        self.tokens.pair(s.token, m.token, "token of a batch");
        self.seqs.pair(s.head_seq, m.head_seq, "head of a batch");
        let source = |b: &Batch| b.source.map_or(0, |id| id.0);
        self.sources.pair(source(s), source(m), "source of a batch");
        let facts =
            |b: &Batch| (b.lane.clone(), b.attempt, b.max_attempts, b.retries, b.revision, b.fired_by);
        assert_eq!(facts(s), facts(m), "a batch of {}", s.lane);
        self.time(s.first_at, m.first_at, "first_at");
        self.time(s.last_at, m.last_at, "last_at");
        self.time(s.claimed_at, m.claimed_at, "claimed_at");
        self.time(s.lease_until, m.lease_until, "lease_until");
        self.events(&s.events, &m.events);
    }

    fn events(&mut self, subject: &[Event], model: &[Event]) {
        assert_eq!(subject.len(), model.len(), "the events: {subject:?} {model:?}");
        for (s, m) in subject.iter().zip(model) {
            self.id(s.id.as_str(), m.id.as_str());
            self.seqs.pair(s.seq, m.seq, "seq of an event");
            self.seqs.pair(s.was_seq.unwrap_or(0), m.was_seq.unwrap_or(0), "former seq of an event");
            assert_eq!((s.payload.as_str(), &s.headers), (m.payload.as_str(), &m.headers));
            self.time(s.received_at, m.received_at, "received_at");
        }
    }

    /// Ids that a store makes hold a number of its own: these are paired, the rest is equal.
    fn id(&mut self, subject: &str, model: &str) {
        let parts =
            |id: &str| id.split_once('/').map(|(run, rest)| (run.parse::<RunId>().ok(), rest.to_owned()));
        let buried = |id: &str| id.strip_prefix("conflict_").and_then(|seq| seq.parse::<u64>().ok());
        match (parts(subject), parts(model), buried(subject), buried(model)) {
            (Some((Some(s), of_s)), Some((Some(m), of_m)), ..) => {
                self.run(s, m);
                assert_eq!(of_s, of_m, "what a run has sent");
            }
            (_, _, Some(s), Some(m)) => self.seqs.pair(s, m, "a buried event"),
            _ => assert_eq!(subject, model, "the id of an event"),
        }
    }

    fn reclaimed(&mut self, subject: &mut [Reclaimed], model: &mut [Reclaimed]) {
        subject.sort_by(|a, b| a.lane.cmp(&b.lane));
        model.sort_by(|a, b| a.lane.cmp(&b.lane));
        let facts = |all: &[Reclaimed]| {
            all.iter().map(|r| (r.lane.clone(), r.worker.clone(), r.state)).collect::<Vec<_>>()
        };
        assert_eq!(facts(subject), facts(model), "the reclaimed lanes");
        for (s, m) in subject.iter().zip(model.iter()) {
            self.seen.insert(format!("reclaimed as {}", m.state));
            self.run(s.run_id, m.run_id);
            self.tokens.pair(s.token, m.token, "token of a reclaim");
            self.time(s.claimed_at, m.claimed_at, "claimed_at of a reclaim");
        }
    }

    pub(super) fn settled(&mut self, subject: StoreResult<Settled>, model: StoreResult<Settled>) {
        let Some((s, m)) = self.both(subject, model) else { return };
        assert_eq!(
            (s.state, s.change, s.repeated),
            (m.state, m.change, m.repeated),
            "the answer to a settle"
        );
        self.seen.insert(format!("settled as {}{}", m.state, if m.repeated { " again" } else { "" }));
        self.seen.insert(format!("changed by {}", m.change));
        self.maybe_time(s.next_at, m.next_at, "next_at of a settle");
    }

    /// What a source has answered.
    pub(super) fn asked(&mut self, subject: StoreResult<SourceAnswer>, model: StoreResult<SourceAnswer>) {
        let Some((s, m)) = self.both(subject, model) else { return };
        let word = match (&s, &m) {
            (
                SourceAnswer::Wait { until: s, because: why },
                SourceAnswer::Wait { until: m, because: expected },
            ) => {
                assert_eq!(why, expected, "what a token waits for");
                self.time(*s, *m, "until when a token waits");
                "wait"
            }
            (SourceAnswer::Fetch { until: s }, SourceAnswer::Fetch { until: m }) => {
                self.maybe_time(*s, *m, "until when an answer may be fetched");
                "fetch"
            }
            (SourceAnswer::Fetching { until: s }, SourceAnswer::Fetching { until: m }) => {
                self.time(*s, *m, "until when another fetches");
                "fetching"
            }
            _ => {
                assert_eq!(s, m, "the answer of a source");
                match m {
                    SourceAnswer::Taken => "taken",
                    SourceAnswer::Hit(_) => "hit",
                    _ => "noted",
                }
            }
        };
        self.seen.insert(format!("source answered {word}"));
    }

    pub(super) fn extended(&mut self, subject: StoreResult<Extended>, model: StoreResult<Extended>) {
        let Some((s, m)) = self.both(subject, model) else { return };
        self.time(s.lease_until, m.lease_until, "lease_until of an extend");
        self.seqs.pair(s.head_seq, m.head_seq, "head of an extend");
        assert_eq!(
            (s.newer, s.interrupt, s.cancel),
            (m.newer, m.interrupt, m.cancel),
            "the answer to an extend"
        );
    }

    pub(super) fn held(&mut self, subject: StoreResult<Held>, model: StoreResult<Held>) {
        let Some((s, m)) = self.both(subject, model) else { return };
        assert_eq!(s, m, "the answer of the gate");
        self.seen.insert(match m.answer {
            HoldAnswer::Held => "hold answered held".into(),
            HoldAnswer::Superseded => "hold answered superseded".into(),
            HoldAnswer::Interrupted => "hold answered interrupted".into(),
        });
    }

    pub(super) fn step(&mut self, subject: StoreResult<StepAnswer>, model: StoreResult<StepAnswer>) {
        let Some((s, m)) = self.both(subject, model) else { return };
        assert_eq!(s, m, "the answer to a step");
        match m {
            StepAnswer::Unknown => self.seen.insert("step unknown".into()),
            StepAnswer::Done { stored: false, .. } => self.seen.insert("step remembered".into()),
            _ => false,
        };
    }

    pub(super) fn controlled(&mut self, subject: StoreResult<Controlled>, model: StoreResult<Controlled>) {
        let Some((s, m)) = self.both(subject, model) else { return };
        let facts = |c: &Controlled| (c.changed, c.events, c.more);
        assert_eq!(facts(&s), facts(&m), "the answer to an operator");
        self.maybe_run(s.run, m.run, "run of an operator's hand");
    }

    fn links(&mut self, s: &RunLinks, m: &RunLinks) {
        let all = |l: &RunLinks| {
            let one = [l.continued_in, l.merged_into, l.split_from, l.redriven_from, l.redriven_into];
            let both = [l.split_into.first().copied(), l.split_into.get(1).copied()];
            one.into_iter().chain(both).collect::<Vec<_>>()
        };
        for (s, m) in all(s).into_iter().zip(all(m)) {
            self.maybe_run(s, m, "where a run's events came from or went");
        }
    }

    fn steps(&mut self, subject: &[StepRow], model: &[StepRow]) {
        let facts = |rows: &[StepRow]| {
            let mut all: Vec<_> = rows
                .iter()
                .map(|r| (r.revision, r.name.clone(), r.value.as_ref().map(ToString::to_string)))
                .collect();
            all.sort();
            all
        };
        assert_eq!(facts(subject), facts(model), "the steps");
    }

    pub(super) fn swept(&mut self, mut subject: Swept, mut model: Swept) {
        self.reclaimed(&mut subject.reclaimed, &mut model.reclaimed);
        let removed = |s: &Swept| (s.removed_runs, s.removed_events, s.removed_audit);
        assert_eq!(removed(&subject), removed(&model), "runs, events and audit records removed");
        if model.removed_runs > 0 {
            self.seen.insert("removed by the retention".into());
        }
    }

    /// All that can be read.
    pub(super) async fn everything(&mut self, subject: &dyn Store, model: &dyn Store) {
        self.listed_lanes(subject, model).await;
        self.listed_runs(subject, model).await;
        self.listed_audit(subject, model).await;
        self.listed_sources(subject, model).await;
        let (s, m) = (stats(subject).await, stats(model).await);
        assert_eq!(s.len(), m.len(), "queues: {s:?} {m:?}");
        for (s, m) in s.iter().zip(&m) {
            let facts = |q: &quell_core::inspect::QueueStats| {
                (q.tenant.clone(), q.queue.clone(), q.totals, q.running, q.paused_by.clone())
            };
            assert_eq!(facts(s), facts(m));
            assert_eq!(s.oldest_due_ms.is_some(), m.oldest_due_ms.is_some(), "{s:?} {m:?}");
        }
        let names =
            |rows: Vec<QueueLeases>| -> Vec<_> { rows.into_iter().map(|l| (l.tenant, l.queue)).collect() };
        let (s, m) = (names(leases(subject).await), names(leases(model).await));
        assert_eq!(s, m, "queues with leases");
        let (s, m) = (verify(subject).await, verify(model).await);
        assert_eq!((s.queues, s.events, s.problems), (m.queues, m.events, m.problems));
    }

    async fn listed_lanes(&mut self, subject: &dyn Store, model: &dyn Store) {
        let filter = || LaneFilter { limit: 3, ..LaneFilter::default() };
        let (mut s, mut m) = (all_lanes(subject, filter()).await, all_lanes(model, filter()).await);
        s.sort_by(|a, b| a.lane.cmp(&b.lane));
        m.sort_by(|a, b| a.lane.cmp(&b.lane));
        let lanes = |rows: &[LaneRow]| rows.iter().map(|r| r.lane.to_string()).collect::<Vec<_>>();
        assert_eq!(lanes(&s), lanes(&m), "the lanes that are not idle");
        for (s, m) in s.iter().zip(&m) {
            self.lane_row(s, m);
            let s = lane_detail(subject, &s.lane).await.expect("a listed lane is found");
            let m = lane_detail(model, &m.lane).await.expect("a listed lane is found");
            self.lane_detail(&s, &m);
        }
    }

    async fn listed_sources(&mut self, subject: &dyn Store, model: &dyn Store) {
        let filter = || SourceFilter { limit: 100, ..SourceFilter::default() };
        let (s, m) = (source_page(subject, filter()).await.items, source_page(model, filter()).await.items);
        let names = |rows: &[SourceRow]| {
            rows.iter().map(|r| (r.name.to_string(), r.tenant.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(names(&s), names(&m), "the sources");
        for (s, m) in s.iter().zip(&m) {
            let facts = |r: &SourceRow| {
                let hands = (r.enabled, r.standing, r.changed_by.clone());
                (hands, r.breaker, r.failure_streak, r.tokens, r.waiting, r.cached, r.rules)
            };
            assert_eq!(facts(s), facts(m), "source {} of {:?}", s.name, s.tenant);
            self.seen.insert(format!("breaker {}", m.breaker.as_str()));
            self.seen.insert(format!("source {:?}", m.standing).to_lowercase());
            self.maybe_run(s.probe, m.probe, "probe of a source");
            self.maybe_time(s.last_success_at, m.last_success_at, "last_success_at of a source");
            self.maybe_time(s.last_failure_at, m.last_failure_at, "last_failure_at of a source");
            self.maybe_time(s.paused_until, m.paused_until, "paused_until of a source");
            self.maybe_time(s.not_before, m.not_before, "not_before of a source");
        }
    }

    fn lane_row(&mut self, s: &LaneRow, m: &LaneRow) {
        let facts = |r: &LaneRow| {
            let held = (r.paused_by.clone(), r.worker.clone());
            (r.state, r.buffered, r.in_flight, r.priority, held)
        };
        assert_eq!(facts(s), facts(m), "lane {}", s.lane);
        self.seqs.pair(s.head_seq, m.head_seq, "head of a lane");
        self.maybe_run(s.blocked_by, m.blocked_by, "the run that blocks a lane");
        self.tokens.pair(s.token.unwrap_or(0), m.token.unwrap_or(0), "token of a lane");
        self.maybe_time(s.due_at, m.due_at, "due time of a lane");
        self.maybe_time(s.claimed_at, m.claimed_at, "claimed_at of a lane");
        self.maybe_time(s.lease_until, m.lease_until, "lease_until of a lane");
        self.time(s.updated_at, m.updated_at, "updated_at of a lane");
    }

    fn lane_detail(&mut self, s: &LaneDetail, m: &LaneDetail) {
        self.maybe_run(s.open_run, m.open_run, "open run of a lane");
        self.maybe_run(s.current_run, m.current_run, "current run of a lane");
        assert_eq!(
            (s.queued_runs.len(), s.delayed),
            (m.queued_runs.len(), m.delayed),
            "queued runs and delayed events"
        );
        for (s, m) in s.queued_runs.iter().zip(&m.queued_runs) {
            self.run(*s, *m);
        }
        self.events(&s.events, &m.events);
        let (s, m) = (&s.waiting, &m.waiting);
        assert_eq!((s.interrupting, s.cancelling), (m.interrupting, m.cancelling));
        assert_eq!((s.buffered, s.due_by, s.expired), (m.buffered, m.due_by, m.expired));
        assert_eq!((&s.lane_paused_by, &s.queue_paused_by), (&m.lane_paused_by, &m.queue_paused_by));
        match (&s.source, &m.source) {
            (Some(s), Some(m)) => {
                assert_eq!((&s.name, s.because, &s.by), (&m.name, m.because, &m.by), "what a lane waits for");
                self.maybe_time(s.until, m.until, "until when a lane waits for its source");
                self.seen.insert("lane waits for its source".into());
            }
            (s, m) => assert_eq!(s, m, "whether a lane waits for its source"),
        }
        self.maybe_time(s.due_at, m.due_at, "due time of the open run");
        self.maybe_time(s.capped_at, m.capped_at, "cap of the open run");
        self.maybe_time(s.again_at, m.again_at, "end of the backoff");
    }

    async fn listed_runs(&mut self, subject: &dyn Store, model: &dyn Store) {
        let filter = || RunFilter { limit: 7, ..RunFilter::default() };
        let (mut s, mut m) = (all_runs(subject, filter()).await, all_runs(model, filter()).await);
        s.sort_by(|a, b| (&a.lane, a.id.number).cmp(&(&b.lane, b.id.number)));
        m.sort_by(|a, b| (&a.lane, a.id.number).cmp(&(&b.lane, b.id.number)));
        let facts = |rows: &[RunRow]| {
            rows.iter().map(|r| (r.lane.to_string(), r.state, r.events, r.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(facts(&s), facts(&m), "the runs");
        for (s, m) in s.iter().zip(&m) {
            self.run_row(s, m);
            let s = run_detail(subject, s.id).await.expect("a listed run is found");
            let m = run_detail(model, m.id).await.expect("a listed run is found");
            assert_eq!((&s.result, &s.usage), (&m.result, &m.usage));
            self.events(&s.list, &m.list);
            self.steps(&s.steps, &m.steps);
            self.reports(&s.reports, &m.reports);
            assert_eq!(s.audit.len(), m.audit.len(), "audit of {}", s.row.id);
        }
    }

    fn reports(&mut self, s: &[ReportedAttempt], m: &[ReportedAttempt]) {
        let facts = |all: &[ReportedAttempt]| -> Vec<_> {
            all.iter().map(|r| (r.error.clone(), r.report.clone())).collect()
        };
        assert_eq!(facts(s), facts(m), "reports of attempts");
        for (s, m) in s.iter().zip(m) {
            self.tokens.pair(s.token, m.token, "token of a reported attempt");
            self.time(s.at, m.at, "at of a reported attempt");
        }
    }

    fn run_row(&mut self, s: &RunRow, m: &RunRow) {
        self.run(s.id, m.id);
        self.seqs.pair(s.lo, m.lo, "first event of a run");
        self.seqs.pair(s.hi, m.hi, "last event of a run");
        self.tokens.pair(s.token, m.token, "token of a run");
        let facts = |r: &RunRow| {
            let counts = (r.attempts, r.claims, r.retries, r.interrupts, r.revision, r.priority);
            (counts, r.fired_by, r.worker.clone(), r.error.clone(), r.state)
        };
        assert_eq!(facts(s), facts(m), "run {} of {}", s.id, s.lane);
        self.links(&s.links, &m.links);
        self.time(s.created_at, m.created_at, "created_at of a run");
        self.time(s.last_at, m.last_at, "last_at of a run");
        self.time(s.updated_at, m.updated_at, "updated_at of a run");
        self.maybe_time(s.claimed_at, m.claimed_at, "claimed_at of a run");
        self.maybe_time(s.heartbeat_at, m.heartbeat_at, "heartbeat_at of a run");
        self.maybe_time(s.lease_until, m.lease_until, "lease_until of a run");
        self.maybe_time(s.next_at, m.next_at, "next_at of a run");
        self.maybe_time(s.completed_at, m.completed_at, "completed_at of a run");
    }

    /// Lane by lane: between lanes there is no order.
    async fn listed_audit(&mut self, subject: &dyn Store, model: &dyn Store) {
        let grouped = |records: Vec<AuditRecord>| {
            let mut groups: BTreeMap<_, Vec<AuditRecord>> = BTreeMap::new();
            for r in records {
                groups.entry((r.tenant.clone(), r.queue.clone(), r.key.clone())).or_default().push(r);
            }
            groups
        };
        let s = grouped(trail(subject, AuditFilter::default()).await);
        let m = grouped(trail(model, AuditFilter::default()).await);
        assert_eq!(s.keys().collect::<Vec<_>>(), m.keys().collect::<Vec<_>>(), "lanes with audit");
        for (s, m) in s.values().zip(m.values()) {
            let facts = |r: &AuditRecord| {
                let names = (r.worker.clone(), r.prior_worker.clone(), r.actor.clone());
                (r.change, r.from, r.to, r.attempt, r.verdict, names)
            };
            let told = s.iter().map(facts).collect::<Vec<_>>();
            assert_eq!(told, m.iter().map(facts).collect::<Vec<_>>(), "audit of {:?}", s[0].key);
            for (s, m) in s.iter().zip(m) {
                self.maybe_run(s.run, m.run, "run of a record");
                self.maybe_run(s.other_run, m.other_run, "other run of a record");
                self.tokens.pair(s.token, m.token, "token of a record");
                self.seqs.pair(s.upto_seq, m.upto_seq, "upto_seq of a record");
                self.time(s.at, m.at, "time of a record");
                self.maybe_time(s.next_at, m.next_at, "next_at of a record");
            }
        }
    }
}
