//! Sources as only this store keeps them: what held lanes cost the others, several stores on one schema, what is declared
//! while sources are made, stores of before there were any, copies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quell_core::clock::{ManualClock, Timestamp};
use quell_core::copy::{Portable, Row};
use quell_core::inspect::SourceFilter;
use quell_core::memory::MemoryStore;
use quell_core::source::{Breaker, SourceRules};
use quell_core::store::{ClaimRequest, SourceAction, SourceAnswer, Store};
use quell_store_postgres::PostgresStore;
use quell_store_tests::builders::{
    FAILED, SUCCEEDED, append, append_one, ask, breaker, claim, claim_all, claim_none, claim_one,
    claim_request, control, declare, event, fault, lane, rate, secs, settle, settle_saying, source_scope,
    worker,
};
use quell_store_tests::reads::{lane_detail, source_page, source_row, verify};
use quell_test_servers::{Options, Postgres, postgres_url};
use tokio_postgres::Client;

use crate::world::{WITHOUT_FIRSTS, fresh_schema, run_sql, with};

async fn open(schema: &str) -> Arc<PostgresStore> {
    PostgresStore::open_url(&with(&postgres_url(), schema, "")).await.expect("it opens")
}

async fn gone(schema: &str) {
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

async fn client(server: &Postgres) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.expect("the server is there");
    tokio::spawn(connection);
    client
}

/// What the server has done in a schema: looks into tables and indexes, and the rows that they gave.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Work {
    looks: i64,
    rows: i64,
}

/// Sessions tell what they did when they end: it is waited for until nothing more comes.
async fn work(client: &Client, schema: &str) -> Work {
    let sql = "SELECT (SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE schemaname = $1)::bigint
                 + (SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE schemaname = $1)::bigint,
               (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = $1)::bigint
                 + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = $1)::bigint";
    let mut last = None;
    loop {
        let row = client.query_one(sql, &[&schema]).await.expect("the server counts");
        let now = Work { looks: row.get(0), rows: row.get(1) };
        if last == Some(now) {
            return now;
        }
        last = Some(now);
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
}

/// What twenty claims of lanes cost that wait for no source, beside so many that an open breaker holds.
async fn cost_beside(server: &Postgres, held: usize) -> Work {
    let schema = fresh_schema();
    let url = with(&server.url(), &schema, "");
    let store = PostgresStore::open_url(&url).await.expect("it opens");
    declare(&*store, "shop", SourceRules { cooldown: secs(3_600), ..breaker(1) }).await;
    append_one(&*store, event("q", "first").queue_source("shop")).await;
    let probe = claim_one(&*store).await;
    settle_saying(&*store, &probe, FAILED, fault()).await;
    for part in (0..held).collect::<Vec<_>>().chunks(2_000) {
        append(&*store, part.iter().map(|n| event("q", &format!("held{n}")).queue_source("shop"))).await;
    }
    append(&*store, (0..40).map(|n| event("q", &format!("free{n}")))).await;
    let row = source_row(&*store, "", "shop").await;
    assert_eq!((row.breaker, row.waiting), (Breaker::Open, held as u64));
    assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
    drop(store);
    let client = client(server).await;
    let before = work(&client, &schema).await;
    let store = PostgresStore::open_url(&url).await.expect("it opens");
    for _ in 0..20 {
        let request = ClaimRequest { max: 2, ..claim_request(&worker("w")) };
        let batches = claim(&*store, request).await.batches;
        assert_eq!(batches.len(), 2, "two of those that wait for no source");
    }
    drop(store);
    let after = work(&client, &schema).await;
    Work { looks: after.looks - before.looks, rows: after.rows - before.rows }
}

/// On a server of its own: transactions of others would keep entries alive that claims have left behind.
#[tokio::test]
async fn ten_thousand_lanes_held_by_an_open_breaker_cost_the_claims_of_others_no_more_than_one() {
    let server = Postgres::start(Options::default()).expect("PostgreSQL is installed");
    let (one, many) = (cost_beside(&server, 1).await, cost_beside(&server, 10_000).await);
    println!("twenty claims beside one held lane: {one:?}; beside ten thousand: {many:?}");
    assert_eq!(many.looks, one.looks, "as many looks into tables and indexes");
    // The server's own upkeep may keep what a few claims left behind: that is as nothing against ten thousand lanes.
    assert!(many.rows <= one.rows + 200, "{one:?} {many:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_that_claim_at_once_keep_to_the_limit_in_every_window() {
    const BURST: u32 = 5;
    const PER_MINUTE: u32 = 1_200;
    let schema = fresh_schema();
    let stores = [open(&schema).await, open(&schema).await];
    declare(&*stores[0], "shop", rate(PER_MINUTE, BURST)).await;
    append(&*stores[0], (0..400).map(|n| event("q", &format!("k{n}")).queue_source("shop"))).await;
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for nth in 0..4 {
        let store = stores[nth % 2].clone();
        tasks.push(tokio::spawn(async move {
            let mut taken: Vec<(Duration, Duration)> = Vec::new();
            while begun.elapsed() < Duration::from_secs(4) {
                let from = begun.elapsed();
                let batches = claim(&*store, claim_request(&worker(&format!("w{nth}")))).await.batches;
                let upto = begun.elapsed();
                taken.extend(batches.iter().map(|_| (from, upto)));
                for batch in &batches {
                    settle(&*store, batch, SUCCEEDED).await;
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.expect("no task panics"));
    }
    // Each token was taken between the two moments. The server counts whole milliseconds.
    for (from, _) in &taken {
        for (_, upto) in taken.iter().filter(|(_, upto)| upto > from) {
            let inside = taken.iter().filter(|(a, b)| a >= from && b <= upto).count();
            let seconds = (*upto - *from).as_secs_f64() + 0.002;
            let allowed = f64::from(BURST) + seconds * f64::from(PER_MINUTE) / 60.0;
            assert!(inside as f64 <= allowed, "{inside} in {seconds} s, {allowed} are allowed");
        }
    }
    assert!(taken.len() > 40, "both got on: {}", taken.len());
    assert_eq!(verify(&*stores[1]).await.problems, Vec::<String>::new());
    drop(stores);
    gone(&schema).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_made_while_its_declaration_changes_has_the_rules_that_are_declared() {
    let schema = fresh_schema();
    let (one, other) = (open(&schema).await, open(&schema).await);
    declare(&*one, "shop", rate(1, 1)).await;
    let sender = {
        let one = one.clone();
        tokio::spawn(async move {
            for n in 0..60 {
                let made = event("q", "k").of(&format!("t{n}")).queue_source("shop");
                append_one(&*one, made).await;
            }
        })
    };
    let mut rules = rate(1, 1);
    for burst in 2.. {
        if sender.is_finished() {
            break;
        }
        rules = rate(1, burst % 50 + 1);
        declare(&*other, "shop", rules).await;
    }
    sender.await.expect("no task panics");
    let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
    let rows = source_page(&*one, filter).await.items;
    assert_eq!(rows.len(), 61, "one for each tenant, and the one of none");
    for row in rows {
        assert_eq!(row.rules, rules, "of {}", row.tenant);
    }
    drop((one, other));
    gone(&schema).await;
}

/// As version 1 left it.
async fn back_to_version_1(schema: &str) {
    let sql = "DROP TABLE %.source, %.declaration, %.answer, %.queue_source, %.document, %.application;
               ALTER TABLE %.event DROP COLUMN source;
               ALTER TABLE %.lane DROP COLUMN source;
               ALTER TABLE %.lane SET (fillfactor = 70);
               ALTER TABLE %.due DROP CONSTRAINT due_pkey;
               ALTER TABLE %.due DROP COLUMN source;
               ALTER TABLE %.due ADD PRIMARY KEY (queue_id, priority, due_at, lane_id);
               INSERT INTO %.lease (queue_id, lease_at, lane_id, claim_id)
               SELECT g.queue_id, g.lease_at, unnest(g.lanes), g.claim_id FROM %.lease_group g;
               DROP TABLE %.lease_group;
               UPDATE %.meta SET version = 1";
    run_sql(&postgres_url(), &[WITHOUT_FIRSTS, sql].concat().replace('%', schema)).await;
}

#[tokio::test]
async fn a_store_from_before_there_were_sources_goes_on_where_it_was() {
    let schema = fresh_schema();
    let store = open(&schema).await;
    append(&*store, ["a", "b"].map(|key| event("q", key))).await;
    let held = claim(&*store, ClaimRequest { max: 1, ..claim_request(&worker("w")) }).await.batches;
    drop(store);
    back_to_version_1(&schema).await;
    let store = open(&schema).await;
    assert_eq!(store.description().schema, 7);
    assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
    settle(&*store, &held[0], SUCCEEDED).await;
    declare(&*store, "shop", rate(1, 1)).await;
    append(&*store, ["a", "b", "c"].map(|key| event("q", key).queue_source("shop"))).await;
    assert_eq!(claim_all(&*store).await.len(), 2, "the lane from before, and one for the one token");
    claim_none(&*store).await;
    assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
    drop(store);
    gone(&schema).await;
}

/// Everything of one store in another, without the comparisons of the real copy.
async fn copied(from: &dyn Portable, to: &dyn Portable) {
    let mut rows = Vec::new();
    for lane in from.lanes(0, 1_000).await.expect("a copy goes on") {
        let (id, runs) = (lane.lane.id, from.runs(lane.lane.id, 0, 1_000).await.expect("a copy goes on"));
        rows.push(Row::Lane(lane));
        rows.extend(
            from.events(id, 0, 1_000)
                .await
                .expect("a copy goes on")
                .into_iter()
                .map(|kept| Row::Event(id, kept)),
        );
        rows.extend(runs.into_iter().map(Row::Run));
    }
    rows.extend(from.cached(None, 1_000).await.expect("a copy goes on").into_iter().map(Row::Cached));
    rows.extend(from.trail(0, 1_000).await.expect("a copy goes on").into_iter().map(Row::Trail));
    // Twice, because a copy that was cut short is continued.
    to.put(rows.clone()).await.expect("a copy goes on");
    to.put(rows).await.expect("a copy goes on");
    to.take_frame(&from.frame().await.expect("a copy goes on")).await.expect("a copy goes on");
}

#[tokio::test]
async fn sources_travel_with_a_copy_in_both_directions() {
    let schema = fresh_schema();
    let store = open(&schema).await;
    declare(&*store, "shop", rate(1, 2)).await;
    declare(&*store, "other", breaker(3)).await;
    control(&*store, quell_core::store::ControlAction::DisableSource(source_scope("other"))).await;
    append(&*store, ["a", "b", "c"].map(|key| event("q", key).queue_source("shop"))).await;
    append_one(&*store, event("q", "d").source("other")).await;
    let held = claim_all(&*store).await;
    assert_eq!(held.len(), 2);
    let recall = || SourceAction::Recall { key: "k".into(), ttl: None };
    ask(&*store, &held[0], recall()).await;
    let keep = SourceAction::Keep { key: "k".into(), value: serde_json::json!({ "price": 7 }), ttl: None };
    ask(&*store, &held[0], keep).await;
    let frame = store.frame().await.unwrap();
    assert_eq!((frame.declarations.len(), frame.sources.len()), (2, 2));
    let memory = MemoryStore::new(Arc::new(ManualClock::at(frame.now)));
    copied(&*store, &memory).await;
    let there = memory.frame().await.unwrap();
    assert_eq!((&there.declarations, &there.sources), (&frame.declarations, &frame.sources));
    let second = fresh_schema();
    let back = open(&second).await;
    copied(&memory, &*back).await;
    let here = back.frame().await.unwrap();
    assert_eq!((&here.declarations, &here.sources), (&frame.declarations, &frame.sources));
    assert_eq!(back.cached(None, 10).await.unwrap(), store.cached(None, 10).await.unwrap());
    assert_eq!(verify(&*back).await.problems, Vec::<String>::new());
    // The copy works at once: its holders go on, and its lanes wait for what they waited for.
    let hit = SourceAnswer::Hit(serde_json::json!({ "price": 7 }));
    assert_eq!(ask(&*back, &held[1], recall()).await, hit);
    let waits = lane_detail(&*back, &lane("q", "d")).await.expect("it is there").waiting;
    assert_eq!(waits.source.expect("its source is disabled").name.as_str(), "other");
    assert!(claim(&*back, claim_request(&worker("w"))).await.next_at > Some(Timestamp::default()));
    back.advance(secs(65)).await.unwrap();
    assert_eq!(claim_one(&*back).await.source, held[0].source, "one a minute");
    drop((store, back));
    gone(&schema).await;
    gone(&second).await;
}
