//! Promises about events that are accepted but not in their lane yet: delayed ones wait aside, block nobody, are counted
//! and found there, and enter their lane in the order in which they are ready.
//!
//! Every claim takes in what is ready for its queues, every sweep for all of them, so the promises here advance time and
//! then look with either.

use std::time::Duration;

use quell_core::error::ErrorKind;
use quell_core::event::NewEvent;
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::{AppendRequest, ClaimQueues, ClaimRequest, ControlAction, Store, SweepRequest};
use quell_core::totals::Totals;
use quell_core::window::{FiredBy, WindowPolicy};
use serde_json::json;

use crate::World;
use crate::builders::{
    EventBuilder, SUCCEEDED, append, append_one, append_request, claim, claim_all, claim_none, claim_one,
    claim_request, control, event, from_queue, ids, keys, lane, policy, refused, secs, seq_of, seqs, settle,
    sweep, try_append, worker,
};
use crate::reads::{
    assert_moment, changes, event_place, health, lane_detail, lane_row, state_of, totals, trail_of,
};

/// An event of the one key that most of these promises need.
fn new(id: &str) -> EventBuilder {
    event("chat", "k1").id(id)
}

/// The ids of the one batch that is due, which then succeeds.
async fn done(store: &dyn Store) -> Vec<String> {
    let batch = claim_one(store).await;
    settle(store, &batch, SUCCEEDED).await;
    ids(&batch).into_iter().map(str::to_owned).collect()
}

// Accepted, counted, found.

/// Rule 27: a delayed event is accepted without a number and without a run; its receipt says when it will be ready.
pub async fn a_delayed_event_is_accepted_without_number_and_run(world: &dyn World) {
    let store = world.store();
    let now = health(&*store).await.now;
    let receipt = append_one(&*store, new("a").delay(30).quiet(500)).await;
    assert_eq!((receipt.seq, receipt.run_id, receipt.state), (None, None, None));
    assert_moment(world, receipt.due_at.expect("it says when"), now.after(secs(30)), "ready");
    let expected = Totals { accepted: 1, delayed: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Rule 27: it enters its lane when its delay is over, and not before.
pub async fn a_delayed_event_enters_its_lane_when_its_delay_is_over(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a").delay(30)).await;
    claim_none(&*store).await;
    world.advance(secs(25)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    let batch = claim_one(&*store).await;
    assert_eq!((ids(&batch), batch.fired_by), (vec!["a"], FiredBy::None));
    assert!(batch.events[0].seq > 0, "its number was given at its entry");
    let expected = Totals { accepted: 1, in_flight: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected, "it was accepted once");
}

/// Only where the clock stands still between two calls can the very millisecond be met.
pub async fn a_delay_ends_at_the_very_millisecond_and_not_before(world: &dyn World) {
    if world.clock_runs() {
        return;
    }
    let store = world.store();
    append_one(&*store, new("a").delay(30)).await;
    world.advance(Duration::from_millis(29_999)).await;
    claim_none(&*store).await;
    world.advance(Duration::from_millis(1)).await;
    assert_eq!(done(&*store).await, ["a"]);
}

/// Rule 27: an event aside is found by its id, with its payload and the moment at which it is ready.
pub async fn an_event_aside_is_found_by_its_id(world: &dyn World) {
    let store = world.store();
    let receipt = append_one(&*store, new("a").delay(30)).await;
    let place = event_place(&*store, &lane("chat", "k1"), "a").await.expect("it is aside");
    assert_eq!((place.ready_at, place.run_id, place.state), (receipt.due_at, None, None));
    assert_eq!(place.event.payload.as_str(), r#"{"id":"a"}"#);
    assert_eq!(event_place(&*store, &lane("chat", "k2"), "a").await, None, "it belongs to its lane");
    world.advance(secs(35)).await;
    sweep(&*store).await;
    let place = event_place(&*store, &lane("chat", "k1"), "a").await.expect("it is in its lane");
    assert_eq!((place.ready_at, place.state), (None, Some(RunState::Pending)));
    assert!(place.event.seq > 0 && place.run_id.is_some());
}

/// Rule 27: a lane says how many events of its key are aside.
pub async fn a_lane_tells_how_many_events_are_aside(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").fixed(500), new("b").delay(30), new("c").delay(60)]).await;
    append_one(&*store, event("chat", "k2").delay(30)).await;
    let detail = lane_detail(&*store, &lane("chat", "k1")).await.expect("it has an event");
    assert_eq!((detail.row.buffered, detail.delayed), (1, 2));
    world.advance(secs(35)).await;
    sweep(&*store).await;
    let detail = lane_detail(&*store, &lane("chat", "k1")).await.expect("it has events");
    assert_eq!((detail.row.buffered, detail.delayed), (2, 1));
}

/// Rule 27: what an event wishes for travels with it through its time aside, and through a restart.
pub async fn a_delayed_event_keeps_its_wishes(world: &dyn World) {
    let store = world.store();
    let quiet = WindowPolicy::Quiet { quiet: secs(40), max_wait: secs(400) };
    let wishes = new("a").delay(30).priority(8).own_window(quiet).header("traceparent", "00-abc-01");
    append_one(&*store, wishes.max_events(2)).await;
    drop(store);
    let store = world.reopen().await;
    world.advance(secs(35)).await;
    claim_none(&*store).await;
    let row = lane_row(&*store, &lane("chat", "k1")).await.expect("it is in its lane");
    assert_eq!((row.priority, row.buffered), (8, 1));
    let now = health(&*store).await.now;
    assert_moment(world, row.due_at.expect("it waits"), now.after(secs(40)), "its own window");
    append_one(&*store, new("b")).await;
    let batch = claim_one(&*store).await;
    assert_eq!(batch.fired_by, FiredBy::Count, "the bounds of its queue");
    assert_eq!(batch.events[0].headers["traceparent"], "00-abc-01");
}

/// Rule 27: a delay over the limit is refused, and nothing is stored.
pub async fn a_delay_over_its_limit_is_refused(world: &dyn World) {
    let store = world.store();
    let longest = limits::DELAY_MAX.as_secs();
    let answer = try_append(&*store, [new("a"), new("b").delay(longest + 1)]).await;
    refused(answer, ErrorKind::Limit);
    assert_eq!(totals(&*store, "chat").await, Totals::default());
    append_one(&*store, new("b").delay(longest)).await;
}

// Order and windows.

/// Rule 27: events enter in the order in which they are ready, and those ready at one moment in that of acceptance.
pub async fn delayed_events_enter_in_the_order_of_readiness_and_acceptance(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("z").delay(40), new("y").delay(40)]).await;
    append_one(&*store, new("b").delay(10)).await;
    append(&*store, [new("a").delay(20), new("x").delay(40)]).await;
    world.advance(secs(60)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), ["b", "a", "z", "y", "x"]);
    assert!(seqs(&batch).is_sorted(), "their numbers are given in that order");
}

/// Rule 27: an event aside blocks nobody, neither its own lane nor another.
pub async fn a_delayed_event_blocks_nobody(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("late").delay(30)).await;
    append(&*store, [new("a"), event("chat", "k2").id("b")]).await;
    let batches = claim_all(&*store).await;
    assert_eq!(keys(&batches), ["k1", "k2"]);
    assert_eq!(ids(&batches[0]), ["a"]);
    let before = seqs(&batches[0])[0];
    for batch in &batches {
        settle(&*store, batch, SUCCEEDED).await;
    }
    world.advance(secs(35)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), ["late"]);
    assert!(seqs(&batch)[0] > before, "its place in the lane is that of its entry");
}

/// Rule 27: the window begins with the entry, not when the event was sent.
pub async fn the_window_of_a_delayed_event_begins_at_its_entry(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a").delay(30).fixed(40)).await;
    world.advance(secs(35)).await;
    claim_none(&*store).await;
    let now = health(&*store).await.now;
    let row = lane_row(&*store, &lane("chat", "k1")).await.expect("it is in its lane");
    assert_moment(world, row.due_at.expect("it waits"), now.after(secs(40)), "from its entry");
    world.advance(secs(35)).await;
    claim_none(&*store).await;
    world.advance(secs(10)).await;
    let batch = claim_one(&*store).await;
    assert_eq!(batch.fired_by, FiredBy::Fixed);
    assert_moment(world, batch.first_at, now, "it arrived when it entered");
}

/// Rule 27: a delayed event joins the window that is open when it enters, and moves it like any other event.
pub async fn a_delayed_event_joins_the_window_that_it_meets(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").quiet(50), new("b").delay(30).quiet(50)]).await;
    world.advance(secs(35)).await;
    sweep(&*store).await;
    world.advance(secs(30)).await;
    claim_none(&*store).await;
    world.advance(secs(30)).await;
    assert_eq!(done(&*store).await, ["a", "b"]);
}

/// Rule 17: a pause stops claims, not the clock: what is ready enters a paused lane and waits there.
pub async fn a_paused_lane_takes_ready_events_in(world: &dyn World) {
    let store = world.store();
    let key = lane("chat", "k1");
    append_one(&*store, new("a").delay(30)).await;
    control(&*store, ControlAction::PauseLane(key.clone())).await;
    world.advance(secs(35)).await;
    claim_none(&*store).await;
    assert_eq!(state_of(&*store, &key, "a").await, Some(RunState::Pending));
    control(&*store, ControlAction::ResumeLane(key)).await;
    assert_eq!(done(&*store).await, ["a"]);
}

// Waking up.

/// Rule 27: the next wake-up includes the earliest moment at which something aside is ready.
pub async fn next_at_includes_when_something_aside_is_ready(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1").delay(60), event("chat", "k2").fixed(100)]).await;
    append_one(&*store, event("mail", "k1").delay(30)).await;
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_moment(world, told.next_at.expect("mail is ready first"), told.now.after(secs(30)), "of all");
    let queues = ClaimQueues::Listed(vec![from_queue("chat", policy(), 10)]);
    let listed = ClaimRequest { queues, ..claim_request(&worker("w")) };
    let told = claim(&*store, listed).await;
    assert_moment(world, told.next_at.expect("chat follows"), told.now.after(secs(60)), "of its own queue");
    world.advance(secs(65)).await;
    assert_eq!(keys(&claim_all(&*store).await), ["k1", "k1"]);
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_moment(world, told.next_at.expect("k2 is left"), told.now.after(secs(35)), "only k2 is left");
}

/// Rule 27: somebody who sleeps for longer is woken by an event that will be ready sooner.
pub async fn a_listener_is_woken_by_a_delayed_event(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    append_one(&*store, event("chat", "k2").fixed(500)).await;
    let mut listener = store.wakeups();
    claim_none(&*store).await;
    append_one(&*other, new("a").delay(30)).await;
    let heard = tokio::time::timeout(Duration::from_secs(5), listener.woken()).await;
    assert!(heard.is_ok(), "the listener was not woken by a delayed event");
}

/// Rule 27: a sweep takes in what is ready too, of every queue, so that nothing depends on who claims what.
pub async fn a_sweep_takes_ready_events_in(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").delay(30), event("mail", "k1").id("b").delay(30), new("c").delay(90)]).await;
    world.advance(secs(35)).await;
    sweep(&*store).await;
    assert_eq!(state_of(&*store, &lane("chat", "k1"), "a").await, Some(RunState::Pending));
    assert_eq!(state_of(&*store, &lane("mail", "k1"), "b").await, Some(RunState::Pending));
    let expected = Totals { accepted: 2, buffered: 1, delayed: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
}

/// Many events that are ready at once enter in bounded steps, in order, and the sweep says that there is more.
pub async fn many_ready_events_enter_in_steps_and_in_order(world: &dyn World) {
    let store = world.store();
    let many = limits::ASIDE_STEP + 50;
    let names: Vec<String> = (0..many).map(|n| format!("e{n}")).collect();
    append(&*store, names.iter().map(|name| new(name).delay(30))).await;
    world.advance(secs(35)).await;
    let step = SweepRequest { reclaim: true, retention: None };
    assert!(store.sweep(step).await.expect("the sweep is done").more, "not all of them fit into one step");
    let left = totals(&*store, "chat").await;
    assert!(left.delayed > 0 && left.buffered > 0, "one step takes some of them: {left:?}");
    sweep(&*store).await;
    assert_eq!(totals(&*store, "chat").await.delayed, 0);
    assert_eq!(done(&*store).await, names);
}

/// Rule 27: what is aside is as durable as what is in a lane.
pub async fn delayed_events_survive_a_restart(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("b").delay(60), new("a").delay(30)]).await;
    drop(store);
    let store = world.reopen().await;
    let expected = Totals { accepted: 2, delayed: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_moment(world, told.next_at.expect("a will be ready"), told.now.after(secs(30)), "still");
    world.advance(secs(70)).await;
    assert_eq!(done(&*store).await, ["a", "b"]);
}

// Full lanes.

/// Rule 27: a full lane leaves ready events aside; when there is room they enter in order, and later ones never overtake.
pub async fn a_full_lane_leaves_events_aside_and_takes_them_in_order(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).max_events(1).lane_events(2);
    append(&*store, [new("a"), new("b"), new("x").delay(10), new("y").delay(20)]).await;
    world.advance(secs(30)).await;
    let first = claim_one(&*store).await;
    let expected = Totals { accepted: 4, in_flight: 1, buffered: 1, delayed: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected, "the lane is full, so both stay aside");
    settle(&*store, &first, SUCCEEDED).await;
    append_one(&*store, new("z").delay(10)).await;
    world.advance(secs(20)).await;
    sweep(&*store).await;
    let key = lane("chat", "k1");
    assert_eq!(state_of(&*store, &key, "x").await, Some(RunState::Pending), "there was room for one");
    assert_eq!(totals(&*store, "chat").await.delayed, 2);
    let mut order = Vec::new();
    for _ in 0..4 {
        order.extend(done(&*store).await);
        world.advance(secs(10)).await;
    }
    assert_eq!(order, ["b", "x", "y", "z"]);
}

/// Rule 27: what waits for a full lane holds up no other lane, and the next look is a wake-up time.
pub async fn what_waits_for_a_full_lane_holds_up_nobody(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").lane_events(1), new("b").lane_events(1).delay(10)]).await;
    append_one(&*store, event("chat", "k2").id("c").delay(20)).await;
    world.advance(secs(30)).await;
    let batches = claim_all(&*store).await;
    assert_eq!((keys(&batches), ids(&batches[1])), (vec!["k1", "k2"], vec!["c"]));
    let told = claim(&*store, claim_request(&worker("w"))).await;
    let next = told.next_at.expect("the full lane is looked at again");
    assert!(next.since(told.now) < secs(30), "long before the leases end: {next}");
}

/// Rule 19: an event from aside may drop the oldest buffered ones, as a direct one may.
pub async fn an_event_from_aside_drops_the_oldest_where_its_queue_says_so(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).fixed(500).lane_events(2).drop_oldest();
    append(&*store, [new("a"), new("b"), new("c").delay(30)]).await;
    world.advance(secs(35)).await;
    sweep(&*store).await;
    let detail = lane_detail(&*store, &lane("chat", "k1")).await.expect("it has events");
    assert_eq!(detail.events.iter().map(|e| e.id.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    let expected = Totals { accepted: 3, buffered: 2, discarded: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    assert_eq!(changes(&trail_of(&*store, "chat", "k1").await), [Change::Dropped]);
}

/// Rule 19: several at once drop as many, and those in between stay.
pub async fn several_from_aside_drop_as_many_and_leave_no_gap(world: &dyn World) {
    let store = world.store();
    let new = |id: &str| new(id).fixed(500).lane_events(6).drop_oldest();
    append(&*store, ["a", "b", "c", "d", "e", "f"].map(new)).await;
    append(&*store, [new("g").delay(30), new("h").delay(31)]).await;
    world.advance(secs(35)).await;
    sweep(&*store).await;
    let detail = lane_detail(&*store, &lane("chat", "k1")).await.expect("it has events");
    let there: Vec<&str> = detail.events.iter().map(|e| e.id.as_str()).collect();
    assert_eq!(there, ["c", "d", "e", "f", "g", "h"]);
    world.advance(secs(500)).await;
    assert_eq!(ids(&claim_one(&*store).await), there);
}

/// Rule 19: only buffered events make room; where they are too few the event stays aside.
pub async fn an_event_from_aside_never_drops_what_a_worker_holds(world: &dyn World) {
    let store = world.store();
    let tight = |id: &str| new(id).lane_events(2).drop_oldest();
    append(&*store, [new("a"), new("b"), tight("x").delay(30)]).await;
    let held = claim_one(&*store).await;
    append_one(&*store, new("c").fixed(500)).await;
    world.advance(secs(35)).await;
    sweep(&*store).await;
    let expected = Totals { accepted: 4, in_flight: 2, buffered: 1, delayed: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected, "dropping c would not be enough");
    settle(&*store, &held, SUCCEEDED).await;
    world.advance(secs(10)).await;
    sweep(&*store).await;
    assert_eq!(totals(&*store, "chat").await.buffered, 2);
}

// Ids.

/// Rule 27: an id aside is known: whoever sends it again, delayed or not, gets the receipt of the first.
pub async fn the_same_id_is_one_event_aside_and_in_its_lane(world: &dyn World) {
    let store = world.store();
    let first = append_one(&*store, new("a").delay(30)).await;
    for again in [new("a"), new("a").delay(10), new("a").delay(300)] {
        let told = append(&*store, [again]).await.remove(0);
        assert!(told.duplicate);
        assert_eq!((told.seq, told.run_id, told.due_at), (None, None, first.due_at));
    }
    let direct = append_one(&*store, new("b").fixed(500)).await;
    let told = append(&*store, [new("b").delay(30)]).await.remove(0);
    assert_eq!((told.duplicate, told.seq, told.run_id), (true, direct.seq, direct.run_id));
    let expected = Totals { accepted: 2, delayed: 1, buffered: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    world.advance(secs(35)).await;
    sweep(&*store).await;
    let told = append(&*store, [new("a")]).await.remove(0);
    assert!(told.duplicate && told.seq > direct.seq, "it has entered meanwhile");
    assert_eq!(told.state, Some(RunState::Pending));
}

/// Rule 23: the same id with another payload is a conflict that changes nothing, on either side.
pub async fn a_known_id_with_another_payload_is_a_conflict_aside_too(world: &dyn World) {
    let store = world.store();
    append(&*store, [new("a").delay(30), new("b").fixed(500)]).await;
    let other = |id: &str| new(id).payload(json!("other"));
    for refusal in [
        vec![other("a")],
        vec![other("a").delay(10)],
        vec![other("b").delay(10)],
        vec![new("c"), other("a")],
        vec![new("d").delay(10), other("d")],
        vec![new("d"), other("d").delay(10)],
    ] {
        refused(try_append(&*store, refusal).await, ErrorKind::Conflict);
    }
    let expected = Totals { accepted: 2, delayed: 1, buffered: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    assert_eq!(event_place(&*store, &lane("chat", "k1"), "c").await, None);
}

/// Rule 23: an id belongs to its tenant, queue and key, aside as well.
pub async fn an_id_aside_belongs_to_its_lane(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a").delay(30)).await;
    let others = [event("chat", "k2"), event("mail", "k1"), event("chat", "k1").of("acme")];
    for other in others {
        append_one(&*store, other.id("a").payload(json!("mine"))).await;
    }
}

/// Rule 23: an id repeated inside one array duplicates the first, wherever that goes.
pub async fn an_id_repeated_inside_one_request_of_delayed_events_duplicates_the_first(world: &dyn World) {
    let store = world.store();
    let told = append(&*store, [new("a").delay(30), new("a"), new("b"), new("b").delay(30)]).await;
    assert_eq!(told.iter().map(|r| r.duplicate).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!((told[1].seq, told[1].due_at), (None, told[0].due_at));
    assert_eq!(told[3].seq, Some(seq_of(&told[2])));
    assert_eq!(totals(&*store, "chat").await.accepted, 2);
}

/// Rule 25: an unknown answer is resolved by repeating the request: made ids are looked up aside too.
pub async fn an_unknown_answer_of_a_delayed_append_is_resolved_by_repeating_it(world: &dyn World) {
    let store = world.store();
    let request = append_request([event("chat", "k1").made("evt_x").delay(30)]);
    let first = store.append(request.clone()).await.expect("done").receipts.remove(0);
    let repeat = AppendRequest { repeat: true, ..request };
    let told = store.append(repeat.clone()).await.expect("done").receipts.remove(0);
    assert_eq!((told.duplicate, told.seq, told.due_at), (true, None, first.due_at));
    world.advance(secs(35)).await;
    sweep(&*store).await;
    let told = store.append(repeat).await.expect("done").receipts.remove(0);
    assert!(told.duplicate && told.seq.is_some(), "it has entered meanwhile");
    assert_eq!(totals(&*store, "chat").await.accepted, 1);
}

/// Rule 25: a request of direct and delayed events is all or nothing.
pub async fn a_refused_request_leaves_nothing_aside(world: &dyn World) {
    let store = world.store();
    append_one(&*store, new("a").fixed(500)).await;
    let events: Vec<NewEvent> =
        append_request([new("b").delay(30), new("c").lane_events(1), new("d").delay(30)]).events;
    let request = AppendRequest { events, repeat: false };
    refused(store.append(request).await, ErrorKind::Full);
    let expected = Totals { accepted: 1, buffered: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "chat").await, expected);
    assert_eq!(event_place(&*store, &lane("chat", "k1"), "b").await, None);
}
