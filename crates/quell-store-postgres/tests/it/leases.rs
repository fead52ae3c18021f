//! One row names the lanes of a claim: when it comes and goes, and what becomes of leases that older programs have given.

use std::time::Duration;

use quell_core::store::RunPolicy;
use quell_store_tests::builders::{
    SUCCEEDED, append, claim, claim_all, claim_request, claim_request_by, event, policy, settle, worker,
};
use quell_test_servers::postgres_url;

use crate::world::{end, fresh_schema, open_in, run_sql};

/// Longer than the lease that [`claim_request`] asks for.
const LONGER: Duration = Duration::from_secs(3_600);

/// Fails unless so many rows are in `lease_group`, and so many in the table of older programs.
async fn expect_rows(schema: &str, groups: usize, older: usize) {
    let sql = format!(
        "DO $$ DECLARE groups int := (SELECT count(*) FROM {schema}.lease_group);
                       older int := (SELECT count(*) FROM {schema}.lease);
         BEGIN
           IF (groups, older) <> ({groups}, {older}) THEN RAISE EXCEPTION '% groups, % older', groups, older; END IF;
         END $$"
    );
    run_sql(&postgres_url(), &sql).await;
}

#[tokio::test]
async fn a_claim_writes_one_row_that_goes_with_the_last_of_its_lanes() {
    let schema = fresh_schema();
    let store = open_in(&schema).await;
    append(&*store, ["a", "b", "c"].map(|key| event("q", key))).await;
    let held = claim_all(&*store).await;
    expect_rows(&schema, 1, 0).await;
    for batch in &held[..2] {
        settle(&*store, batch, SUCCEEDED).await;
    }
    expect_rows(&schema, 1, 0).await;
    settle(&*store, &held[2], SUCCEEDED).await;
    expect_rows(&schema, 0, 0).await;
    end(&schema, store).await;
}

#[tokio::test]
async fn lanes_that_another_process_hands_back_take_the_row_along_too() {
    let schema = fresh_schema();
    let (one, other) = (open_in(&schema).await, open_in(&schema).await);
    append(&*one, ["a", "b"].map(|key| event("q", key))).await;
    let held = claim_all(&*one).await;
    settle(&*other, &held[0], SUCCEEDED).await;
    expect_rows(&schema, 1, 0).await;
    settle(&*other, &held[1], SUCCEEDED).await;
    expect_rows(&schema, 0, 0).await;
    // The one that has given them believes that they are still under way: nothing of what it does later suffers.
    append(&*one, ["a", "b"].map(|key| event("q", key))).await;
    for batch in &claim_all(&*one).await {
        settle(&*one, batch, SUCCEEDED).await;
    }
    expect_rows(&schema, 0, 0).await;
    drop(other);
    end(&schema, one).await;
}

#[tokio::test]
async fn the_row_of_a_process_that_died_goes_when_its_lanes_are_taken_back() {
    let schema = fresh_schema();
    let dead = open_in(&schema).await;
    append(&*dead, ["a", "b", "c"].map(|key| event("q", key))).await;
    let held = claim_all(&*dead).await;
    settle(&*dead, &held[0], SUCCEEDED).await;
    drop(dead);
    let store = open_in(&schema).await;
    store.advance(LONGER).await.expect("the clock can be moved");
    let taken = claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(taken.reclaimed.len(), 2, "{taken:?}");
    expect_rows(&schema, usize::from(!taken.batches.is_empty()), 0).await;
    end(&schema, store).await;
}

#[tokio::test]
async fn leases_of_an_older_program_are_settled_counted_and_taken_back() {
    let schema = fresh_schema();
    let older = open_in(&schema).await;
    append(&*older, ["a", "b", "c"].map(|key| event("q", key))).await;
    let held = claim_all(&*older).await;
    drop(older);
    let as_before = "INSERT INTO %.lease (queue_id, lease_at, lane_id, claim_id)
                     SELECT queue_id, lease_at, unnest(lanes), claim_id FROM %.lease_group; DELETE FROM %.lease_group";
    run_sql(&postgres_url(), &as_before.replace('%', &schema)).await;
    let store = open_in(&schema).await;
    settle(&*store, &held[0], SUCCEEDED).await;
    expect_rows(&schema, 0, 2).await;
    append(&*store, [event("q", "d")]).await;
    let bounded = claim_request_by(&worker("w"), RunPolicy { max_running: Some(2), ..policy() });
    assert!(claim(&*store, bounded).await.batches.is_empty(), "two are running");
    store.advance(LONGER).await.expect("the clock can be moved");
    let taken = claim(&*store, claim_request(&worker("w"))).await;
    assert_eq!(taken.reclaimed.len(), 2, "{taken:?}");
    expect_rows(&schema, 1, 0).await;
    end(&schema, store).await;
}
