//! Promises about what an append may ask for beside its event: a window of its own, an idle lane, to be the same as an
//! equal event, and room at the cost of the oldest.

use quell_core::clock::Timestamp;
use quell_core::error::ErrorKind;
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::{ControlAction, Receipt, Store};
use quell_core::totals::Totals;
use quell_core::window::{FiredBy, WindowPolicy};
use serde_json::json;

use crate::World;
use crate::builders::{
    EventBuilder, RETRY, SUCCEEDED, append, append_one, append_request, claim_none, claim_one, control,
    event, ids, lane, redrive, refused, secs, seq_of, settle, settle_after, sweep, try_append,
};
use crate::reads::{
    assert_moment, changes, event_place, health, lane_detail, lane_row, run_detail, state_of, totals,
    trail_of,
};

fn quiet(seconds: u64, cap: u64) -> WindowPolicy {
    WindowPolicy::Quiet { quiet: secs(seconds), max_wait: secs(cap) }
}

fn fixed(seconds: u64) -> WindowPolicy {
    WindowPolicy::Fixed { wait: secs(seconds) }
}

/// An event of the one key that most of these promises need.
fn new(id: &str) -> EventBuilder {
    event("chat", "k1").id(id)
}

/// Appends, whatever id the receipt tells: an equal event is told the first one's.
async fn told(store: &dyn Store, events: impl IntoIterator<Item = EventBuilder>) -> Vec<Receipt> {
    store.append(append_request(events)).await.expect("the append is done").receipts
}

// A window of its own.

/// The moment at which the lane is due.
async fn due(store: &dyn Store) -> Timestamp {
    lane_row(store, &lane("chat", "k1")).await.and_then(|row| row.due_at).expect("it waits")
}

/// Rule 36: the first event of a window fixes its policy, also by a wish of its own.
pub async fn the_first_event_may_bring_a_window_of_its_own(world: &dyn World) {
    let store = world.store();
    let start = health(&*store).await.now;
    let first = append_one(&*store, new("a").fixed(500).own_window(quiet(20, 60))).await;
    assert_moment(world, first.due_at.expect("it waits"), start.after(secs(20)), "its own quiet");
    for _ in 0..3 {
        world.advance(secs(15)).await;
        append_one(&*store, event("chat", "k1").fixed(500)).await;
    }
    assert_moment(world, due(&*store).await, start.after(secs(60)), "its own cap, for all that follow");
    world.advance(secs(20)).await;
    assert_eq!(claim_one(&*store).await.fired_by, FiredBy::Cap);
}

/// Rule 36: the bounds of a batch stay those of the queue.
pub async fn a_window_of_its_own_keeps_the_bounds_of_the_queue(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).max_events(2).own_window(quiet(20, 60));
    append(&*store, [new("a"), new("b"), new("c")]).await;
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["a", "b"], FiredBy::Count));
}

/// Rule 36: a later override sets the quiet period for its own step only.
pub async fn a_later_override_sets_the_quiet_period_of_its_own_step(world: &dyn World) {
    let store = world.store();
    let start = health(&*store).await.now;
    append_one(&*store, new("a").quiet_capped(40, 400)).await;
    append_one(&*store, new("b").quiet_capped(40, 400).own_window(quiet(100, 400))).await;
    assert_moment(world, due(&*store).await, start.after(secs(100)), "longer, for this step");
    world.advance(secs(20)).await;
    append_one(&*store, new("c").quiet_capped(40, 400).own_window(quiet(10, 400))).await;
    assert_moment(world, due(&*store).await, start.after(secs(30)), "shorter, for this step");
    append_one(&*store, new("d").quiet_capped(40, 400)).await;
    assert_moment(world, due(&*store).await, start.after(secs(60)), "and back to the window's own");
}

/// Rule 36: a later override may lower the cap, which is measured from the first event; nobody raises it again.
pub async fn a_later_override_lowers_the_cap_and_never_raises_it(world: &dyn World) {
    let store = world.store();
    let start = health(&*store).await.now;
    append_one(&*store, new("a").quiet_capped(40, 400)).await;
    world.advance(secs(10)).await;
    append_one(&*store, new("b").own_window(quiet(40, 100))).await;
    append_one(&*store, new("c").own_window(quiet(300, 900))).await;
    let row = lane_detail(&*store, &lane("chat", "k1")).await.expect("it waits");
    assert_moment(world, row.waiting.capped_at.expect("a cap"), start.after(secs(100)), "lowered for good");
    assert_moment(world, due(&*store).await, start.after(secs(100)), "the cap holds for its long step, too");
    append_one(&*store, new("d").own_window(fixed(60))).await;
    assert_moment(world, due(&*store).await, start.after(secs(50)), "its step is the window's own");
    append_one(&*store, new("e").own_window(quiet(200, 400))).await;
    assert_moment(world, due(&*store).await, start.after(secs(60)), "and the cap is lower still");
    world.advance(secs(60)).await;
    assert_eq!(claim_one(&*store).await.fired_by, FiredBy::Cap);
}

/// Rule 36: a fixed window may be shortened by a later event, and not lengthened.
pub async fn a_fixed_window_is_shortened_and_never_lengthened(world: &dyn World) {
    let store = world.store();
    let start = health(&*store).await.now;
    append_one(&*store, new("a").fixed(100)).await;
    append_one(&*store, new("b").own_window(fixed(300))).await;
    append_one(&*store, new("c").own_window(quiet(200, 300))).await;
    assert_moment(world, due(&*store).await, start.after(secs(100)), "not lengthened");
    append_one(&*store, new("d").own_window(quiet(10, 50))).await;
    assert_moment(world, due(&*store).await, start.after(secs(50)), "shortened to its longest wait");
    world.advance(secs(60)).await;
    assert_eq!(claim_one(&*store).await.fired_by, FiredBy::Fixed);
}

/// Rule 36: `none` from a later event acts as a flush, and closes the window for good.
pub async fn a_later_window_of_none_acts_as_a_flush(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").quiet(100), new("b").quiet(100).own_window(WindowPolicy::None)]).await;
    append_one(&*store, new("c").quiet(100)).await;
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["a", "b", "c"], FiredBy::Flush));
    settle(&*store, &batch, SUCCEEDED).await;
    append_one(&*store, new("d").quiet(100).own_window(WindowPolicy::None)).await;
    assert_eq!(claim_one(&*store).await.fired_by, FiredBy::None, "as the first it is simply no window");
}

/// Rule 36: an override concerns the open window alone: the next one is the queue's again.
pub async fn an_override_does_not_outlive_its_window(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").quiet(100), new("b").own_window(quiet(10, 20))]).await;
    world.advance(secs(25)).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    let start = health(&*store).await.now;
    append_one(&*store, new("c").quiet(100)).await;
    assert_moment(world, due(&*store).await, start.after(secs(100)), "the queue's own");
}

/// A window that cannot work is refused wherever it comes from, and nothing is stored.
pub async fn an_impossible_window_of_its_own_is_refused(world: &dyn World) {
    let store = world.store();
    for bad in [quiet(0, 10), quiet(20, 10), fixed(0), fixed(8 * 86_400)] {
        refused(try_append(&*store, [new("a"), new("b").own_window(bad)]).await, ErrorKind::Invalid);
    }
    assert_eq!(totals(&*store, "chat").await, Totals::default());
}

// Only an idle lane.

/// Unique work is refused while its lane has anything to do, in whatever state, and accepted when it is idle.
pub async fn only_if_idle_is_refused_while_the_lane_has_work(world: &dyn World) {
    let store = world.store();
    let unique = |id: &str| new(id).only_if_idle();
    let refuse = async |what: &str| {
        let error = refused(try_append(&*store, [unique("late")]).await, ErrorKind::NotIdle);
        assert!(error.detail.contains("chat/k1"), "{what}: {error}");
    };
    append_one(&*store, unique("a")).await;
    refuse("buffered").await;
    let batch = claim_one(&*store).await;
    refuse("running").await;
    settle_after(&*store, &batch, RETRY, secs(10)).await;
    refuse("in backoff").await;
    world.advance(secs(20)).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    append_one(&*store, unique("b")).await;
    assert_eq!(totals(&*store, "chat").await.accepted, 2, "refused means that nothing was stored");
}

/// An event that is only delayed is work too.
pub async fn only_if_idle_is_refused_while_an_event_is_aside(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a").delay(30).only_if_idle()).await;
    refused(try_append(&*store, [new("b").only_if_idle()]).await, ErrorKind::NotIdle);
    refused(try_append(&*store, [new("b").only_if_idle().delay(10)]).await, ErrorKind::NotIdle);
    append_one(&*store, event("chat", "k2").only_if_idle()).await;
    world.advance(secs(35)).await;
    sweep(&*store).await;
    assert_eq!(
        state_of(&*store, &lane("chat", "k1"), "a").await,
        Some(RunState::Pending),
        "it enters all the same"
    );
}

/// Two in one request are not both alone, so the request is refused; a duplicate is answered and needs no idle lane.
pub async fn only_if_idle_counts_its_own_request_and_answers_duplicates(world: &dyn World) {
    let store = world.store();
    let unique = |id: &str| new(id).only_if_idle();
    refused(try_append(&*store, [unique("a"), unique("b")]).await, ErrorKind::NotIdle);
    refused(try_append(&*store, [new("a").delay(30), unique("b")]).await, ErrorKind::NotIdle);
    assert_eq!(totals(&*store, "chat").await, Totals::default());
    let first = append_one(&*store, unique("a")).await;
    let again = append(&*store, [unique("a"), unique("a")]).await;
    assert!(again.iter().all(|r| r.duplicate && r.seq == first.seq), "{again:?}");
    refused(try_append(&*store, [event("chat", "k2"), unique("b")]).await, ErrorKind::NotIdle);
    assert_eq!(totals(&*store, "chat").await.accepted, 1);
}

/// Of many senders at once exactly one finds the lane idle.
pub async fn only_one_of_many_finds_the_lane_idle(world: &dyn World) {
    let mut tasks = Vec::new();
    for n in 0..12 {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        let unique = new(&format!("e{n}")).only_if_idle();
        let unique = if n % 3 == 0 { unique.delay(30) } else { unique };
        tasks.push(tokio::spawn(async move { try_append(&*store, [unique]).await }));
    }
    let mut done = 0;
    for task in tasks {
        match task.await.expect("no task panics") {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error.kind, ErrorKind::NotIdle, "{error}"),
        }
    }
    assert_eq!((done, totals(&*world.store(), "chat").await.accepted), (1, 1));
}

// The same content.

/// With `content_dedupe` an event without an id that equals one of the open window is that event: same receipt, same
/// window.
pub async fn an_equal_event_of_the_open_window_is_the_same_event(world: &dyn World) {
    let store = world.store();
    let ok = || event("chat", "k1").quiet(20).content_dedupe().payload(json!({ "say": "ok", "n": 1 }));
    let first = append_one(&*store, ok()).await;
    world.advance(secs(10)).await;
    let spaced = ok().raw("{ \"n\": 1.0, \"say\": \"ok\" }");
    for again in told(&*store, [ok(), spaced]).await {
        assert!(again.duplicate);
        assert_eq!(again.event_id, first.event_id, "the first event's receipt");
        assert_eq!((again.seq, again.run_id, again.due_at), (first.seq, first.run_id, first.due_at));
    }
    world.advance(secs(15)).await;
    assert_eq!(claim_one(&*store).await.events.len(), 1, "and the window did not move");
    let expected = Totals { accepted: 1, in_flight: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Only while the window is open: closed by count or flush, or claimed, the same text is a new event.
pub async fn an_equal_event_after_the_window_is_a_new_one(world: &dyn World) {
    let store = world.store();
    let ok = || event("chat", "k1").quiet(20).content_dedupe().payload(json!("ok"));
    append_one(&*store, ok()).await;
    control(&*store, ControlAction::Flush(lane("chat", "k1"))).await;
    append_one(&*store, ok()).await;
    let batch = claim_one(&*store).await;
    assert_eq!(batch.events.len(), 2, "a flushed window is not open");
    append_one(&*store, ok()).await;
    assert!(told(&*store, [ok()]).await[0].duplicate, "it opened the next window");
    settle(&*store, &batch, SUCCEEDED).await;
    world.advance(secs(25)).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    append_one(&*store, ok().max_events(1)).await;
    append_one(&*store, ok().max_events(1)).await;
    assert_eq!(totals(&*store, "chat").await.buffered, 2, "a full window is not open");
}

/// Two equal ones in one request are one event.
pub async fn equal_events_of_one_request_are_one(world: &dyn World) {
    let store = world.store();
    let say = |text: &str| event("chat", "k1").quiet(20).content_dedupe().payload(json!(text));
    let receipts = told(&*store, [say("ok"), say("yes"), say("ok")]).await;
    assert_eq!(receipts.iter().map(|r| r.duplicate).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((&receipts[2].event_id, receipts[2].seq), (&receipts[0].event_id, receipts[0].seq));
    assert_eq!(totals(&*store, "chat").await.accepted, 2);
}

/// Not across lanes, not without the setting, and never for an event that brings an id of its own.
pub async fn equal_events_are_merged_only_where_that_is_asked_for(world: &dyn World) {
    let store = world.store();
    let ok = |key: &str| event("chat", key).quiet(20).content_dedupe().payload(json!("ok"));
    append_one(&*store, ok("k1")).await;
    append_one(&*store, ok("k2")).await;
    append_one(&*store, ok("k1").of("acme")).await;
    append_one(&*store, event("chat", "k1").quiet(20).payload(json!("ok"))).await;
    append_one(&*store, ok("k1").id("a").payload(json!("ok"))).await;
    append_one(&*store, ok("k1").id("b").payload(json!("ok"))).await;
    assert_eq!(totals(&*store, "chat").await.accepted, 5);
    let asked = told(&*store, [ok("k3").id("c").payload(json!("ok")), ok("k3")]).await;
    assert!(asked[1].duplicate && asked[1].event_id.as_str() == "c", "an id is told to those who have none");
}

/// Equal content is found in the lane only: a delayed event is neither compared nor compared with.
pub async fn a_delayed_event_is_never_merged_by_its_content(world: &dyn World) {
    let store = world.store();
    let ok = || event("chat", "k1").quiet(50).content_dedupe().payload(json!("ok"));
    append_one(&*store, ok().delay(10)).await;
    append_one(&*store, ok().delay(10)).await;
    append_one(&*store, ok()).await;
    world.advance(secs(20)).await;
    sweep(&*store).await;
    assert_eq!(totals(&*store, "chat").await.buffered, 3);
}

// Room at the cost of the oldest.

/// Rule 19: with `drop_oldest` a full lane drops its oldest buffered events: recorded, counted, kept and redrivable.
pub async fn a_full_lane_drops_its_oldest_and_records_it(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).fixed(50).lane_events(2).drop_oldest();
    append(&*store, [new("a"), new("b")]).await;
    let receipts = append(&*store, [new("c")]).await;
    assert!(!receipts[0].duplicate && seq_of(&receipts[0]) > 0);
    let expected = Totals { accepted: 3, buffered: 2, discarded: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    let place = event_place(&*store, &lane("chat", "k1"), "a").await.expect("it is kept");
    assert_eq!(place.state, Some(RunState::Cancelled));
    let run = place.run_id.expect("it has a run of its own");
    let trail = trail_of(&*store, "chat", "k1").await;
    assert_eq!((changes(&trail), trail[0].run), (vec![Change::Dropped], Some(run)));
    assert_eq!(trail[0].other_run, receipts[0].run_id, "the record names the run that it left");
    let detail = run_detail(&*store, run).await.expect("it is kept");
    assert_eq!((detail.row.events, detail.list[0].id.as_str()), (1, "a"));
    assert_eq!(redrive(&*store, run).await.events, 1);
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["a"], FiredBy::Redrive));
    settle(&*store, &batch, SUCCEEDED).await;
    world.advance(secs(60)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["b", "c"]);
}

/// Rule 19: as many as are needed, the oldest first, also for several events of one request.
pub async fn as_many_of_the_oldest_are_dropped_as_are_needed(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).fixed(50).lane_events(3).drop_oldest();
    append(&*store, ["a", "b", "c"].map(new)).await;
    append(&*store, ["d", "e"].map(new)).await;
    let detail = lane_detail(&*store, &lane("chat", "k1")).await.expect("it waits");
    assert_eq!(detail.events.iter().map(|e| e.id.as_str()).collect::<Vec<_>>(), ["c", "d", "e"]);
    refused(try_append(&*store, ["f", "g", "h", "i"].map(new)).await, ErrorKind::Full);
    assert_eq!(totals(&*store, "chat").await.discarded, 2, "a request does not drop its own events");
}

/// Rule 19: dropping does not restart the window: a busy key that overflows is still due at its cap.
pub async fn dropping_does_not_move_the_window(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).fixed(50).lane_events(1).drop_oldest();
    let start = health(&*store).await.now;
    append_one(&*store, new("a")).await;
    for id in ["b", "c", "d"] {
        world.advance(secs(10)).await;
        append_one(&*store, new(id)).await;
    }
    assert_moment(world, due(&*store).await, start.after(secs(50)), "measured from the first event");
    world.advance(secs(30)).await;
    assert_eq!(ids(&claim_one(&*store).await), ["d"]);
}

/// Rule 19: never what a worker holds: with nothing buffered to drop, the sender is told.
pub async fn events_in_flight_are_never_dropped(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).lane_events(2).drop_oldest();
    append(&*store, [new("a"), new("b")]).await;
    let batch = claim_one(&*store).await;
    refused(try_append(&*store, [new("c")]).await, ErrorKind::Full);
    settle_after(&*store, &batch, RETRY, secs(10)).await;
    refused(try_append(&*store, [new("c")]).await, ErrorKind::Full);
    assert_eq!(totals(&*store, "chat").await, Totals { accepted: 2, in_flight: 2, ..Totals::default() });
    world.advance(secs(20)).await;
    let again = claim_one(&*store).await;
    assert_eq!(ids(&again), ["a", "b"]);
    settle(&*store, &again, SUCCEEDED).await;
    append(&*store, [new("d").max_events(1), new("e")]).await;
    let held = claim_one(&*store).await;
    append_one(&*store, new("f")).await;
    assert_eq!(
        state_of(&*store, &lane("chat", "k1"), "e").await,
        Some(RunState::Cancelled),
        "only the buffered one"
    );
    settle(&*store, &held, SUCCEEDED).await;
    assert_eq!(ids(&claim_one(&*store).await), ["f"]);
    claim_none(&*store).await;
}
