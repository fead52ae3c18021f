//! The first event of a lane lies in the row of the lane: which one does, that nobody who asks sees a difference, and what programs of
//! older versions do to it, which know one table of events.

use std::time::Duration;

use quell_store_tests::builders::{
    RETRY, SUCCEEDED, append, append_one, claim_all, claim_one, claim_one_as, erase_event, event, forget,
    lane_of, seq_of, settle, settle_after, worker,
};
use quell_test_servers::postgres_url;
use serde_json::json;

use crate::world::{WITHOUT_FIRSTS, end, fresh_schema, open_in, run_sql};

/// Fails unless so many events lie with their lanes, and so many in the table of events.
async fn expect_events(schema: &str, with_lanes: usize, apart: usize) {
    let sql = format!(
        "DO $$ DECLARE first int := (SELECT count(*) FROM {schema}.lane WHERE first_seq IS NOT NULL);
                       apart int := (SELECT count(*) FROM {schema}.event_row);
                       shown int := (SELECT count(*) FROM {schema}.event);
         BEGIN
           IF (first, apart, shown) <> ({with_lanes}, {apart}, {with_lanes} + {apart}) THEN
             RAISE EXCEPTION '% with lanes, % apart, % shown', first, apart, shown;
           END IF;
         END $$"
    );
    run_sql(&postgres_url(), &sql).await;
}

#[tokio::test]
async fn the_first_lies_with_its_lane_and_all_others_do_not() {
    let schema = fresh_schema();
    let store = open_in(&schema).await;
    append(&*store, [event("q", "a").payload(json!(1)), event("q", "a").payload(json!(2))]).await;
    append_one(&*store, event("q", "a").payload(json!(3))).await;
    append_one(&*store, event("q", "b").payload(json!(4))).await;
    expect_events(&schema, 2, 2).await;
    let held = claim_all(&*store).await;
    let payloads: Vec<Vec<&str>> =
        held.iter().map(|batch| batch.events.iter().map(|e| e.payload.as_str()).collect()).collect();
    assert_eq!(payloads, [vec!["1", "2", "3"], vec!["4"]]);
    for batch in &held {
        settle(&*store, batch, SUCCEEDED).await;
    }
    // Whoever comes again finds the lane there.
    append_one(&*store, event("q", "b").payload(json!(5))).await;
    expect_events(&schema, 2, 3).await;
    assert_eq!(claim_one(&*store).await.events[0].payload.as_str(), "5");
    end(&schema, store).await;
}

#[tokio::test]
async fn one_that_is_large_or_has_headers_lies_apart_and_none_behind_it_takes_its_place() {
    let schema = fresh_schema();
    let store = open_in(&schema).await;
    append(&*store, [event("q", "a").payload(json!("x".repeat(600))), event("q", "a")]).await;
    append(&*store, [event("q", "b").header("trace", "1"), event("q", "b")]).await;
    expect_events(&schema, 0, 4).await;
    let sizes: Vec<usize> = claim_all(&*store).await.iter().map(|batch| batch.events.len()).collect();
    assert_eq!(sizes, [2, 2]);
    end(&schema, store).await;
}

#[tokio::test]
async fn a_run_that_is_tried_again_has_the_event_again() {
    let schema = fresh_schema();
    let store = open_in(&schema).await;
    append_one(&*store, event("q", "a").payload(json!({"n": 1}))).await;
    let first = claim_one(&*store).await;
    settle_after(&*store, &first, RETRY, Duration::ZERO).await;
    let again = claim_one_as(&*store, &worker("another")).await;
    assert_eq!(again.events, first.events);
    settle(&*store, &again, SUCCEEDED).await;
    end(&schema, store).await;
}

#[tokio::test]
async fn it_goes_when_it_is_erased_or_forgotten() {
    let schema = fresh_schema();
    let store = open_in(&schema).await;
    append_one(&*store, event("q", "a").id("one")).await;
    append(&*store, [event("q", "b"), event("q", "b")]).await;
    expect_events(&schema, 2, 1).await;
    erase_event(&*store, &lane_of("", "q", "a"), "one").await;
    for batch in claim_all(&*store).await {
        settle(&*store, &batch, SUCCEEDED).await;
    }
    append_one(&*store, event("q", "b")).await;
    store.advance(Duration::from_secs(3_600)).await.expect("the clock can be moved");
    let swept = forget(&*store, Duration::from_secs(60)).await;
    assert!(swept.removed_events >= 2, "{swept:?}");
    // The event that waits was not the first of its lane.
    expect_events(&schema, 0, 1).await;
    assert_eq!(claim_one(&*store).await.events.len(), 1);
    end(&schema, store).await;
}

#[tokio::test]
async fn a_program_of_an_older_version_reads_and_writes_one_table_of_events() {
    let schema = fresh_schema();
    let store = open_in(&schema).await;
    let receipt = append_one(&*store, event("q", "a").id("first").payload(json!(1))).await;
    append_one(&*store, event("q", "b").payload(json!(2))).await;
    let (lane, seq) = (receipt.run_id.expect("it waits in a run").lane, seq_of(&receipt));
    let as_before = format!(
        "DO $$ BEGIN
           IF (SELECT payload FROM @.event WHERE lane_id = {lane} AND id = 'first') <> '1' THEN RAISE 'not seen'; END IF;
           UPDATE @.event e SET mark = u.mark, payload = coalesce(u.payload, e.payload)
             FROM unnest(ARRAY[{lane}::bigint], ARRAY[{seq}::bigint], ARRAY[NULL::bigint], ARRAY['\"edited\"'])
               AS u(lane, seq, mark, payload) WHERE e.lane_id = u.lane AND e.seq = u.seq;
         END $$"
    );
    run_sql(&postgres_url(), &as_before.replace('@', &schema)).await;
    expect_events(&schema, 1, 1).await;
    let held = claim_all(&*store).await;
    assert_eq!(held[0].events[0].payload.as_str(), "\"edited\"");
    for batch in &held {
        settle(&*store, batch, SUCCEEDED).await;
    }
    let as_before = format!(
        "DO $$ DECLARE gone int; BEGIN
           INSERT INTO @.event (lane_id, seq, received_at, mark, was_seq, priority, id, print, headers, payload, source)
             SELECT lane_id, seq + 1000000, received_at, mark, was_seq, priority, 'second', print, headers, payload, source
             FROM @.event WHERE lane_id = {lane};
           IF (SELECT count(*) FROM @.event WHERE lane_id = {lane}) <> 2 THEN RAISE 'not added'; END IF;
           WITH gone AS (
             DELETE FROM @.event e USING unnest(ARRAY[{lane}::bigint], ARRAY[{seq}::bigint + 1000000]) AS w(lane, seq)
             WHERE e.lane_id = w.lane AND e.seq = w.seq RETURNING 1)
           SELECT count(*) INTO gone FROM gone;
           IF gone <> 1 THEN RAISE '% deleted', gone; END IF;
           DELETE FROM @.event WHERE lane_id <> {lane};
         END $$"
    );
    run_sql(&postgres_url(), &as_before.replace('@', &schema)).await;
    expect_events(&schema, 0, 1).await;
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn what_an_older_program_has_prepared_goes_on_while_the_schema_changes() {
    let schema = fresh_schema();
    drop(open_in(&schema).await);
    run_sql(&postgres_url(), &WITHOUT_FIRSTS.replace('%', &schema)).await;
    let (client, connection) =
        tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls).await.expect("the server is there");
    let connection = tokio::spawn(connection);
    let ready = async |sql: &str| client.prepare(&sql.replace('%', &schema)).await.expect("it is right");
    let add = ready(
        "INSERT INTO %.event (lane_id, seq, received_at, priority, id, print, payload)
         SELECT unnest($1::bigint[]), unnest($2::bigint[]), 0, 4, unnest($3::text[]), unnest($4::bytea[]), '1'",
    )
    .await;
    let read = ready("SELECT e.seq, e.payload FROM %.event e WHERE e.lane_id = $1 ORDER BY e.seq").await;
    let take = ready("DELETE FROM %.event WHERE lane_id = ANY($1)").await;
    let put = async |lane: i64, seq: i64| {
        let print = vec![0u8; 16];
        client.execute(&add, &[&vec![lane], &vec![seq], &vec!["old"], &vec![print]]).await.expect("it is put")
    };
    let seqs = async |lane: i64| -> Vec<i64> {
        client.query(&read, &[&lane]).await.expect("it is read").iter().map(|row| row.get(0)).collect()
    };
    // Often enough for the server to keep the plans.
    for seq in 1..=8 {
        assert_eq!(put(7, seq).await, 1);
        assert_eq!(seqs(7).await.len(), usize::try_from(seq).expect("it is small"));
    }
    let store = open_in(&schema).await;
    let receipt = append_one(&*store, event("q", "a")).await;
    let (lane, seq) = (receipt.run_id.expect("it waits in a run").lane, seq_of(&receipt));
    expect_events(&schema, 1, 8).await;
    let (lane, seq) = (i64::try_from(lane).expect("it is small"), i64::try_from(seq).expect("it is small"));
    assert_eq!(seqs(lane).await, [seq], "it lies with its lane");
    assert_eq!(put(lane, seq + 1).await, 1);
    assert_eq!(seqs(lane).await, [seq, seq + 1]);
    let gone = client.execute(&take, &[&vec![7, lane]]).await.expect("they are taken out");
    assert_eq!(gone, 10);
    expect_events(&schema, 0, 0).await;
    drop((client, store));
    connection.await.expect("the connection ends").expect("the connection ends well");
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn whoever_joins_with_all_events_goes_by_the_indexes_of_both_places() {
    let schema = fresh_schema();
    drop(open_in(&schema).await);
    let joined = "unnest(ARRAY[1::bigint], ARRAY[2::bigint]) AS w(lane, seq)";
    let of_one = "e.lane_id = w.lane AND e.seq = w.seq";
    for sql in [
        format!("SELECT * FROM {joined} JOIN @.event e ON {of_one}"),
        format!("DELETE FROM @.event e USING {joined} WHERE {of_one}"),
        format!("UPDATE @.event e SET mark = 1 FROM {joined} WHERE {of_one}"),
        "SELECT (SELECT count(*) FROM @.event e WHERE e.lane_id = l.id) FROM @.lane l WHERE l.id = 1"
            .to_owned(),
    ] {
        let explained = format!(
            "DO $$ DECLARE line text; BEGIN
               SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;
               FOR line IN EXECUTE $sql$EXPLAIN {sql}$sql$ LOOP
                 IF line LIKE '%Seq Scan%' THEN RAISE EXCEPTION 'it reads everything: %', line; END IF;
               END LOOP;
             END $$"
        );
        run_sql(&postgres_url(), &explained.replace('@', &schema)).await;
    }
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}
