//! Prices on real stores, with real workers and a marketplace that is a real server on this machine.
//!
//! Every promise about stored prices is kept on SQLite and on PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod books;
mod collections;
mod dedupe;
mod fan_out;
mod interrupted;
mod market;
mod shared;
mod value;
mod world;

/// Every promise on both stores.
macro_rules! on_both {
    ($from:ident: $($name:ident)*) => {
        $(mod $name {
            use crate::world::Kind;

            #[tokio::test(flavor = "multi_thread")]
            async fn on_sqlite() {
                crate::$from::$name(Kind::Sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_postgres() {
                crate::$from::$name(Kind::Postgres).await;
            }
        })*
    };
}

on_both! { books:
    an_intake_is_added_once_and_listed_by_page
    a_removed_intake_takes_everything_with_it
    only_a_strictly_better_match_replaces_a_point
    a_changed_price_is_an_observation_and_no_second_point
    nothing_seen_moves_back_in_time
    a_stale_token_stores_nothing
    a_removed_intake_stores_nothing
    a_collection_that_is_stored_twice_counts_once
    those_who_write_at_once_take_turns
    points_and_observations_are_bounded
    points_are_listed_by_page_the_last_seen_first
    a_value_is_replaced_by_later_claims_only
    texts_of_all_kinds_come_back_as_they_were
}

on_both! { collections:
    pages_become_points_and_one_value
    what_is_met_again_is_seen_and_not_stored_twice
    a_run_that_fails_stores_nothing
    a_page_that_is_too_large_to_be_remembered_fails_with_advice
    a_source_whose_pages_never_end_is_left_after_the_most
    a_fault_of_the_source_is_tried_again_from_the_page_it_came_to
    requests_that_cannot_be_right_fail_with_a_reason
    a_test_shows_what_would_be_stored_and_stores_nothing
    twenty_equal_events_are_twenty_runs_one_after_the_other
}

on_both! { interrupted:
    a_crash_between_store_and_settle_is_repeated_harmlessly
    a_page_that_was_turned_is_not_fetched_again_after_a_crash
    a_page_that_was_turned_is_not_fetched_again_for_want_of_a_token
    an_intake_that_is_removed_meanwhile_gets_no_points
    a_worker_that_wakes_late_stores_nothing
}

on_both! { shared:
    an_answer_from_the_cache_touches_neither_bucket_nor_breaker
    two_intakes_with_equal_attributes_are_fetched_once
    other_values_in_a_request_are_another_question
    a_kept_answer_is_as_old_as_its_first_page
}

on_both! { fan_out:
    everything_is_one_event_for_each_intake_and_enabled_source
    a_repeated_attempt_sends_nothing_twice
    a_lane_that_has_something_to_do_gets_nothing_more
}

#[tokio::test]
async fn a_store_without_tables_is_refused_with_a_reason() {
    use quell::quell_core::memory::MemoryStore;
    let clock = quell::quell_core::clock::ManualClock::at(Default::default());
    let store = std::sync::Arc::new(MemoryStore::new(std::sync::Arc::new(clock)));
    let refused = quell_collectors::book::Book::open(store).await.err().unwrap();
    assert!(refused.to_string().contains("use SQLite or PostgreSQL"), "{refused}");
}
