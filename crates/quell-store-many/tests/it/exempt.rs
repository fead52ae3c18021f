//! The promises of the shared suite that two databases do not make, and why. Each of them is made by every single database.

/// Nothing for a promise that is made.
pub(crate) fn reason(promise: &str) -> Option<&'static str> {
    EXEMPT.iter().find(|(_, promises)| promises.contains(&promise)).map(|(reason, _)| *reason)
}

/// By reason.
const EXEMPT: &[(&str, &[&str])] = &[
    (
        "`max_running` is counted by each database, so each has a share of it: less than there are databases is refused, and room that \
     is free in one is not given to another",
        &[
            "claim::an_expired_lease_makes_room_under_max_running",
            "claim::at_most_max_running_lanes_of_a_queue_run_over_all_handles",
            "claim::max_running_is_per_tenant",
            "pitfalls::pitfall_30_a_crash_leaks_no_room_under_max_running",
            "pitfalls::pitfall_44_a_limit_counts_runs_and_not_events",
        ],
    ),
    (
        "priorities and due times decide within a database; claims take turns among them",
        &[
            "priority::a_higher_priority_goes_first",
            "priority::equal_priorities_go_by_due_time",
            "priority::the_lowest_priority_never_starves",
        ],
    ),
    (
        "numbers of two databases, and what happens in them within one millisecond, have no order",
        &[
            "control::every_operators_hand_is_on_record_with_its_name",
            "inspect::audit_is_listed_newest_first_page_by_page",
            "inspect::runs_are_listed_newest_first_page_by_page",
            "histories::random_histories_of_policies_match_the_memory_store",
        ],
    ),
    (
        "each database removes a small step of its own",
        &["sweep::the_retention_works_in_small_steps_and_says_when_there_is_more"],
    ),
    (
        "a source has its limit, its breaker and its kept answers in each database: the rate is divided (less than one request a minute \
     for each is refused), and what one database learns of the source the other does not",
        &[
            "sources::a_changed_rate_concerns_the_future_only",
            "sources::a_delayed_event_meets_its_source_when_it_enters",
            "sources::a_deleted_first_event_leaves_the_source_of_the_next",
            "sources::a_faulty_probe_renews_the_cooldown_and_burns_no_attempt",
            "sources::a_faulty_probe_that_says_failed_has_failed",
            "sources::a_fetch_that_failed_is_not_kept_and_the_next_one_fetches",
            "sources::a_fetcher_that_died_is_not_waited_for_longer_than_its_flight",
            "sources::a_flush_does_not_pass_a_source",
            "sources::a_full_lane_that_drops_its_oldest_asks_the_source_of_what_stays",
            "sources::a_half_open_breaker_lets_one_lane_go_and_a_good_answer_closes_it",
            "sources::a_holder_takes_a_token_for_each_further_request",
            "sources::a_kept_answer_is_given_again_and_costs_no_token",
            "sources::a_lane_without_a_token_waits_without_worker_lease_or_attempt",
            "sources::a_listener_hears_that_a_source_lets_go",
            "sources::a_probe_keeps_its_place_as_long_as_it_keeps_its_lease",
            "sources::a_probe_of_another_source_ends_with_the_lease_that_it_had",
            "sources::a_probe_of_another_source_that_fails_opens_it_again",
            "sources::a_probe_that_dies_frees_its_place_and_is_no_verdict",
            "sources::a_probe_that_is_handed_back_or_made_no_request_frees_its_place",
            "sources::a_redriven_run_keeps_its_source",
            "sources::a_removed_source_holds_its_lanes_until_it_is_declared_again_or_released",
            "sources::a_repeated_settle_gives_nothing_back_twice",
            "sources::a_reset_closes_fills_and_forgets",
            "sources::a_run_asks_another_source_by_that_ones_limit",
            "sources::a_run_that_waits_for_tokens_is_handed_back_without_end_and_burns_no_attempt",
            "sources::a_shared_source_is_one_for_all_tenants",
            "sources::a_shared_source_stays_one_while_it_is_not_declared",
            "sources::a_token_that_was_not_used_goes_back",
            "sources::a_wish_to_be_left_alone_is_honoured_and_bounded",
            "sources::an_event_names_its_own_source_in_place_of_its_queues",
            "sources::an_open_breaker_holds_its_lanes_and_burns_nothing",
            "sources::an_unknown_source_is_refused_and_nothing_is_stored",
            "sources::another_source_is_the_tenants_own_unless_it_is_shared",
            "sources::both_halves_of_a_run_ask_its_source",
            "sources::claimers_that_race_never_exceed_the_limit",
            "sources::every_attempt_takes_a_token",
            "sources::faults_of_another_source_open_its_breaker_and_a_probe_closes_it",
            "sources::follow_up_work_of_an_unknown_source_is_held_and_not_lost",
            "sources::holders_that_race_for_another_source_never_exceed_its_limit",
            "sources::impossible_rules_are_refused",
            "sources::lanes_of_other_sources_and_of_none_go_on",
            "sources::next_at_is_the_next_token",
            "sources::no_more_lanes_are_handed_out_than_there_are_tokens",
            "sources::one_fetches_and_the_others_wait",
            "sources::only_the_probes_verdict_moves_a_breaker_that_is_not_closed",
            "sources::sources_and_their_state_survive_a_restart",
            "sources::sources_are_listed_by_name_and_tenant_page_by_page",
            "sources::the_breaker_opens_after_so_many_faults_in_a_row",
            "sources::the_limit_of_another_source_holds_for_its_lanes_too",
            "sources::the_name_of_the_runs_own_source_means_just_that",
            "sources::two_tenants_have_two_buckets_and_two_breakers",
            "sources::what_is_left_of_another_source_waits_for_that_one",
            "sources::what_is_told_of_another_source_does_not_touch_the_runs_own",
            "sources::why_a_lane_waits_names_the_source_and_until_when",
            "histories::random_histories_of_sources_match_the_memory_store",
        ],
    ),
];

#[test]
fn only_promises_that_exist_are_exempt() {
    let suite = include_str!("../../../quell-store-tests/src/suite.rs");
    let listed: Vec<&str> = suite.lines().map(str::trim).collect();
    for promise in EXEMPT.iter().flat_map(|(_, promises)| *promises) {
        let name = promise.split("::").last().unwrap();
        assert!(listed.contains(&name), "there is no promise {promise}");
    }
}
