//! Promises about schedules: each fire makes one event, whatever the number of handles, claims and sweeps; what has fired
//! never fires again, and of what was missed only the latest runs.
//!
//! Fires are bound to the calendar, so every promise first moves store time to twenty seconds past a full hour: far from
//! every boundary that it later crosses.

use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::cron::{Cron, Zone};
use quell_core::event::{Overflow, Payload};
use quell_core::inspect::{AuditFilter, Inspect, Inspected};
use quell_core::lifecycle::{Change, RunState};
use quell_core::schedule::{Schedule, ScheduleRow};
use quell_core::store::{ClaimQueues, ClaimRequest, ControlAction, Controlled, Store};
use quell_core::totals::Totals;
use quell_core::window::{FiredBy, Window};
use serde_json::json;

use crate::World;
use crate::builders::{
    SUCCEEDED, append, claim, claim_all, claim_none, claim_one, claim_request, control, event, forget,
    from_queue, ids, lane, lane_of, policy, queue, schedule, secs, settle, sweep, tenant, worker,
};
use crate::reads::{
    assert_moment, changes, event_place, health, lane_detail, lane_row, totals, totals_of, trail,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Moves store time to twenty seconds past a full hour, and says which hour.
async fn past_the_hour(world: &dyn World) -> Timestamp {
    let hour = i64::try_from(HOUR.as_millis()).expect("an hour is short");
    let now = health(&*world.store()).await.now.as_millis();
    let next = Timestamp::from_millis((now / hour + 1) * hour);
    world.advance(next.since(Timestamp::from_millis(now)) + secs(20)).await;
    next
}

async fn put(store: &dyn Store, schedule: Schedule) -> Controlled {
    control(store, ControlAction::PutSchedule(schedule)).await
}

/// A schedule named `nightly` for the lane report/daily.
fn nightly(cron: &str) -> Schedule {
    schedule("nightly", cron, &lane("report", "daily"))
}

/// All schedules with their place in time.
async fn schedules(store: &dyn Store) -> Vec<ScheduleRow> {
    match store.inspect(Inspect::Schedules).await.expect("reads are answered") {
        Inspected::Schedules(rows) => rows,
        other => panic!("a read is answered with its own kind, not {other:?}"),
    }
}

/// The ids of everything that is due, by one claim, which then succeeds.
async fn fired(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    for batch in claim_all(store).await {
        all.extend(ids(&batch).into_iter().map(str::to_owned));
        settle(store, &batch, SUCCEEDED).await;
    }
    all
}

fn fire_id(name: &str, at: Timestamp) -> String {
    format!("schedule/{name}/{at}")
}

/// Rule 30: a fire makes one event with an id of the schedule and the moment, in the lane and by the rules it names.
pub async fn a_schedule_fires_an_event_of_its_own_id_at_its_time(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    assert!(put(&*store, nightly("5 * * * *")).await.changed);
    claim_none(&*store).await;
    world.advance(secs(260)).await;
    claim_none(&*store).await;
    world.advance(secs(40)).await;
    let batch = claim_one(&*store).await;
    let at = hour.after(MINUTE * 5);
    assert_eq!((batch.lane.clone(), ids(&batch)), (lane("report", "daily"), vec![&*fire_id("nightly", at)]));
    assert_eq!(batch.events[0].payload.as_str(), r#"{"schedule":"nightly"}"#);
    assert_eq!(batch.fired_by, FiredBy::None);
    let expected = Totals { accepted: 1, in_flight: 1, ..Totals::default() };
    assert_eq!(totals(&*store, "report").await, expected);
}

/// Rule 30: once, over several handles, claims and sweeps, however often they look.
pub async fn a_fire_happens_once_over_all_handles_claims_and_sweeps(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let hour = past_the_hour(world).await;
    put(&*store, nightly("*/10 * * * *")).await;
    for tens in 1..=3 {
        world.advance(MINUTE * 10).await;
        sweep(&*other).await;
        let told = fired(&*store).await;
        assert_eq!(told, [fire_id("nightly", hour.after(MINUTE * 10 * tens))]);
        for handle in [&store, &other] {
            sweep(&**handle).await;
            claim_none(&**handle).await;
        }
    }
    assert_eq!(totals(&*store, "report").await.accepted, 3);
}

/// Rule 30: many handles that look at the same moment still fire once.
pub async fn handles_that_race_fire_once(world: &dyn World) {
    past_the_hour(world).await;
    put(&*world.store(), nightly("0 * * * *")).await;
    world.advance(HOUR).await;
    let mut tasks = Vec::new();
    for n in 0..8 {
        let store = if n % 2 == 0 { world.store() } else { world.another().await };
        tasks.push(tokio::spawn(async move {
            if n % 4 < 2 { claim_all(&*store).await.len() } else { sweep(&*store).await.reclaimed.len() }
        }));
    }
    for task in tasks {
        task.await.expect("no task panics");
    }
    claim_all(&*world.store()).await;
    let expected = Totals { accepted: 1, in_flight: 1, ..Totals::default() };
    assert_eq!(totals(&*world.store(), "report").await, expected);
}

/// Rule 30: a claim fires for its own queues, a sweep for all of them.
pub async fn a_claim_fires_what_concerns_it_and_a_sweep_everything(world: &dyn World) {
    let store = world.store();
    past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    world.advance(HOUR).await;
    let queues = ClaimQueues::Listed(vec![from_queue("chat", policy(), 10)]);
    let told = claim(&*store, ClaimRequest { queues, ..claim_request(&worker("w")) }).await;
    assert!(told.batches.is_empty() && told.next_at.is_none(), "nothing of chat: {:?}", told.next_at);
    sweep(&*store).await;
    assert_eq!(totals(&*store, "report").await.buffered, 1);
    assert_eq!(fired(&*store).await.len(), 1);
}

/// Rule 30: after downtime only the latest missed fire runs.
pub async fn after_downtime_only_the_latest_missed_fire_runs(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("*/10 * * * *")).await;
    drop(store);
    world.advance(HOUR * 3 + MINUTE * 25).await;
    let store = world.reopen().await;
    let missed = hour.after(HOUR * 3 + MINUTE * 20);
    assert_eq!(fired(&*store).await, [fire_id("nightly", missed)]);
    claim_none(&*store).await;
    let row = schedules(&*store).await.remove(0);
    assert_eq!((row.last_fire, row.next_at), (missed, Some(missed.after(MINUTE * 10))));
    world.advance(MINUTE * 5).await;
    assert_eq!(fired(&*store).await, [fire_id("nightly", missed.after(MINUTE * 10))], "then on time again");
}

/// Rule 30: the place in time survives a restart: what has fired does not fire again, what comes is not forgotten.
pub async fn a_schedule_keeps_its_place_across_a_restart(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    world.advance(HOUR).await;
    assert_eq!(fired(&*store).await, [fire_id("nightly", hour.after(HOUR))]);
    drop(store);
    let store = world.reopen().await;
    sweep(&*store).await;
    claim_none(&*store).await;
    let row = schedules(&*store).await.remove(0);
    assert_eq!(row.schedule, nightly("0 * * * *"), "everything about it is kept");
    assert_eq!((row.last_fire, row.next_at), (hour.after(HOUR), Some(hour.after(HOUR * 2))));
    world.advance(HOUR).await;
    assert_eq!(fired(&*store).await, [fire_id("nightly", hour.after(HOUR * 2))]);
}

/// Rule 30: nothing at or before the last fire fires again, even when history and ids have been forgotten.
pub async fn what_has_fired_never_fires_again(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    world.advance(HOUR).await;
    assert_eq!(fired(&*store).await.len(), 1);
    world.advance(MINUTE).await;
    forget(&*store, secs(10)).await;
    let gone = event_place(&*store, &lane("report", "daily"), &fire_id("nightly", hour.after(HOUR))).await;
    assert_eq!(gone, None, "its id is not what keeps it from firing again");
    put(&*store, nightly("0 * * * *")).await;
    sweep(&*store).await;
    claim_none(&*store).await;
}

/// Rule 30: a schedule fires from its making on, never for a moment before it.
pub async fn a_new_schedule_has_missed_nothing(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    claim_none(&*store).await;
    let row = schedules(&*store).await.remove(0);
    assert_moment(world, row.last_fire, hour.after(secs(20)), "its place is the moment of its making");
    assert_eq!(row.next_at, Some(hour.after(HOUR)));
}

/// Rule 30: put again unchanged, a schedule keeps its place: each start of a program says what it said before.
pub async fn a_schedule_put_again_unchanged_keeps_its_place(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    world.advance(HOUR).await;
    assert!(!put(&*store, nightly("0 * * * *")).await.changed, "a fire that is due is not skipped by it");
    assert_eq!(fired(&*store).await, [fire_id("nightly", hour.after(HOUR))]);
    assert!(!put(&*store, nightly("0 * * * *")).await.changed);
    assert_eq!(schedules(&*store).await[0].last_fire, hour.after(HOUR));
    claim_none(&*store).await;
    let told = trail(&*store, AuditFilter { queue: Some(queue("report")), ..AuditFilter::default() }).await;
    let puts = changes(&told).into_iter().filter(|c| *c == Change::SchedulePut).count();
    assert_eq!(puts, 1, "what changes nothing is not recorded");
}

/// Rule 30: what a schedule sends, and where, may change without losing its place: a missed fire still runs, once.
pub async fn a_schedule_with_other_contents_keeps_its_place(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    drop(store);
    world.advance(HOUR * 2).await;
    let store = world.reopen().await;
    let payload = Payload::of(&json!({ "of": "today" }));
    let changed = Schedule { payload, key: lane("report", "new").key, ..nightly("0 * * * *") };
    assert!(put(&*store, changed).await.changed);
    let batch = claim_one(&*store).await;
    assert_eq!(ids(&batch), [fire_id("nightly", hour.after(HOUR * 2))], "the timetable is what it was");
    assert_eq!((batch.lane, batch.events[0].payload.as_str()), (lane("report", "new"), r#"{"of":"today"}"#));
    assert_eq!(schedules(&*store).await[0].last_fire, hour.after(HOUR * 2));
}

/// Rule 30: a changed timetable counts from the change on: nothing before it fires, neither again nor for the first time.
pub async fn a_changed_timetable_fires_for_no_moment_before_the_change(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    world.advance(HOUR).await;
    assert_eq!(fired(&*store).await, [fire_id("nightly", hour.after(HOUR))]);
    world.advance(MINUTE * 25).await;
    assert!(put(&*store, nightly("*/10 * * * *")).await.changed);
    claim_none(&*store).await;
    world.advance(MINUTE * 5).await;
    assert_eq!(fired(&*store).await, [fire_id("nightly", hour.after(HOUR + MINUTE * 30))]);
    put(&*store, nightly("30 * * * *")).await;
    claim_none(&*store).await;
    assert_eq!(schedules(&*store).await[0].next_at, Some(hour.after(HOUR * 2 + MINUTE * 30)));
}

/// Rule 30: a schedule that now fires into another queue wakes those who claim that one, and nobody else.
pub async fn a_schedule_may_move_to_another_queue(world: &dyn World) {
    let store = world.store();
    past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    put(&*store, schedule("nightly", "0 * * * *", &lane("mail", "k1"))).await;
    assert_eq!(schedules(&*store).await.len(), 1);
    world.advance(HOUR).await;
    assert_eq!(claim_one(&*store).await.lane, lane("mail", "k1"));
    assert_eq!(totals(&*store, "report").await.accepted, 0);
}

/// Rule 30: a removed schedule fires no more, also not what was due; what has fired stays.
pub async fn a_removed_schedule_fires_no_more(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    put(&*store, nightly("0 * * * *")).await;
    put(&*store, schedule("other", "0 * * * *", &lane("report", "k2"))).await;
    world.advance(HOUR).await;
    let remove = |name: &str| ControlAction::RemoveSchedule { tenant: tenant(""), name: name.to_owned() };
    assert!(control(&*store, remove("nightly")).await.changed);
    assert!(!control(&*store, remove("nightly")).await.changed);
    assert!(!control(&*store, remove("unknown")).await.changed);
    assert_eq!(fired(&*store).await, [fire_id("other", hour.after(HOUR))]);
    control(&*store, remove("other")).await;
    assert!(schedules(&*store).await.is_empty());
    world.advance(HOUR).await;
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert!(told.batches.is_empty() && told.next_at.is_none());
    let told = trail(&*store, AuditFilter { queue: Some(queue("report")), ..AuditFilter::default() }).await;
    let removed: Vec<_> = told.iter().filter(|r| r.change == Change::ScheduleRemoved).collect();
    assert_eq!(removed.len(), 2, "one record each");
    assert!(removed.iter().all(|r| r.actor.as_deref() == Some("ada")));
}

/// Rule 30: UTC unless a zone is named; then the clock on that wall decides.
pub async fn a_schedule_fires_by_the_clock_of_its_zone(world: &dyn World) {
    let store = world.store();
    past_the_hour(world).await;
    // Kathmandu has been 5 h 45 min ahead of UTC since 1986 and changes no clocks.
    let zone: Zone = "Asia/Kathmandu".parse().expect("a known zone");
    put(&*store, Schedule { zone, ..nightly("45 8 * * *") }).await;
    put(&*store, schedule("utc", "45 8 * * *", &lane("report", "k2"))).await;
    let rows = schedules(&*store).await;
    let of_day = |name: &str| {
        let row = rows.iter().find(|r| r.schedule.name == queue(name)).expect("it is listed");
        let next = row.next_at.expect("it fires every day");
        u128::try_from(next.as_millis()).expect("after 1970") % DAY.as_millis()
    };
    assert_eq!(of_day("nightly"), (HOUR * 3).as_millis(), "08:45 there is 03:00 UTC");
    assert_eq!(of_day("utc"), (HOUR * 8 + MINUTE * 45).as_millis());
    world.advance(DAY).await;
    assert_eq!(fired(&*store).await.len(), 2);
}

/// Rule 30: the next fire is a wake-up time of its queue.
pub async fn next_at_is_the_next_fire(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    append(&*store, [event("chat", "k1").fixed(7_200)]).await;
    let mut listener = store.wakeups();
    claim_none(&*store).await;
    put(&*store, nightly("10 * * * *")).await;
    let heard = tokio::time::timeout(Duration::from_secs(5), listener.woken()).await;
    assert!(heard.is_ok(), "whoever sleeps for longer is woken by a new schedule");
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(told.next_at, Some(hour.after(MINUTE * 10)));
    world.advance(MINUTE * 10).await;
    assert_eq!(fired(&*store).await.len(), 1);
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(told.next_at, Some(hour.after(HOUR + MINUTE * 10)), "and the one after it");
}

/// Rule 30: the names of schedules belong to their tenants, and so do their events.
pub async fn schedules_of_two_tenants_are_two(world: &dyn World) {
    let store = world.store();
    past_the_hour(world).await;
    put(&*store, schedule("nightly", "0 * * * *", &lane_of("acme", "report", "k1"))).await;
    put(&*store, schedule("nightly", "30 * * * *", &lane_of("other", "report", "k1"))).await;
    assert_eq!(schedules(&*store).await.len(), 2);
    world.advance(HOUR - MINUTE * 10).await;
    let batch = claim_one(&*store).await;
    assert_eq!(batch.lane, lane_of("other", "report", "k1"));
    settle(&*store, &batch, SUCCEEDED).await;
    let remove = ControlAction::RemoveSchedule { tenant: tenant("other"), name: "nightly".into() };
    assert!(control(&*store, remove).await.changed);
    world.advance(HOUR).await;
    assert_eq!(fired(&*store).await.len(), 1);
    assert_eq!(totals_of(&*store, "acme", "report").await.succeeded, 1);
}

/// A fire opens a window like any other event, by the rules of its queue.
pub async fn a_fire_opens_the_window_of_its_queue(world: &dyn World) {
    let store = world.store();
    past_the_hour(world).await;
    let mut slow = nightly("0 * * * *");
    std::sync::Arc::make_mut(&mut slow.policy).window = Window::fixed(MINUTE * 5);
    put(&*store, slow).await;
    world.advance(HOUR).await;
    claim_none(&*store).await;
    let row = lane_row(&*store, &lane("report", "daily")).await.expect("it has entered");
    assert_eq!((row.state, row.buffered), (Some(RunState::Pending), 1));
    world.advance(MINUTE * 5 + secs(10)).await;
    assert_eq!(claim_one(&*store).await.fired_by, FiredBy::Fixed);
}

/// Rule 19: a fire, and what comes from aside in the same step, drop as many of the oldest as they need, and the rest stays.
/// Found by `quell torture`: what stayed belonged to no run any more when one more came than had been reckoned with.
pub async fn a_fire_into_a_full_lane_drops_the_oldest_and_keeps_the_rest(world: &dyn World) {
    let store = world.store();
    let hour = past_the_hour(world).await;
    let mut tight = nightly("0 * * * *");
    let policy = std::sync::Arc::make_mut(&mut tight.policy);
    (policy.window, policy.lane_events) = (Window::fixed(DAY), 3);
    policy.overflow = Overflow::DropOldest;
    put(&*store, tight).await;
    let new = |id: &str| event("report", "daily").id(id).fixed(86_400).lane_events(3).drop_oldest();
    append(&*store, [new("a"), new("b"), new("c"), new("late").delay(3_000)]).await;
    world.advance(HOUR).await;
    sweep(&*store).await;
    let detail = lane_detail(&*store, &lane("report", "daily")).await.expect("it has events");
    let fire = fire_id("nightly", hour.after(HOUR));
    assert_eq!(detail.events.iter().map(|e| e.id.as_str()).collect::<Vec<_>>(), ["c", "late", &fire]);
    let expected = Totals { accepted: 5, buffered: 3, discarded: 2, ..Totals::default() };
    assert_eq!(totals(&*store, "report").await, expected);
}

/// Rule 30: a fire that may be years away is a wake-up time like any other.
pub async fn a_rare_schedule_waits_for_its_day(world: &dyn World) {
    let store = world.store();
    past_the_hour(world).await;
    let leap: Cron = "0 0 29 2 *".parse().expect("a good expression");
    put(&*store, Schedule { cron: leap.clone(), ..nightly("0 * * * *") }).await;
    let told = claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(told.next_at, leap.next_after(&Zone::utc(), told.now), "the next 29 February");
}
