//! Sources in a file: restored, copied, in callers' own transactions, bounded, and who is woken for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quell_core::copy::{Portable, Row};
use quell_core::error::ErrorKind;
use quell_core::limits;
use quell_core::source::{Breaker, SourceReport};
use quell_core::store::{ControlAction, SourceAction, SourceAnswer, Store};
use quell_store_sqlite::rusqlite::Connection;
use quell_store_sqlite::{SqliteStore, TransactionError, append_in, backup, restore};
use quell_store_tests::builders::{
    FAILED, LEASE, RELEASE, RETRY, SUCCEEDED, append, append_one, ask, breaker, claim_all, claim_none,
    claim_one, control, declare, event, extend, fault, ids, keys, rate, refused, secs, settle, settle_saying,
    source_name, source_scope, sweep,
};
use quell_store_tests::chance::Chance;
use quell_store_tests::reads::{source_row, verify};
use serde_json::json;

struct Place {
    folder: tempfile::TempDir,
    store: Arc<SqliteStore>,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let store = SqliteStore::open(&folder.path().join("q.db")).expect("a new file opens");
        Place { folder, store }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

async fn assert_sound(store: &dyn Store) {
    assert_eq!(verify(store).await.problems, Vec::<String>::new());
}

async fn pass(store: &SqliteStore, seconds: u64) {
    store.advance(secs(seconds)).await.expect("the clock can be moved");
}

#[tokio::test]
async fn after_a_restore_another_lane_may_probe() {
    let place = Place::new();
    let store = &*place.store;
    declare(store, "shop", breaker(1)).await;
    append_one(store, event("q", "a").source("shop")).await;
    settle_saying(store, &claim_one(store).await, FAILED, fault()).await;
    append_one(store, event("q", "b").source("shop")).await;
    pass(store, 110).await;
    let probe = claim_one(store).await;
    append_one(store, event("q", "c").source("shop")).await;
    claim_none(store).await;
    backup(&place.at("q.db"), &place.at("b"), |_, _| ()).expect("a backup is made");
    restore(&place.at("b"), &place.at("r.db"), false).expect("it is restored");
    let restored = &*SqliteStore::open(&place.at("r.db")).expect("it opens");
    let row = source_row(restored, "", "shop").await;
    assert_eq!((row.breaker, row.probe, row.waiting), (Breaker::HalfOpen, None, 2));
    assert_sound(restored).await;
    let next = claim_one(restored).await;
    assert!(next.token > probe.token);
    settle(restored, &next, SUCCEEDED).await;
    assert_eq!(source_row(restored, "", "shop").await.breaker, Breaker::Closed);
    claim_one(restored).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_callers_transaction_names_a_declared_source_or_is_refused() {
    let place = Place::new();
    let store = &*place.store;
    declare(store, "shop", rate(1, 1)).await;
    let closure = store.transaction(Duration::from_secs(5), |_, appender| {
        appender.append(event("q", "a").source("shop").build())?;
        appender.append(event("q", "b").source("other").build()).map(|_| ())
    });
    let Err(TransactionError::Closure(error)) = closure.await else { panic!("it names no such source") };
    assert!(error.detail.contains("[sources.other]"), "{error}");
    claim_none(store).await;
    let own = Connection::open(place.at("q.db")).expect("the file opens");
    own.execute_batch("BEGIN IMMEDIATE").expect("a transaction is begun");
    refused(append_in(&own, &event("q", "a").source("other").build()), ErrorKind::Invalid);
    append_in(&own, &event("q", "a").id("one").source("shop").build()).expect("it is declared");
    append_in(&own, &event("q", "b").queue_source("shop").build()).expect("it is declared");
    own.execute_batch("COMMIT").expect("it is committed");
    assert_eq!(ids(&claim_one(store).await), ["one"]);
    claim_none(store).await;
    assert_sound(store).await;
}

#[tokio::test]
async fn a_source_that_has_as_many_answers_as_it_may_forgets_the_one_that_expires_first() {
    let place = Place::new();
    let store = &*place.store;
    declare(store, "shop", breaker(5)).await;
    append_one(store, event("q", "a").source("shop")).await;
    let batch = claim_one(store).await;
    let keep = |key: &str, seconds| {
        let (key, ttl) = (key.to_owned(), Some(secs(seconds)));
        SourceAction::Keep { key, value: json!(null), ttl }
    };
    let recall = |key: &str| SourceAction::Recall { key: key.to_owned(), ttl: None };
    ask(store, &batch, keep("short", 100)).await;
    ask(store, &batch, keep("long", 1_000)).await;
    let own = Connection::open(place.at("q.db")).expect("the file opens");
    let filled = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
        INSERT INTO answer SELECT source, 'k' || i, value, kept_at, expires_at + 900000, flight, over_at FROM answer, n
        WHERE key = 'short'";
    own.execute(filled, [limits::CACHE_ROWS_MAX - 2]).expect("rows are written");
    ask(store, &batch, keep("long", 1_000)).await;
    assert_eq!(ask(store, &batch, recall("short")).await, SourceAnswer::Hit(json!(null)), "one is kept anew");
    ask(store, &batch, keep("new", 10)).await;
    assert_eq!(ask(store, &batch, recall("new")).await, SourceAnswer::Hit(json!(null)));
    assert_eq!(ask(store, &batch, recall("long")).await, SourceAnswer::Hit(json!(null)));
    let most = limits::CACHE_ROWS_MAX as u64;
    assert_eq!(source_row(store, "", "shop").await.cached, most);
    assert!(matches!(ask(store, &batch, recall("short")).await, SourceAnswer::Fetch { .. }));
    let rows = || own.query_row("SELECT count(*) FROM answer", [], |row| row.get::<_, u64>(0));
    assert_eq!(rows().expect("they are counted"), most);
    pass(store, 2_000).await;
    sweep(store).await;
    assert_eq!(rows().expect("they are counted"), 0, "those that are over go, in steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_woken_for_a_lane_that_its_source_holds() {
    let place = Place::new();
    let store = &*place.store;
    declare(store, "shop", breaker(5)).await;
    append_one(store, event("q", "a").source("shop")).await;
    let batch = claim_one(store).await;
    extend(store, &batch, secs(3_600)).await;
    claim_none(store).await;
    control(store, ControlAction::DisableSource(source_scope("shop"))).await;
    let mut listener = store.wakeups();
    for key in ["b", "c"] {
        append_one(store, event("q", key).source("shop")).await;
    }
    let woken = tokio::time::timeout(Duration::from_millis(300), listener.woken()).await;
    assert!(woken.is_err(), "there is nothing to take");
    control(store, ControlAction::EnableSource(source_scope("shop"))).await;
    tokio::time::timeout(secs(10), listener.woken()).await.expect("now there is");
    assert_eq!(claim_all(store).await.len(), 2);
}

/// Everything of one file into another, by the hands that a copy uses.
async fn copy(from: &dyn Portable, to: &dyn Portable) {
    let mut rows = Vec::new();
    for row in from.lanes(0, 100).await.expect("lanes are read") {
        let lane = row.lane.id;
        rows.push(Row::Lane(row));
        let events = from.events(lane, 0, 100).await.expect("events are read");
        rows.extend(events.into_iter().map(|kept| Row::Event(lane, kept)));
        let runs = from.runs(lane, 0, 100).await.expect("runs are read");
        rows.extend(runs.into_iter().map(Row::Run));
    }
    rows.extend(from.asides(0, 100).await.expect("events aside are read").into_iter().map(Row::Aside));
    let mut after = None;
    loop {
        let page = from.cached(after, 2).await.expect("answers are read");
        let Some(last) = page.last() else { break };
        after = Some((last.source, last.key.clone()));
        rows.extend(page.into_iter().map(Row::Cached));
    }
    to.put(rows).await.expect("rows are put");
    to.take_frame(&from.frame().await.expect("the frame is read")).await.expect("the frame is taken over");
}

#[tokio::test]
async fn a_copy_has_the_sources_their_answers_and_what_waits_for_them() {
    let place = Place::new();
    let store = &*place.store;
    declare(store, "shop", rate(1, 2)).await;
    declare(store, "bank", breaker(1)).await;
    append(store, ["a", "b", "c"].map(|key| event("q", key).source("shop"))).await;
    append_one(store, event("q", "late").source("bank").delay(50)).await;
    append(store, [event("q", "d").of("acme").source("bank"), event("q", "plain")]).await;
    let batches = claim_all(store).await;
    assert_eq!(batches.len(), 4);
    let held = batches.iter().find(|b| b.lane.key.as_str() == "a").expect("it was first");
    for key in ["k1", "k2", "k3"] {
        ask(store, held, SourceAction::Keep { key: key.into(), value: json!(key), ttl: None }).await;
    }
    let faulty = batches.iter().find(|b| b.lane.key.as_str() == "d").expect("it has its own source");
    settle_saying(store, faulty, RETRY, fault()).await;
    let other = &*SqliteStore::open(&place.at("copy.db")).expect("a new file opens");
    declare(other, "gone", rate(1, 1)).await;
    copy(store, other).await;
    let (from, to) = (store.frame().await.expect("it is read"), other.frame().await.expect("it is read"));
    assert_eq!((from.declarations, from.sources), (to.declarations, to.sources));
    assert_sound(other).await;
    claim_none(other).await;
    let row = source_row(other, "", "shop").await;
    assert_eq!((row.tokens, row.waiting, row.cached), (Some(0), 1, 3));
    let recall = SourceAction::Recall { key: "k2".into(), ttl: None };
    assert_eq!(ask(other, held, recall).await, SourceAnswer::Hit(json!("k2")));
    settle_saying(other, held, SUCCEEDED, SourceReport::Unused).await;
    assert_eq!(keys(&claim_all(other).await), ["c"], "the token that was not used");
    pass(other, 110).await;
    sweep(other).await;
    let batches = claim_all(other).await;
    assert!(keys(&batches).contains(&"d") && keys(&batches).contains(&"late"), "{:?}", keys(&batches));
    assert_sound(other).await;
}

/// Random steps with sources that come and go: the rows always agree, no queue sleeps past what it could hand out, and
/// in the end nothing is left behind.
#[tokio::test]
async fn whatever_happens_to_sources_every_event_is_handed_out_in_the_end() {
    for seed in 0..12 {
        let place = Place::new();
        let store = &*place.store;
        let mut chance = Chance::seeded(seed);
        let names = ["bank", "shop"];
        declare(store, "shop", rate(3, 2)).await;
        declare(store, "bank", breaker(2)).await;
        let mut held = Vec::new();
        for step in 0..60 {
            let name = *chance.pick(&names);
            match chance.below(10) {
                0..4 => {
                    let key = format!("k{}", chance.below(6));
                    let queue = *chance.pick(&["p", "q"]);
                    let new = event(queue, &key).priority(u8::try_from(chance.below(3)).expect("small"));
                    let new = if chance.percent(80) { new.source(name) } else { new };
                    let _ = quell_store_tests::builders::try_append(store, [new]).await;
                }
                4 | 5 => held.extend(claim_all(store).await),
                6 if !held.is_empty() => {
                    let place = usize::try_from(chance.below(held.len() as u64)).expect("small");
                    let batch = held.swap_remove(place);
                    let verdict = *chance.pick(&[SUCCEEDED, RETRY, FAILED, RELEASE]);
                    let reports = [SourceReport::Fine, fault(), SourceReport::Unused, SourceReport::Starved];
                    let source = *chance.pick(&reports);
                    let request = quell_core::store::SettleRequest {
                        source,
                        ..quell_store_tests::builders::settle_request(&batch, verdict)
                    };
                    let _ = store.settle(request).await;
                }
                6 | 7 => pass(store, chance.below(80)).await,
                8 => {
                    let scope = source_scope(name);
                    let action = match chance.below(4) {
                        0 => ControlAction::DisableSource(scope),
                        1 => ControlAction::EnableSource(scope),
                        2 => ControlAction::ResetSource(scope),
                        _ => ControlAction::RemoveSource { name: source_name(name) },
                    };
                    let _ = quell_store_tests::builders::try_control(store, action).await;
                }
                _ => {
                    let rules = if chance.percent(50) { rate(3, 2) } else { breaker(1) };
                    declare(store, name, rules).await;
                }
            }
            let problems = verify(store).await.problems;
            assert!(problems.is_empty(), "seed {seed}, step {step}: {problems:?}");
        }
        for name in names {
            declare(store, name, breaker(1_000)).await;
            let _ = control(store, ControlAction::EnableSource(source_scope(name))).await;
            let _ = control(store, ControlAction::ResetSource(source_scope(name))).await;
        }
        pass(store, LEASE.as_secs() + 10).await;
        let mut rounds = 0;
        loop {
            pass(store, 100).await;
            let batches = claim_all(store).await;
            if batches.is_empty() {
                break;
            }
            for batch in &batches {
                settle(store, batch, SUCCEEDED).await;
            }
            rounds += 1;
            assert!(rounds < 50, "seed {seed}: it comes to an end");
        }
        assert_sound(store).await;
        for row in quell_store_tests::reads::stats(store).await {
            assert_eq!((row.totals.buffered, row.totals.in_flight), (0, 0), "seed {seed}: {row:?}");
        }
    }
}
