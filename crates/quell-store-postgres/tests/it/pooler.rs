//! Through a pooler that gives every transaction another connection and follows no prepared statements.
//!
//! A part of the shared suite: every verb, several handles at once, restarts, and the operator's hand.

use async_trait::async_trait;
use quell_store_tests::{Harness, World, run};
use quell_test_servers::{pgbouncer_url, postgres_url};

use crate::world::Schema;

struct Pooled;

#[async_trait]
impl Harness for Pooled {
    async fn world(&self) -> Box<dyn World> {
        Box::new(Schema::fresh(&postgres_url(), &pgbouncer_url(), "&statement_mode=unnamed").await)
    }
}

macro_rules! promises {
    ($($module:ident: $($promise:ident),+;)+) => {
        $(mod $module {
            $(#[test]
            fn $promise() {
                super::run(super::Pooled, async |world| quell_store_tests::$module::$promise(world).await);
            })+
        })+
    };
}

promises! {
    append:
        payload_bytes_survive_exactly,
        an_unknown_answer_is_resolved_by_repeating_the_request,
        ids_are_remembered_across_a_restart,
        sequence_numbers_rise_across_idleness_and_restart,
        one_request_may_concern_several_lanes_and_queues;
    crash:
        a_claimed_run_is_claimable_one_lease_after_a_crash_and_the_attempt_counts,
        a_settle_whose_answer_was_lost_is_repeated_after_the_restart,
        workers_and_senders_that_vanish_at_any_point_lose_nothing;
    races:
        every_event_is_delivered_once_and_in_order_when_nobody_crashes,
        an_append_that_races_with_the_claim_is_in_this_run_or_the_next,
        requests_that_cross_several_lanes_in_opposite_order_all_end;
    options:
        only_one_of_many_finds_the_lane_idle;
    sources:
        claimers_that_race_never_exceed_the_limit,
        a_half_open_breaker_lets_one_lane_go_and_a_good_answer_closes_it,
        a_kept_answer_is_given_again_and_costs_no_token,
        sources_and_their_state_survive_a_restart;
    unknowns:
        claims_of_one_id_at_once_get_the_same,
        settles_sent_at_once_are_answered_each_by_itself;
}
