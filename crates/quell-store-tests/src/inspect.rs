//! Promises of inspect: reads tell the truth, page without repeating or missing, and change nothing.

use quell_core::error::ErrorKind;
use quell_core::event::Key;
use quell_core::inspect::{AuditFilter, Inspect, LaneFilter, QueueLeases, RunFilter};
use quell_core::lifecycle::{Change, RunState};
use quell_core::limits;
use quell_core::store::{ControlAction, Durability};
use quell_core::window::FiredBy;

use crate::World;
use crate::builders::{
    FAILED, RETRY, SUCCEEDED, append, append_one, claim, claim_all, claim_one, claim_request, control, event,
    extend, lane, lane_of, queue, secs, seq_of, settle, settle_after, tenant, whole, worker,
};
use crate::reads::{
    all_lanes, all_runs, assert_moment, audit_page, changes, event_place, health, lane_detail, lane_page,
    leases, run_detail, run_page, state_of, stats, totals, trail, verify,
};

pub async fn an_unknown_lane_run_or_event_is_nothing(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1").id("a")).await;
    assert!(lane_detail(&*store, &lane("chat", "k2")).await.is_none());
    assert!(lane_detail(&*store, &lane_of("acme", "chat", "k1")).await.is_none());
    assert!(event_place(&*store, &lane("chat", "k1"), "b").await.is_none());
    assert!(event_place(&*store, &lane("chat", "k2"), "a").await.is_none());
    assert!(event_place(&*store, &lane_of("acme", "chat", "k1"), "a").await.is_none());
    let mut run = claim_one(&*store).await.run_id;
    run.number += 1_000_000;
    assert!(run_detail(&*store, run).await.is_none());
    run.lane += 1_000_000;
    assert!(run_detail(&*store, run).await.is_none());
}

pub async fn a_lane_shows_its_buffered_events_in_order_and_bounded(world: &dyn World) {
    let store = world.store();
    let receipts = append(&*store, (0..30).map(|_| event("chat", "k1").fixed(500))).await;
    let detail = lane_detail(&*store, &lane("chat", "k1")).await.expect("it is there");
    let told: Vec<_> = detail.events.iter().map(|e| e.seq).collect();
    let expected: Vec<_> = receipts.iter().take(limits::PAGE_DEFAULT).map(seq_of).collect();
    assert_eq!(told, expected);
    assert_eq!((detail.row.buffered, detail.row.head_seq), (30, seq_of(&receipts[29])));
    assert_eq!((detail.open_run, detail.current_run), (receipts[0].run_id, None));
}

pub async fn a_lane_says_why_it_waits(world: &dyn World) {
    let store = world.store();
    let key = lane("chat", "k1");
    let waiting = async || lane_detail(&*store, &key).await.expect("it is there").waiting;
    let receipt = append_one(&*store, event("chat", "k1").quiet_capped(20, 90)).await;
    let told = waiting().await;
    assert_eq!((told.buffered, told.due_at, told.due_by), (1, receipt.due_at, Some(FiredBy::Quiet)));
    let now = health(&*store).await.now;
    assert_moment(world, told.capped_at.expect("a cap"), now.after(secs(90)), "capped_at");
    control(&*store, ControlAction::PauseLane(key.clone())).await;
    control(&*store, ControlAction::PauseQueue(whole("chat"))).await;
    let told = waiting().await;
    assert_eq!((told.lane_paused_by.as_deref(), told.queue_paused_by.as_deref()), (Some("ada"), Some("ada")));
    control(&*store, ControlAction::ResumeLane(key.clone())).await;
    control(&*store, ControlAction::ResumeQueue(whole("chat"))).await;
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    let told = waiting().await;
    assert_eq!(
        (told.token, told.lease_until, told.expired),
        (Some(batch.token), Some(batch.lease_until), false)
    );
    assert!(told.held_by.is_some());
    world.advance(secs(65)).await;
    assert!(waiting().await.expired, "shown as running and expired until somebody takes it back");
    let settled = settle_after(&*store, &batch, RETRY, secs(30)).await;
    let told = waiting().await;
    assert_eq!((told.again_at, told.held_by), (settled.next_at, None));
    let row = lane_detail(&*store, &key).await.expect("it is there").row;
    assert!(row.why.starts_with("its run is tried again in "), "{}", row.why);
}

pub async fn an_event_is_found_wherever_it_is(world: &dyn World) {
    let store = world.store();
    let key = lane("chat", "k1");
    let receipt = append_one(&*store, event("chat", "k1").id("a")).await;
    assert_eq!(state_of(&*store, &key, "a").await, Some(RunState::Pending));
    let batch = claim_one(&*store).await;
    assert_eq!(state_of(&*store, &key, "a").await, Some(RunState::Running));
    settle(&*store, &batch, RETRY).await;
    assert_eq!(state_of(&*store, &key, "a").await, Some(RunState::Retryable));
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    let place = event_place(&*store, &key, "a").await.expect("it is kept");
    assert_eq!((place.state, place.run_id), (Some(RunState::Succeeded), receipt.run_id));
    assert_eq!(place.event.seq, seq_of(&receipt));
}

pub async fn a_run_is_shown_from_its_first_event_to_its_end(world: &dyn World) {
    let store = world.store();
    let start = health(&*store).await.now;
    let receipt = append_one(&*store, event("chat", "k1").fixed(20)).await;
    let id = receipt.run_id.expect("a run from the start");
    let open = run_detail(&*store, id).await.expect("an open run is shown").row;
    let seq = seq_of(&receipt);
    assert_eq!((open.state, open.events, open.lo, open.hi), (RunState::Pending, 1, seq, seq));
    assert_eq!((open.claims, open.attempts, open.fired_by, open.worker), (0, 0, None, None));
    assert_eq!((open.next_at, open.completed_at, open.claimed_at), (receipt.due_at, None, None));
    assert_moment(world, open.created_at, start, "created_at");
    world.advance(secs(25)).await;
    let batch = claim_one(&*store).await;
    append_one(&*store, event("chat", "k1").fixed(500)).await;
    let running = run_detail(&*store, id).await.expect("it runs").row;
    assert_eq!((running.state, running.events, running.hi), (RunState::Running, 1, seq));
    assert_eq!((running.claims, running.attempts, running.token), (1, 1, batch.token));
    assert_eq!((running.lease_until, running.next_at), (Some(batch.lease_until), None));
    assert_eq!(running.fired_by, Some(FiredBy::Fixed));
    let settled = settle_after(&*store, &batch, RETRY, secs(30)).await;
    let waiting = run_detail(&*store, id).await.expect("it waits").row;
    assert_eq!((waiting.state, waiting.retries, waiting.next_at), (RunState::Retryable, 1, settled.next_at));
    assert_eq!(waiting.lease_until, None);
    world.advance(secs(35)).await;
    let batch = claim_one(&*store).await;
    settle(&*store, &batch, FAILED).await;
    let detail = run_detail(&*store, id).await.expect("it is kept");
    let row = &detail.row;
    assert_eq!((row.state, row.claims, row.attempts, row.retries), (RunState::Failed, 2, 2, 1));
    assert_eq!((row.lease_until, row.next_at, row.lane.clone()), (None, None, lane("chat", "k1")));
    assert_eq!(row.completed_at, Some(row.updated_at));
    assert_eq!(detail.list.iter().map(|e| e.seq).collect::<Vec<_>>(), [seq]);
    let mut told = changes(&detail.audit);
    told.reverse();
    assert_eq!(told, [Change::Claimed, Change::Retried, Change::Claimed, Change::Failed], "newest first");
}

pub async fn lanes_are_listed_page_by_page_without_repeating_or_missing(world: &dyn World) {
    let store = world.store();
    let keys: Vec<String> = (0..25).map(|n| format!("k{n:02}")).collect();
    append(&*store, keys.iter().map(|key| event("chat", key).fixed(500))).await;
    append(&*store, keys.iter().map(|key| event("mail", key).of("acme").fixed(500))).await;
    for limit in [1, 7, 25, 49, 50, 51, 1_000] {
        let rows = all_lanes(&*store, LaneFilter { limit, ..LaneFilter::default() }).await;
        let mut told: Vec<_> = rows.into_iter().map(|r| r.lane).collect();
        assert_eq!(told.len(), 50, "pages of {limit}");
        told.sort();
        told.dedup();
        assert_eq!(told.len(), 50, "pages of {limit}");
    }
    let page = lane_page(&*store, LaneFilter { limit: 50, ..LaneFilter::default() }).await;
    assert_eq!((page.items.len(), page.next), (50, None), "a page that ends it says so");
    let page = lane_page(&*store, LaneFilter::default()).await;
    assert_eq!(page.items.len(), limits::PAGE_DEFAULT, "without a limit the default is used");
}

/// A cursor that lies between two queues: the next queue's keys may sort before the last one listed.
pub async fn pages_go_on_from_one_queue_to_the_next(world: &dyn World) {
    let store = world.store();
    for (queue, key) in [("a", "y"), ("a", "z"), ("b", "c"), ("b", "d"), ("c", "a")] {
        append_one(&*store, event(queue, key)).await;
    }
    for idle in [false, true] {
        for limit in 1..6 {
            let told = all_lanes(&*store, LaneFilter { idle, limit, ..LaneFilter::default() }).await;
            let mut told: Vec<String> = told.iter().map(|row| row.lane.to_string()).collect();
            told.sort();
            assert_eq!(told, ["a/y", "a/z", "b/c", "b/d", "c/a"], "pages of {limit}, idle too: {idle}");
        }
    }
}

pub async fn lanes_are_filtered_by_tenant_queue_prefix_and_state(world: &dyn World) {
    let store = world.store();
    append(
        &*store,
        [
            event("chat", "a%b").fixed(500),
            event("chat", "axb").fixed(500),
            event("chat", "a_c").fixed(500),
            event("mail", "a*").fixed(500),
            event("chat", "b").of("acme").fixed(500),
            event("chat", "held"),
            event("chat", "done"),
        ],
    )
    .await;
    let batches = claim_all(&*store).await;
    let done = batches.iter().find(|b| b.lane.key.as_str() == "done").expect("claimed");
    settle(&*store, done, SUCCEEDED).await;
    let told = async |filter: LaneFilter| {
        let mut keys: Vec<_> =
            all_lanes(&*store, filter).await.iter().map(|r| r.lane.key.as_str().to_owned()).collect();
        keys.sort();
        keys
    };
    let prefix = |text: &str| LaneFilter { key_prefix: Some(text.into()), ..LaneFilter::default() };
    assert_eq!(told(LaneFilter::default()).await, ["a%b", "a*", "a_c", "axb", "b", "held"]);
    assert_eq!(told(prefix("a%")).await, ["a%b"]);
    assert_eq!(told(prefix("a_")).await, ["a_c"]);
    assert_eq!(told(prefix("a*")).await, ["a*"]);
    assert_eq!(told(prefix("a")).await, ["a%b", "a*", "a_c", "axb"]);
    assert_eq!(told(prefix("A")).await, Vec::<String>::new(), "compared as bytes");
    assert_eq!(told(LaneFilter { tenant: Some(tenant("acme")), ..LaneFilter::default() }).await, ["b"]);
    assert_eq!(told(LaneFilter { tenant: Some(tenant("")), ..prefix("b") }).await, Vec::<String>::new());
    assert_eq!(told(LaneFilter { queue: Some(queue("mail")), ..LaneFilter::default() }).await, ["a*"]);
    assert_eq!(told(LaneFilter { running: true, ..LaneFilter::default() }).await, ["held"]);
    assert_eq!(told(LaneFilter { idle: true, ..prefix("done") }).await, ["done"]);
}

/// Escapes in a pattern language must not leak into prefixes.
pub async fn a_key_prefix_is_never_a_pattern(world: &dyn World) {
    let store = world.store();
    append(&*store, crate::append::ODD_KEYS.map(|key| event("chat", key).fixed(500))).await;
    for key in crate::append::ODD_KEYS {
        let filter = LaneFilter { key_prefix: Some(key.into()), limit: 100, ..LaneFilter::default() };
        let mut told: Vec<_> =
            all_lanes(&*store, filter).await.iter().map(|r| r.lane.key.as_str().to_owned()).collect();
        told.sort();
        let mut expected: Vec<_> =
            crate::append::ODD_KEYS.iter().filter(|k| k.starts_with(key)).map(|k| (*k).to_owned()).collect();
        expected.sort();
        assert_eq!(told, expected, "prefix {key:?}");
    }
}

pub async fn runs_are_listed_newest_first_page_by_page(world: &dyn World) {
    let store = world.store();
    for n in 0..12 {
        append_one(&*store, event("chat", &format!("k{}", n % 3)).max_events(1)).await;
        let batch = claim_one(&*store).await;
        settle(&*store, &batch, if n % 4 == 0 { FAILED } else { SUCCEEDED }).await;
    }
    append_one(&*store, event("mail", "k0").of("acme").fixed(500)).await;
    append_one(&*store, event("chat", "k0")).await;
    claim_one(&*store).await;
    for limit in [1, 5, 14, 100] {
        let rows = all_runs(&*store, RunFilter { limit, ..RunFilter::default() }).await;
        let told: Vec<_> = rows.iter().map(|r| r.id.number).collect();
        assert_eq!(told.len(), 14, "pages of {limit}");
        assert!(told.is_sorted_by(|a, b| a > b), "newest first, none twice: {told:?}");
    }
    let count = async |filter: RunFilter| all_runs(&*store, filter).await.len();
    let all = RunFilter::default;
    assert_eq!(count(RunFilter { state: Some(RunState::Failed), ..all() }).await, 3);
    assert_eq!(count(RunFilter { state: Some(RunState::Succeeded), limit: 2, ..all() }).await, 9);
    assert_eq!(count(RunFilter { state: Some(RunState::Running), ..all() }).await, 1);
    assert_eq!(count(RunFilter { state: Some(RunState::Pending), ..all() }).await, 1);
    assert_eq!(count(RunFilter { state: Some(RunState::Cancelled), ..all() }).await, 0);
    assert_eq!(count(RunFilter { queue: Some(queue("mail")), ..all() }).await, 1);
    assert_eq!(count(RunFilter { tenant: Some(tenant("acme")), ..all() }).await, 1);
    assert_eq!(count(RunFilter { tenant: Some(tenant("")), ..all() }).await, 13);
    let key = Some(Key::new("k0").expect("a good key"));
    assert_eq!(count(RunFilter { key, ..all() }).await, 6);
}

pub async fn a_page_of_runs_that_ends_the_listing_says_so(world: &dyn World) {
    let store = world.store();
    append(&*store, (0..4).map(|n| event("chat", &format!("k{n}")))).await;
    for batch in claim_all(&*store).await {
        settle(&*store, &batch, SUCCEEDED).await;
    }
    let page = run_page(&*store, RunFilter { limit: 4, ..RunFilter::default() }).await;
    assert_eq!((page.items.len(), page.next), (4, None));
    let page = audit_page(&*store, AuditFilter { limit: 8, ..AuditFilter::default() }).await;
    assert_eq!((page.items.len(), page.next), (8, None));
}

pub async fn audit_is_listed_newest_first_page_by_page(world: &dyn World) {
    let store = world.store();
    for n in 0..6 {
        let key = format!("k{}", n % 2);
        append_one(&*store, event("chat", &key)).await;
        settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    }
    append_one(&*store, event("chat", "k0").of("acme")).await;
    let held = claim_one(&*store).await;
    control(&*store, ControlAction::PauseQueue(whole("mail"))).await;
    for limit in [1, 5, 14, 100] {
        let mut filter = AuditFilter { limit, ..AuditFilter::default() };
        let mut told = Vec::new();
        loop {
            let page = audit_page(&*store, filter.clone()).await;
            assert!(page.items.len() <= limit);
            told.extend(page.items.iter().map(|r| r.id));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
        }
        assert_eq!(told.len(), 14, "pages of {limit}");
        assert!(told.is_sorted_by(|a, b| a > b), "newest first, none twice: {told:?}");
    }
    let count = async |filter: AuditFilter| trail(&*store, filter).await.len();
    let all = AuditFilter::default;
    assert_eq!(count(AuditFilter { run: Some(held.run_id), ..all() }).await, 1);
    assert_eq!(count(AuditFilter { tenant: Some(tenant("acme")), ..all() }).await, 1);
    assert_eq!(count(AuditFilter { queue: Some(queue("mail")), ..all() }).await, 1);
    let key = Some(Key::new("k0").expect("a good key"));
    assert_eq!(count(AuditFilter { key: key.clone(), ..all() }).await, 7);
    assert_eq!(count(AuditFilter { key, tenant: Some(tenant("")), ..all() }).await, 6);
}

pub async fn a_cursor_that_makes_no_sense_does_no_harm(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    claim_one(&*store).await;
    for cursor in ["", "-1", "99999999999999999999999", "'; --", "😀", "a/b/c"] {
        let cursor = Some(cursor.to_owned());
        for request in [
            Inspect::Lanes(LaneFilter { cursor: cursor.clone(), ..LaneFilter::default() }),
            Inspect::Runs(RunFilter { cursor: cursor.clone(), ..RunFilter::default() }),
            Inspect::Audit(AuditFilter { cursor: cursor.clone(), ..AuditFilter::default() }),
        ] {
            if let Err(error) = store.inspect(request).await {
                assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
            }
        }
    }
}

pub async fn stats_count_each_tenants_queue_by_itself(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k1"), event("chat", "k2").of("acme").fixed(20)])
        .await;
    append_one(&*store, event("mail", "k1")).await;
    claim(&*store, claim_request(&worker("w"))).await;
    world.advance(secs(35)).await;
    let rows = stats(&*store).await;
    let told: Vec<_> = rows
        .iter()
        .map(|s| (s.tenant.as_str(), s.queue.as_str(), s.totals.accepted, s.totals.in_flight, s.running))
        .collect();
    assert_eq!(told, [("", "chat", 2, 2, 1), ("", "mail", 1, 1, 1), ("acme", "chat", 1, 0, 0)]);
    assert_eq!(rows[0].oldest_due_ms, None, "a running lane is not waiting");
    let overdue = rows[2].oldest_due_ms.expect("acme's lane is overdue");
    assert!((15_000..20_000).contains(&overdue), "{overdue} ms");
}

pub async fn leases_tell_the_oldest_holder_and_those_not_heard_of(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2"), event("mail", "k1").of("acme")]).await;
    append_one(&*store, event("idle", "k1").fixed(500)).await;
    assert!(leases(&*store).await.is_empty(), "nothing is held yet");
    let held = claim(&*store, claim_request(&worker("w"))).await.batches;
    assert_eq!(held.len(), 3);
    world.advance(secs(40)).await;
    let renewed = held.iter().find(|batch| batch.lane == lane("chat", "k2")).expect("it was claimed");
    extend(&*store, renewed, secs(60)).await;
    let told = |rows: &[QueueLeases]| -> Vec<(String, String, u64)> {
        rows.iter().map(|l| (l.tenant.to_string(), l.queue.to_string(), l.silent)).collect()
    };
    let named = |tenant: &str, queue: &str, silent| (tenant.to_owned(), queue.to_owned(), silent);
    assert_eq!(told(&leases(&*store).await), [named("", "chat", 0), named("acme", "mail", 0)]);
    world.advance(secs(40)).await;
    let rows = leases(&*store).await;
    assert_eq!(told(&rows), [named("", "chat", 1), named("acme", "mail", 1)], "the renewed one is not over");
    let oldest = rows[0].oldest_ms;
    assert!((80_000..85_000).contains(&oldest), "held since the claim, whatever was renewed: {oldest} ms");
    settle(&*store, renewed, SUCCEEDED).await;
    assert_eq!(told(&leases(&*store).await), [named("", "chat", 1), named("acme", "mail", 1)]);
}

pub async fn health_tells_the_stores_own_time(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    let before = health(&*store).await;
    assert_eq!(before.description, store.description());
    world.advance(secs(100)).await;
    let after = health(&*other).await.now;
    assert_moment(world, after, before.now.after(secs(100)), "one clock for all handles");
    assert_moment(world, claim(&*store, claim_request(&worker("w"))).await.now, after, "the claim's clock");
}

pub async fn the_description_says_how_much_an_acknowledgement_is_worth(world: &dyn World) {
    let description = world.store().description();
    assert!(!description.kind.is_empty() && !description.place.is_empty());
    assert_eq!(description.durability == Durability::Durable, world.durable(), "{description:?}");
}

pub async fn reads_change_nothing(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k2").fixed(500)]).await;
    let batch = claim_one(&*store).await;
    world.advance(secs(65)).await;
    let before = (trail(&*store, AuditFilter::default()).await, totals(&*store, "chat").await);
    for _ in 0..2 {
        lane_detail(&*store, &batch.lane).await;
        all_lanes(&*store, LaneFilter { idle: true, ..LaneFilter::default() }).await;
        all_runs(&*store, RunFilter::default()).await;
        run_detail(&*store, batch.run_id).await;
        verify(&*store).await;
        health(&*store).await;
        stats(&*store).await;
    }
    assert_eq!((trail(&*store, AuditFilter::default()).await, totals(&*store, "chat").await), before);
    assert_eq!(state_of(&*store, &batch.lane, "none").await, None);
    settle(&*store, &batch, SUCCEEDED).await;
}

pub async fn a_read_after_a_write_shows_it_on_every_handle(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    for n in 1..=10 {
        append_one(&*store, event("chat", "k1").id(&format!("e{n}")).fixed(500)).await;
        let row = lane_detail(&*other, &lane("chat", "k1")).await.expect("it is there").row;
        assert_eq!(row.buffered, n);
    }
}

pub async fn verify_counts_every_event_that_is_kept(world: &dyn World) {
    let store = world.store();
    append(&*store, [event("chat", "k1"), event("chat", "k1"), event("mail", "k2").fixed(500)]).await;
    settle(&*store, &claim_one(&*store).await, SUCCEEDED).await;
    let verified = verify(&*store).await;
    assert_eq!((verified.queues, verified.events), (2, 3));
    assert!(verified.problems.is_empty());
}
