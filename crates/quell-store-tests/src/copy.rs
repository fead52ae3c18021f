//! Everything of one store in another: what a copy promises, for any two stores.
//!
//! The driver is not here, because it knows all stores: whoever calls these functions hands it over as a [`Copier`]. Both
//! sides must be fresh and empty.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quell_core::aside::Aside;
use quell_core::batch::{Batch, RunId};
use quell_core::copy::{Counts, Frame, LaneRow, Portable, Row};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::Payload;
use quell_core::inspect::{
    AuditFilter, Inspect, Inspected, LaneFilter, Reason, RunFilter, SourceFilter, SourceRow,
};
use quell_core::lane::OnFailed;
use quell_core::lifecycle::RunState;
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::{Shelf, ShelfAction, ShelfAnswer, ShelfRequest};
use quell_core::source::{CacheRow, SourceId};
use quell_core::store::{
    AppendRequest, ClaimQueues, ClaimRequest, ControlAction, PurgeWhat, RunPolicy, SettleRequest,
    SourceAction, SourceAnswer, SourceScope, StepAction, StepAnswer, StepRow, Store, SweepRequest,
};
use quell_core::working_set::{FinishedRun, Kept, Trail};
use serde_json::json;

use crate::builders::{
    FAILED, RETRY, SUCCEEDED, append, append_one, append_request, ask, breaker, cancel, claim, claim_request,
    control, declare, documents, erase_event, erase_lane, event, extend_request, fault, forget, from_queue,
    hold_request, ids, lane, lane_of, notifying, on_failed, policy, purge, put_document, rate, redrive,
    redrive_as_new, refused, schedule, scoped, secs, seq_of, settle, settle_after, settle_request,
    settle_saying, source_name, source_request, step, step_request, tenant, try_append, try_control,
    try_edit, try_put_document, try_settle, whole, worker,
};
use crate::reads::{all_lanes, all_runs, lane_detail, run_detail, source_page, stats, trail, verify};

/// One store in both of its forms, and the hand that moves its time.
pub struct Side {
    pub store: Arc<dyn Store>,
    pub portable: Arc<dyn Portable>,
    pub advance: Advance,
}

pub type Advance = Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Copies everything from the first to the second. Says how many lanes were copied twice, or what went wrong.
pub type Copier = dyn for<'a> Fn(
        &'a dyn Portable,
        &'a dyn Portable,
    ) -> Pin<Box<dyn Future<Output = Result<u64, String>> + Send + 'a>>
    + Sync;

const LONG: Duration = Duration::from_secs(5 * 3_600);

/// What a test needs to know of a filled store.
pub struct Filled {
    /// A run under a long lease.
    pub held: Batch,
}

/// Everything that is due in one queue.
async fn take(store: &dyn Store, queue: &str, policy: RunPolicy) -> Vec<Batch> {
    let queues = ClaimQueues::Listed(vec![from_queue(queue, policy, 100)]);
    let request = ClaimRequest { queues, ..claim_request(&worker("w")) };
    claim(store, request).await.batches
}

async fn take_one(store: &dyn Store, queue: &str) -> Batch {
    take(store, queue, policy()).await.pop().expect("one lane of the queue is due")
}

async fn dead(store: &dyn Store, queue: &str, key: &str, ids: &[&str]) -> Batch {
    append(store, ids.iter().map(|id| event(queue, key).id(id))).await;
    let batch = take_one(store, queue).await;
    let error = Some("it does not work".to_owned());
    let request = SettleRequest { error, ..settle_request(&batch, FAILED) };
    store.settle(request).await.expect("the holder may settle");
    batch
}

/// Something of everything.
pub async fn fill(store: &dyn Store) -> Filled {
    // Buffered, with ids of both kinds, another priority, a header, and a payload that was edited.
    append(store, ["a", "b", "c"].map(|id| event("chat", "ada").id(id).quiet(3_600))).await;
    append(store, [event("chat", "ada").made("made-1").quiet(3_600)]).await;
    append(store, [event("chat", "bob").id("a").of("acme").fixed(9_000).priority(8).header("x", "y")]).await;
    append(store, [event("news", "n").payload(json!([1.5, "ä"])).content_dedupe().quiet(3_600)]).await;
    try_edit(store, &lane("chat", "ada"), "b", json!({ "edited": true })).await.expect("it is buffered");
    // Ended well, with a step and a report.
    append(store, [event("done", "k1").id("d1"), event("done", "k1").id("d2")]).await;
    let batch = take_one(store, "done").await;
    step(store, &batch, "paid", StepAction::Finish(json!({ "cents": 0.1 }))).await;
    let mut request = settle_request(&batch, SUCCEEDED);
    request.result = Some(json!({ "sum": 0.1 + 0.2, "text": "\u{0}ö", "big": 1e300 }));
    request.usage = [("tokens".to_owned(), 1_234.567_890_123)].into();
    store.settle(request).await.expect("the holder may settle");
    // Ended and telling another queue, whose event is aside.
    append_one(store, event("tells", "k").id("t1")).await;
    let tells = take(store, "tells", notifying("told", &[RunState::Succeeded])).await;
    settle(store, &tells[0], SUCCEEDED).await;
    // In backoff, dead, purged, cancelled, halved, put back in both ways.
    append_one(store, event("again", "k").id("r1")).await;
    let again = take_one(store, "again").await;
    settle_after(store, &again, RETRY, LONG).await;
    dead(store, "dead", "k", &["x1", "x2"]).await;
    dead(store, "dead", "quoted", &["q1", "q2"]).await;
    erase_event(store, &lane("dead", "quoted"), "q1").await;
    dead(store, "purged", "k", &["p1"]).await;
    purge(store, "purged", PurgeWhat::Dead).await;
    append_one(store, event("cancelled", "k").id("c1").quiet(3_600)).await;
    cancel(store, &lane("cancelled", "k")).await;
    append(store, ["s1", "s2", "s3"].map(|id| event("split", "k").id(id))).await;
    let split = take(store, "split", on_failed(OnFailed::Bisect)).await;
    settle(store, &split[0], FAILED).await;
    let head = dead(store, "redriven", "head", &["h1", "h2"]).await;
    redrive(store, head.run_id).await;
    control(store, ControlAction::PauseLane(lane("redriven", "head"))).await;
    let new = dead(store, "redriven", "new", &["n1", "n2"]).await;
    redrive_as_new(store, new.run_id).await;
    control(store, ControlAction::PauseLane(lane("redriven", "new"))).await;
    // Waiting for an operator, or for a time.
    append(store, ["b1", "b2"].map(|id| event("blocked", "k").id(id).max_events(1))).await;
    let blocked = take(store, "blocked", on_failed(OnFailed::Block)).await;
    settle(store, &blocked[0], FAILED).await;
    control(store, ControlAction::PauseQueue(whole("chat"))).await;
    control(store, ControlAction::PauseQueue(scoped("done", "acme"))).await;
    append(store, ["l1", "l2"].map(|id| event("late", "k").id(id).delay(3_600).priority(2))).await;
    let nightly = schedule("nightly", "0 3 * * *", &lane("calendar", "k"));
    control(store, ControlAction::PutSchedule(nightly)).await;
    // On shelves, for ever and for a time.
    let body = json!({ "hash": "\u{0}ö", "scale": 0.1 });
    put_document(store, Shelf::Tokens, "ada", body, None).await;
    put_document(store, Shelf::Tokens, "ö'", json!([u64::MAX]), Some(LONG)).await;
    put_document(store, Shelf::Workers, "ada", json!(null), Some(secs(86_400))).await;
    // Governed: a source with a streak, tokens taken and a kept answer, one that is disabled, one that is removed.
    for (name, rules) in [("shop", rate(1, 5)), ("bank", breaker(3)), ("post", breaker(3))] {
        declare(store, name, rules).await;
    }
    append(store, ["g1", "g2"].map(|id| event("governed", "k").id(id).source("shop").max_events(1))).await;
    let governed = take_one(store, "governed").await;
    ask(store, &governed, keep_answer("coin", json!({ "price": 0.1 }))).await;
    settle_saying(store, &governed, SUCCEEDED, fault()).await;
    append(
        store,
        [event("governed", "bank").of("acme").source("bank"), event("governed", "post").source("post")],
    )
    .await;
    let scope = SourceScope { tenant: tenant("acme"), name: source_name("bank") };
    control(store, ControlAction::DisableSource(scope)).await;
    control(store, ControlAction::RemoveSource { name: source_name("post") }).await;
    // Gone but for its records.
    append_one(store, event("erased", "k").id("e1")).await;
    erase_lane(store, &lane("erased", "k")).await;
    // Due, with more than one page of small things.
    append(store, (0..300).map(|n| event("ready", &format!("k{n}")).id("only"))).await;
    // Held by somebody, with newer events behind.
    append_one(store, event("held", "k").id("f1")).await;
    let long = RunPolicy { lease: LONG, ..policy() };
    let held = take(store, "held", long).await.pop().expect("it is due");
    step(store, &held, "begun", StepAction::Begin).await;
    step(store, &held, "known", StepAction::Finish(json!(1))).await;
    append_one(store, event("held", "k").id("f2").quiet(3_600)).await;
    Filled { held }
}

fn keep_answer(key: &str, value: serde_json::Value) -> SourceAction {
    SourceAction::Keep { key: key.into(), value, ttl: None }
}

/// The state of the sources, without what time alone changes.
async fn sources(store: &dyn Store) -> Vec<SourceRow> {
    let filter = SourceFilter { limit: 500, ..SourceFilter::default() };
    let mut rows = source_page(store, filter).await.items;
    rows.iter_mut().for_each(|row| row.tokens = None);
    rows
}

async fn schedules(store: &dyn Store) -> Vec<ScheduleRow> {
    match store.inspect(Inspect::Schedules).await.expect("reads are answered") {
        Inspected::Schedules(rows) => rows,
        other => panic!("not schedules: {other:?}"),
    }
}

/// Whoever looks at both sees the same, but for what depends on how late it is: the two need not agree about that.
pub async fn assert_same(from: &dyn Store, to: &dyn Store) {
    let lanes = async |store| {
        let filter = LaneFilter { idle: true, limit: 500, ..LaneFilter::default() };
        let mut lanes = all_lanes(store, filter).await;
        lanes.sort_by(|a, b| a.lane.cmp(&b.lane));
        for row in &mut lanes {
            row.why.clear();
            if row.reason == Reason::Due {
                row.reason = Reason::Window;
            }
        }
        lanes
    };
    let (one, other) = (lanes(from).await, lanes(to).await);
    assert_eq!(one, other, "the lanes");
    for row in &one {
        let detail = async |store| {
            let detail = lane_detail(store, &row.lane).await.expect("it was listed");
            let ids: Vec<_> = detail.events.iter().map(|e| (e.seq, e.id.clone())).collect();
            (detail.open_run, detail.current_run, detail.queued_runs, detail.delayed, ids)
        };
        assert_eq!(detail(from).await, detail(to).await, "{}", row.lane);
    }
    let runs = async |store| {
        let all = all_runs(store, RunFilter { limit: 500, ..RunFilter::default() }).await;
        let (ended, mut live): (Vec<_>, Vec<_>) = all.into_iter().partition(|run| run.state.is_final());
        live.sort_by_key(|run| run.id);
        // The latest end first; of those that ended in the same millisecond not every store knows the order.
        assert!(ended.is_sorted_by_key(|run| std::cmp::Reverse(run.completed_at)), "the order of ending");
        let mut ended = ended;
        ended.sort_by_key(|run| (run.completed_at, run.id));
        (live, ended)
    };
    let (one, other) = (runs(from).await, runs(to).await);
    assert_eq!(one, other, "the runs");
    for run in one.0.iter().chain(&one.1) {
        let detail = async |store| {
            let detail = run_detail(store, run.id).await.expect("it was listed");
            serde_json::to_value(&*detail).expect("details are JSON")
        };
        assert_eq!(detail(from).await, detail(to).await, "{}", run.id);
    }
    let records = async |store| trail(store, AuditFilter { limit: 500, ..AuditFilter::default() }).await;
    assert_eq!(records(from).await, records(to).await, "the trail");
    let totals = async |store| {
        let mut rows = stats(store).await;
        rows.iter_mut().for_each(|row| row.oldest_due_ms = None);
        rows.retain(|row| row.totals.accepted > 0);
        rows
    };
    assert_eq!(totals(from).await, totals(to).await, "the counters");
    assert_eq!(schedules(from).await, schedules(to).await, "the schedules");
    assert_eq!(sources(from).await, sources(to).await, "the sources");
    for shelf in Shelf::ALL {
        assert_eq!(documents(from, shelf).await, documents(to, shelf).await, "the documents");
    }
    for store in [from, to] {
        assert_eq!(verify(store).await.problems, Vec::<String>::new());
    }
}

/// Nothing can be changed, by any verb; reads go on.
pub async fn assert_sealed(side: &Side, held: &Batch) {
    let by = side.portable.sealed().await.expect("it says so").expect("it is sealed");
    let store = &*side.store;
    let before = counts(side).await;
    let empty = AppendRequest { events: vec![event("seal", "k").build()], repeat: false };
    let all = claim_request(&worker("late"));
    let nothing = ClaimRequest {
        queues: ClaimQueues::Listed(vec![from_queue("nothing-there", policy(), 1)]),
        ..all.clone()
    };
    let sweep = SweepRequest { reclaim: true, retention: Some(Duration::ZERO) };
    let refusals = [
        refused(store.append(empty).await, ErrorKind::Unavailable),
        refused(store.claim(all).await, ErrorKind::Unavailable),
        refused(store.claim(nothing).await, ErrorKind::Unavailable),
        refused(store.extend(extend_request(held, secs(60))).await, ErrorKind::Unavailable),
        refused(store.hold(hold_request(held, None)).await, ErrorKind::Unavailable),
        refused(store.step(step_request(held, "s", StepAction::Begin)).await, ErrorKind::Unavailable),
        refused(try_settle(store, held, SUCCEEDED).await, ErrorKind::Unavailable),
        refused(store.source(source_request(held, SourceAction::Take)).await, ErrorKind::Unavailable),
        refused(store.sweep(sweep).await, ErrorKind::Unavailable),
        refused(try_put_document(store, Shelf::Tokens, "seal", json!(1), None).await, ErrorKind::Unavailable),
        refused(shelf_remove(store, "nobody").await, ErrorKind::Unavailable),
        refused(shelf_remove(store, "ada").await, ErrorKind::Unavailable),
        refused(
            try_control(store, ControlAction::PauseLane(lane("seal", "k"))).await,
            ErrorKind::Unavailable,
        ),
    ];
    for refusal in refusals {
        assert!(refusal.detail.contains(&format!("sealed by {by}")), "{refusal}");
        assert!(refusal.detail.contains("quell store unseal --force"), "{refusal}");
    }
    assert_eq!(counts(side).await, before, "nothing has changed");
    assert_eq!(documents(store, Shelf::Tokens).await[0].name, "ada", "a list is a read");
}

async fn shelf_remove(store: &dyn Store, name: &str) -> StoreResult<ShelfAnswer> {
    let action = ShelfAction::Remove { name: name.to_owned() };
    store.shelf(ShelfRequest { shelf: Shelf::Tokens, action }).await
}

async fn counts(side: &Side) -> Counts {
    side.portable.frame().await.expect("reads are answered").counts
}

pub async fn everything_arrives_and_the_copy_works_at_once(from: &Side, to: &Side, copier: &Copier) {
    let Filled { held } = fill(&*from.store).await;
    let before = from.portable.frame().await.expect("reads are answered");
    copier(&*from.portable, &*to.portable).await.expect("the copy is made");
    assert_same(&*from.store, &*to.store).await;
    assert_sealed(from, &held).await;
    assert_eq!(to.portable.sealed().await, Ok(None), "the copy is open");
    assert_eq!(to.portable.place().await, Ok(None));

    let store = &*to.store;
    // What was governed is governed, what was kept is kept.
    let batch = take_one(store, "governed").await;
    assert_eq!(ids(&batch), ["g2"], "the others are held");
    let recall = SourceAction::Recall { key: "coin".into(), ttl: None };
    assert_eq!(ask(store, &batch, recall).await, SourceAnswer::Hit(json!({ "price": 0.1 })));
    settle(store, &batch, SUCCEEDED).await;
    let unknown = event("governed", "k").source("post");
    refused(try_append(store, [unknown]).await, ErrorKind::Invalid);
    // What was sent before is known: by the sender's ids, by made ids when a request is repeated, by content.
    let again = append(store, [event("chat", "ada").id("a").quiet(3_600)]).await;
    assert!(again[0].duplicate);
    let edited = append(store, [event("chat", "ada").id("b").quiet(3_600)]).await;
    assert!(edited[0].duplicate, "the fingerprint is that of what was sent");
    let other = event("chat", "ada").id("a").payload(json!("other"));
    refused(try_append(store, [other]).await, ErrorKind::Conflict);
    let made = AppendRequest { repeat: true, ..append_request([event("chat", "ada").made("made-1")]) };
    assert!(store.append(made).await.expect("it is done").receipts[0].duplicate);
    let same = event("news", "n").payload(json!([1.5, "ä"])).content_dedupe().quiet(3_600);
    assert!(store.append(append_request([same])).await.expect("it is done").receipts[0].duplicate);
    let late = append(store, [event("late", "k").id("l1").delay(3_600).priority(2)]).await;
    assert!(late[0].duplicate, "also what is aside");
    // Numbers go on.
    let fresh = append_one(store, event("chat", "ada").id("fresh").quiet(3_600)).await;
    assert!(seq_of(&fresh) > before.last_number, "{fresh:?} {}", before.last_number);
    // The holder goes on with its token and what it remembers, and ends its run here.
    let known = step(store, &held, "known", StepAction::Finish(json!(2))).await;
    assert_eq!(known, StepAnswer::Done { value: json!(1), stored: false });
    settle(store, &held, SUCCEEDED).await;
    // What is due is handed over, what is paused or blocked is not, and what is aside comes in time.
    let ready = take(store, "ready", policy()).await;
    assert_eq!(ready.len(), 100);
    assert!(take(store, "chat", policy()).await.is_empty(), "its queue is paused");
    assert!(take(store, "blocked", policy()).await.is_empty());
    assert_eq!(take(store, "told", policy()).await.len(), 1, "the notice has entered its lane");
    let tokens = || async { documents(store, Shelf::Tokens).await.len() };
    assert_eq!(tokens().await, 2);
    (to.advance)(2 * LONG).await;
    assert_eq!(tokens().await, 1, "a document is gone at its moment, wherever it was put");
    let late = take_one(store, "late").await;
    assert_eq!(late.events.len(), 2);
    assert_eq!(take_one(store, "again").await.attempt, 2);
    (to.advance)(secs(86_400)).await;
    assert_eq!(take(store, "calendar", policy()).await.len(), 1, "the schedule fires");
    assert_eq!(verify(store).await.problems, Vec::<String>::new());
}

/// Lanes that nobody has touched for a while are not copied again, and what has changed is, whoever changed it.
pub async fn changes_between_the_passes_arrive(from: &Side, to: &Side, copier: &Copier) {
    let Filled { held } = fill(&*from.store).await;
    dead(&*from.store, "letters", "k", &["x"]).await;
    dead(&*from.store, "letters", "quotes", &["y1", "y2"]).await;
    append_one(&*from.store, event("forgotten", "k").id("z1")).await;
    let old = take_one(&*from.store, "forgotten").await;
    settle(&*from.store, &old, SUCCEEDED).await;
    (from.advance)(secs(600)).await;
    let lanes = counts(from).await.lanes;
    let store = from.store.clone();
    let batch = held.clone();
    let changes = async move {
        let store = &*store;
        append_one(store, event("chat", "ada").id("between").quiet(3_600)).await;
        append_one(store, event("fresh", "k").id("between")).await;
        append_one(store, event("late", "k").id("l3").delay(3_600)).await;
        step(store, &batch, "later", StepAction::Begin).await;
        // Neither the purge nor the erasure touches the row of the lane, nor does the retention.
        purge(store, "letters", PurgeWhat::Dead).await;
        erase_event(store, &lane("letters", "quotes"), "y1").await;
        erase_lane(store, &lane_of("acme", "chat", "bob")).await;
        control(store, ControlAction::ResumeQueue(whole("chat"))).await;
        control(store, ControlAction::PutSchedule(schedule("hourly", "0 * * * *", &lane("calendar", "k"))))
            .await;
        let removed = forget(store, secs(300)).await;
        assert!(removed.removed_runs > 0 && removed.removed_audit > 0, "{removed:?}");
    };
    let source = Through::new(from.portable.clone());
    source.before_seal(changes);
    let again = copier(&source, &*to.portable).await.expect("the copy is made");
    assert!(again < lanes / 2, "{again} of {lanes} lanes were copied twice");
    assert_same(&*from.store, &*to.store).await;
    settle(&*to.store, &held, SUCCEEDED).await;
    assert_sealed(from, &held).await;
}

/// A copy that fails anywhere goes on from there, however often.
pub async fn a_copy_that_was_cut_short_goes_on(from: &Side, to: &Side, copier: &Copier) {
    let Filled { held } = fill(&*from.store).await;
    let (mut tries, mut calls) = (0, 1);
    loop {
        let target = Through::new(to.portable.clone());
        target.writes_left.store(calls, Ordering::SeqCst);
        match copier(&*from.portable, &target).await {
            Ok(_) => break,
            Err(error) => assert!(error.contains("cut short"), "{error}"),
        }
        tries += 1;
        // Sometimes it does not get far enough to make progress.
        calls = if calls < 12 { calls + 1 } else { 2 * calls };
        assert!(tries < 60, "it never ends");
    }
    assert!(tries > 5, "it was cut short {tries} times");
    assert_same(&*from.store, &*to.store).await;
    settle(&*to.store, &held, SUCCEEDED).await;
}

pub async fn a_target_with_something_in_it_is_refused(from: &Side, to: &Side, copier: &Copier) {
    append_one(&*from.store, event("chat", "k").id("a")).await;
    append_one(&*to.store, event("chat", "k").id("b")).await;
    let error = copier(&*from.portable, &*to.portable).await.expect_err("it is refused");
    assert!(error.contains("not empty"), "{error}");
    assert_eq!(from.portable.sealed().await, Ok(None), "and nothing is sealed");
    assert_eq!(to.portable.sealed().await, Ok(None));
    append_one(&*from.store, event("chat", "k").id("c")).await;
    append_one(&*to.store, event("chat", "k").id("d")).await;
}

/// A source that has been copied is copied again only by force.
pub async fn a_store_that_has_moved_is_not_copied_again(from: &Side, to: &Side, copier: &Copier) {
    append_one(&*from.store, event("chat", "k").id("a")).await;
    copier(&*from.portable, &*to.portable).await.expect("the copy is made");
    let error = copier(&*from.portable, &*to.portable).await.expect_err("it is refused");
    assert!(error.contains("unseal --force"), "{error}");
    from.portable.seal(None).await.expect("the seal is lifted");
    append_one(&*from.store, event("chat", "k").id("b")).await;
    let error = copier(&*from.portable, &*to.portable).await.expect_err("it is refused");
    assert!(error.contains("not empty"), "{error}");
}

/// One byte that is not the same, in any kind of row, is found and named.
pub async fn a_wrong_byte_is_found(from: &Side, to: &Side, copier: &Copier, kind: Wrong) {
    fill(&*from.store).await;
    let target = Through::new(to.portable.clone());
    target.spoil(kind);
    let error = copier(&*from.portable, &target).await.expect_err("it is found");
    assert!(error.contains("must not be used") && error.contains(kind.told()), "{kind:?}: {error}");
    assert!(to.portable.place().await.expect("it answers").is_some(), "the target keeps its place");
    assert!(to.portable.sealed().await.expect("it answers").is_some(), "and nobody works with it");
}

/// What is written wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Event,
    Run,
    Step,
    Aside,
    Trail,
    Document,
}

impl Wrong {
    pub const ALL: [Wrong; 6] =
        [Wrong::Event, Wrong::Run, Wrong::Step, Wrong::Aside, Wrong::Trail, Wrong::Document];

    fn told(self) -> &'static str {
        match self {
            Wrong::Event => "its events differ",
            Wrong::Run => "its runs differ",
            Wrong::Step => "its steps differ",
            Wrong::Aside => "the events aside differ",
            Wrong::Trail => "audit records",
            Wrong::Document => "the documents on shelves differ",
        }
    }

    /// Changes the row if it is one of this kind.
    fn spoil(self, row: &mut Row) -> bool {
        let payload = || Payload::of(&json!({ "id": "A" }));
        match (self, row) {
            (Wrong::Event, Row::Event(_, kept)) => kept.event.payload = payload(),
            (Wrong::Run, Row::Run(run)) => run.ended.run.bytes += 1,
            (Wrong::Step, Row::Step(_, step)) => step.token += 1,
            (Wrong::Aside, Row::Aside(aside)) => aside.event.payload = payload(),
            (Wrong::Trail, Row::Trail(trail)) => trail.record.upto_seq += 1,
            _ => return false,
        }
        true
    }
}

type Changes = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store with a hand on what goes into it.
pub struct Through {
    inner: Arc<dyn Portable>,
    changes: Mutex<VecDeque<Changes>>,
    /// Writes that are still done; a negative number means all.
    writes_left: AtomicI64,
    wrong: Mutex<Option<Wrong>>,
}

impl Through {
    pub fn new(inner: Arc<dyn Portable>) -> Self {
        Through { inner, changes: Mutex::default(), writes_left: AtomicI64::new(-1), wrong: Mutex::default() }
    }

    /// Done once, just before the store is sealed.
    pub fn before_seal(&self, changes: impl Future<Output = ()> + Send + 'static) {
        self.changes.lock().expect("no test panics while it is locked").push_back(Box::pin(changes));
    }

    /// From now on the first row of this kind in each write is wrong.
    pub fn spoil(&self, kind: Wrong) {
        *self.wrong.lock().expect("no test panics while it is locked") = Some(kind);
    }

    fn write(&self) -> StoreResult<()> {
        if self.writes_left.load(Ordering::SeqCst) < 0 {
            return Ok(());
        }
        match self.writes_left.fetch_sub(1, Ordering::SeqCst) {
            0 => {
                self.writes_left.store(0, Ordering::SeqCst);
                Err(StoreError::unavailable("cut short"))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Portable for Through {
    async fn sealed(&self) -> StoreResult<Option<String>> {
        self.inner.sealed().await
    }

    async fn seal(&self, by: Option<&str>) -> StoreResult<()> {
        let changes = self.changes.lock().expect("no test panics while it is locked").pop_front();
        if let Some(changes) = changes {
            changes.await;
        }
        self.write()?;
        self.inner.seal(by).await
    }

    async fn frame(&self) -> StoreResult<Frame> {
        self.inner.frame().await
    }

    async fn lanes(&self, after: u64, most: usize) -> StoreResult<Vec<LaneRow>> {
        self.inner.lanes(after, most).await
    }

    async fn events(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<Kept>> {
        self.inner.events(lane, after, most).await
    }

    async fn runs(&self, lane: u64, after: u64, most: usize) -> StoreResult<Vec<FinishedRun>> {
        self.inner.runs(lane, after, most).await
    }

    async fn steps(&self, run: RunId) -> StoreResult<Vec<StepRow>> {
        self.inner.steps(run).await
    }

    async fn asides(&self, after: u64, most: usize) -> StoreResult<Vec<Aside>> {
        self.inner.asides(after, most).await
    }

    async fn trail(&self, after: u64, most: usize) -> StoreResult<Vec<Trail>> {
        self.inner.trail(after, most).await
    }

    async fn cached(&self, after: Option<(SourceId, String)>, most: usize) -> StoreResult<Vec<CacheRow>> {
        self.inner.cached(after, most).await
    }

    async fn put(&self, mut rows: Vec<Row>) -> StoreResult<()> {
        self.write()?;
        let wrong = *self.wrong.lock().expect("no test panics while it is locked");
        if let Some(wrong) = wrong {
            let _ = rows.iter_mut().any(|row| wrong.spoil(row));
        }
        self.inner.put(rows).await
    }

    async fn remove_lane(&self, lane: u64) -> StoreResult<()> {
        self.write()?;
        self.inner.remove_lane(lane).await
    }

    async fn take_frame(&self, frame: &Frame) -> StoreResult<()> {
        self.write()?;
        let mut frame = frame.clone();
        if *self.wrong.lock().expect("no test panics while it is locked") == Some(Wrong::Document) {
            frame.documents.iter_mut().for_each(|(_, document)| document.body = json!("A"));
        }
        self.inner.take_frame(&frame).await
    }

    async fn place(&self) -> StoreResult<Option<String>> {
        self.inner.place().await
    }

    async fn set_place(&self, place: Option<&str>) -> StoreResult<()> {
        self.write()?;
        self.inner.set_place(place).await
    }
}
