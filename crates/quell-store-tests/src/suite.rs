//! The list of all promises: every store that calls [`store_suite!`](crate::store_suite) is asked for each of them.

/// One `#[test]` per promise, for the harness that the expression makes.
#[macro_export]
macro_rules! store_suite {
    ($harness:expr) => {
        /// The store under test.
        fn suite_harness() -> impl $crate::Harness {
            $harness
        }

        $crate::promises! { append
            run {
                an_empty_request_is_done_and_changes_nothing
                an_acknowledged_event_is_seen_by_another_handle
                acknowledged_events_lane_state_and_due_time_survive_a_restart
                sequence_numbers_strictly_rise_within_a_lane
                sequence_numbers_rise_across_idleness_and_restart
                sequence_numbers_rise_after_the_lane_was_forgotten
                events_of_one_request_keep_its_order
                one_request_may_concern_several_lanes_and_queues
                a_receipt_names_the_run_in_which_the_event_waits
                a_receipt_says_when_the_lane_will_be_due
                a_window_of_none_is_due_at_once
                a_fixed_window_is_measured_from_the_first_event
                a_quiet_window_restarts_with_each_event
                a_busy_key_is_handed_over_at_the_cap
                an_overdue_quiet_lane_still_restarts_up_to_the_cap
                a_full_count_closes_the_window_early_and_for_good
                full_bytes_close_the_window_early_and_for_good
                the_first_event_fixes_the_window_of_its_run
                an_event_during_a_run_opens_the_next_window_from_its_own_arrival
                a_duplicate_gets_the_first_receipt_and_adds_nothing
                a_duplicate_does_not_move_the_window
                a_duplicate_never_closes_a_window_by_count
                a_resend_with_other_white_space_and_key_order_is_a_duplicate
                the_same_id_with_another_payload_is_a_conflict_that_changes_nothing
                a_conflict_refuses_its_whole_request
                an_id_repeated_inside_one_request_duplicates_the_first
                a_conflict_inside_one_request_refuses_it
                an_id_belongs_to_its_tenant_queue_and_key
                ids_are_compared_as_bytes
                equal_events_without_ids_are_never_merged
                an_unknown_answer_is_resolved_by_repeating_the_request
                a_duplicate_of_an_event_in_flight_is_answered_and_not_delivered_again
                a_duplicate_of_a_finished_event_is_answered_and_revives_nothing
                ids_are_remembered_across_a_restart
                a_payload_over_its_queues_limit_is_refused_and_nothing_is_stored
                a_request_of_too_many_events_is_refused_and_nothing_is_stored
                a_full_lane_refuses_the_whole_request_and_keeps_what_it_has
                events_in_flight_count_for_the_lane_limit_until_they_are_settled
                a_duplicate_is_answered_even_when_the_lane_is_full
                a_full_lane_does_not_concern_another_lane
                two_tenants_never_share_a_lane
                neighbouring_names_never_become_one_lane
                a_key_may_hold_any_characters_and_is_compared_as_bytes
                a_key_over_its_limit_cannot_even_be_said
                payload_bytes_survive_exactly
                a_payload_at_the_highest_limit_survives
                headers_and_arrival_time_travel_with_the_event
                a_conflict_in_one_request_does_not_affect_another_sent_at_the_same_time
                the_totals_hold_after_every_step
            }
        }
        $crate::promises! { claim
            run {
                a_due_lane_is_handed_over_whole_and_in_order
                the_envelope_tells_the_whole_story
                the_envelope_says_why_the_batch_was_handed_over
                a_lane_that_is_not_due_is_not_handed_over
                a_lane_is_due_at_the_very_millisecond_and_not_before
                a_lease_ends_at_the_very_millisecond_and_not_before
                a_leased_lane_yields_no_second_batch
                an_event_after_the_claim_belongs_to_a_later_run
                what_is_left_over_by_count_is_due_at_once_and_in_order
                what_is_left_over_by_bytes_is_due_at_once_and_in_order
                what_is_left_over_takes_in_later_events_without_waiting_again
                what_is_left_over_waits_for_the_batch_before_it
                a_receipt_of_a_left_over_event_follows_it_to_its_new_run
                a_window_runs_on_during_processing_and_keeps_its_own_reason
                a_claim_takes_distinct_lanes_up_to_its_maximum
                a_claim_of_listed_queues_takes_only_those_by_their_own_policy
                a_claim_of_no_queues_takes_nothing
                a_claim_for_one_tenant_takes_only_its_lanes
                at_most_max_running_lanes_of_a_queue_run_over_all_handles
                max_running_is_per_tenant
                an_expired_lease_makes_room_under_max_running
                tokens_strictly_rise_within_a_lane
                attempts_are_counted_at_the_claim
                a_crashed_workers_lane_is_claimable_one_lease_later_and_the_reclaim_is_told
                a_reclaim_on_the_last_attempt_goes_to_the_dead_letter_and_the_lane_goes_on
                a_claim_that_distrusts_its_clock_leaves_expired_leases_alone
                a_claim_takes_back_only_lanes_that_concern_it
                one_blocked_key_never_delays_another_key
                a_lane_that_always_has_work_does_not_starve_the_others
                next_at_is_the_earliest_moment_at_which_something_is_due
                next_at_follows_a_window_that_moves
                next_at_sees_only_what_the_claim_may_take
                a_listener_is_woken_by_an_append_of_another_handle
                no_wake_up_is_lost_between_an_empty_claim_and_the_wait
                a_listener_hears_a_settle_that_leaves_work_behind
                a_listener_hears_a_flush_and_a_resume
                every_transition_has_one_audit_record_with_all_its_facts
                a_claim_is_shown_on_the_lane_with_worker_token_and_lease
            }
        }
        $crate::promises! { extend
            run {
                a_renewed_lease_keeps_the_lane
                a_lane_is_claimable_one_lease_after_the_last_heartbeat
                a_lease_never_ends_earlier_than_it_was_promised
                a_handler_of_many_leases_finishes_under_one_token
                the_answer_tells_what_arrived_for_the_next_run
                a_stale_worker_cannot_extend_and_moves_nothing
                a_run_that_ended_or_waits_cannot_be_extended
                a_token_that_was_never_given_cannot_extend
                an_expired_lease_that_nobody_took_back_may_still_be_extended
                a_heartbeat_is_shown_and_counts_no_attempt
                a_pause_does_not_take_a_lease_from_its_holder
                extending_one_lane_does_not_keep_another
                next_at_follows_a_lease_that_was_renewed
            }
        }
        $crate::promises! { settle
            run {
                succeeded_ends_the_run_and_leaves_the_lane_idle
                newer_events_follow_a_success_by_their_own_window
                a_retry_waits_its_delay_and_repeats_the_very_same_batch
                a_retry_without_delay_is_due_at_once
                a_lane_in_backoff_is_not_claimable_by_newer_events
                the_last_attempt_that_asks_for_a_retry_goes_to_the_dead_letter
                failed_goes_to_the_dead_letter_with_payload_error_and_sequence_numbers
                settle_touches_only_the_events_of_its_own_run
                a_release_hands_the_run_back_at_once_and_refunds_the_attempt
                a_second_release_in_a_row_waits
                a_loop_of_releases_ends_because_refunds_are_bounded
                a_stale_worker_changes_nothing_and_learns_so
                a_worker_whose_lane_was_swept_is_stale_though_nobody_has_claimed_yet
                a_token_that_was_never_given_is_refused
                a_repeated_settle_gets_the_same_answer
                a_settle_with_another_verdict_is_refused_as_already_settled
                a_repeated_settle_after_a_later_claim_gets_the_same_answer_and_disturbs_nobody
                a_settlement_is_remembered_for_an_hour
                an_expired_lease_that_nobody_took_back_may_still_be_settled
                error_result_and_usage_are_kept_with_the_run
                the_error_of_the_latest_attempt_is_shown_while_it_waits_and_is_gone_after_success
                a_settle_through_another_handle_counts_as_well
                every_change_sets_updated_at_to_store_time
            }
        }
        $crate::promises! { during_run
            run {
                after_held_nothing_makes_the_run_give_way
                the_gate_ends_the_attempt_when_something_newer_arrived
                the_gate_tells_a_holder_that_it_was_interrupted
                what_arrives_after_held_waits_for_the_next_run
                a_gate_without_condition_passes_whatever_arrived
                a_repeated_hold_gets_the_same_answer
                a_stale_worker_does_not_pass_the_gate
                every_later_attempt_of_a_held_run_repeats_batch_and_revision
                settle_of_a_held_run_ignores_if_head
                if_head_is_the_head_at_the_claim
                what_waited_before_the_claim_supersedes_nothing
                a_full_batch_never_gives_way
                an_append_only_asks_the_holder_to_stop
                an_acknowledged_interrupt_merges_and_refunds
                a_holder_that_was_asked_to_stop_may_still_succeed
                a_holder_that_dies_after_an_interrupt_is_merged_and_its_attempt_counts
                interrupted_without_being_asked_is_a_retry
                interrupts_are_bounded_and_then_events_queue
                the_window_reopens_from_the_first_newer_event
                supersedes_are_bounded_and_then_if_head_is_ignored
                superseded_with_newer_events_merges_and_refunds
                superseded_without_newer_events_is_a_retry
                superseded_too_often_is_a_retry
                a_retry_with_newer_events_takes_them_in
                the_retry_time_alone_decides_when_newer_events_are_taken_in
                the_last_allowed_attempt_takes_no_newer_events_in
                a_merge_never_cuts_the_old_batch_and_what_is_left_over_is_due_at_once
                a_run_that_was_taken_in_says_where_its_events_went
                a_run_keeps_its_counts_across_merges_and_a_restart
                a_window_runs_on_during_a_backoff_and_keeps_its_own_reason
                a_repeated_giving_way_gets_the_same_answer
                a_tenant_may_have_a_policy_of_its_own
            }
        }
        $crate::promises! { failure
            run {
                hand_backs_are_refunded_ten_times_apart_from_giving_way
                only_hand_backs_in_a_row_wait
                a_failing_batch_is_halved_and_the_halves_go_before_anything_newer
                halving_leaves_the_guilty_event_alone
                halving_starts_when_the_attempts_are_used_up
                a_half_that_asks_for_a_retry_is_halved_at_once
                a_single_failing_event_goes_to_the_dead_letter
                the_parent_shows_its_halves_and_counts_no_events
                a_held_run_is_never_halved
                a_crash_during_a_half_halves_it_again
                a_hand_back_of_a_half_is_refunded
                halves_take_nothing_newer_in
                halves_survive_a_restart
                a_failed_run_blocks_its_lane_by_name
                used_up_attempts_and_crashes_block_too
                a_blocked_lane_accepts_and_windows_events
                redriving_the_failed_run_ends_the_block_and_goes_first
                the_run_that_blocked_goes_before_another_redriven_run
                nothing_else_ends_a_block
                resume_ends_the_block_and_leaves_the_run_dead
                a_block_and_a_pause_are_independent
                a_block_survives_a_restart
                the_policy_of_the_latest_claim_decides_what_a_failure_does
            }
        }
        $crate::promises! { redrive
            run {
                a_dead_run_goes_back_as_a_new_run_of_exactly_its_events
                on_an_idle_lane_it_is_due_now
                it_goes_after_the_current_run_and_before_anything_buffered
                as_new_gives_new_numbers_and_keeps_the_ids
                as_new_opens_a_window_by_the_rules_of_the_queue
                a_repeated_redrive_does_nothing
                some_events_go_back_and_the_others_stay_dead
                a_redriven_run_has_a_fresh_budget_and_may_die_again
                steps_are_carried_only_with_the_whole_run_at_the_head
                steps_are_not_carried_by_the_rest_of_a_run
                discarded_events_are_redrivable
                only_runs_that_ended_badly_are_redriven
                a_redriven_run_takes_nothing_newer_in
                a_resend_of_a_dead_or_redriven_event_is_a_duplicate
                redriven_events_outlive_the_run_they_left
                a_redrive_is_on_record_with_the_operator
                events_go_back_with_the_payloads_that_an_operator_gave_them
                redriven_runs_survive_a_restart
                too_many_redriven_runs_in_one_lane_are_refused
            }
        }
        $crate::promises! { hands
            run {
                a_cancel_asks_the_holder_and_waits_for_the_end_of_its_attempt
                after_a_cancel_every_end_but_success_is_the_cancellation
                a_success_wins_over_a_cancel
                a_cancelled_run_ends_with_its_lease
                the_gate_stops_a_cancelled_run
                a_cancel_ends_a_waiting_current_run_at_once_and_alone
                a_cancel_without_a_current_run_ends_the_open_one
                a_cancel_of_a_named_run_touches_no_other
                a_cancel_of_nothing_changes_nothing
                discarded_events_are_kept_for_the_retention
                a_flush_ends_the_wait_of_a_run_that_gave_way
                a_purge_discards_dead_letters
                a_purge_discards_delayed_events
                a_purge_of_buffered_events_never_touches_a_current_run
                a_dry_purge_only_counts
                a_purge_reaches_only_what_it_names
                a_purge_works_in_steps_and_says_when_there_is_more
                a_full_lane_drops_its_oldest_buffered_events_on_record
                a_full_lane_never_drops_what_is_in_flight
                a_request_never_drops_its_own_events
                dropping_the_oldest_does_not_move_the_window
                a_buffered_event_can_be_edited
                a_buffered_event_can_be_deleted
                only_buffered_events_can_be_edited_or_deleted
            }
        }
        $crate::promises! { erase
            run {
                an_erased_lane_is_gone_from_every_place
                an_erased_key_starts_anew
                the_holder_of_an_erased_run_is_stale
                a_settle_from_before_the_erasure_is_still_answered
                the_trail_stays_whole_and_names_the_erased_key_no_more
                an_erasure_tells_nobody
                a_key_that_has_only_delayed_events_is_erased_on_record
                an_erasure_of_nothing_changes_nothing
                one_event_is_erased_wherever_it_is
                erasing_a_buffered_event_leaves_the_others_waiting
                erasing_an_event_in_flight_cancels_its_run
                erasing_a_dead_event_leaves_the_others_dead
                erasing_an_event_of_a_redriven_run_leaves_the_current_one_alone
                an_erased_key_is_neither_paused_nor_blocked
                totals_stay_true_across_retention_purge_and_erase
            }
        }
        $crate::promises! { sweep
            run {
                an_expired_lease_is_taken_back_and_told_with_its_worker
                a_live_lease_is_left_alone
                a_lease_is_taken_back_at_the_very_millisecond_and_not_before
                sweeping_twice_takes_back_once
                a_sweep_that_distrusts_its_clock_takes_nothing_back
                the_last_attempt_goes_to_the_dead_letter_as_lease_expired
                a_crash_after_a_retry_keeps_the_count_of_both
                many_expired_leases_are_taken_back_in_steps
                a_paused_lane_is_taken_back_but_not_handed_out
                a_listener_hears_that_a_lane_was_taken_back
                the_retention_removes_finished_runs_their_events_and_ids
                an_id_is_free_after_the_retention_though_its_lane_lives_on
                nothing_younger_than_the_retention_is_removed
                the_retention_starts_when_the_event_ends
                events_that_have_not_ended_are_never_removed
                dead_letters_and_their_ids_never_expire
                the_retention_removes_only_the_events_of_the_runs_it_removes
                the_totals_do_not_change_when_history_is_removed
                old_audit_is_removed_and_young_audit_is_kept
                the_retention_works_in_small_steps_and_says_when_there_is_more
                an_idle_lane_that_nothing_remembers_is_gone
                without_a_retention_nothing_is_removed
                a_sweep_of_an_empty_store_finds_nothing
                a_changed_attempt_budget_applies_from_the_next_claim_on
            }
        }
        $crate::promises! { inspect
            run {
                an_unknown_lane_run_or_event_is_nothing
                a_lane_shows_its_buffered_events_in_order_and_bounded
                a_lane_says_why_it_waits
                an_event_is_found_wherever_it_is
                a_run_is_shown_from_its_first_event_to_its_end
                lanes_are_listed_page_by_page_without_repeating_or_missing
                pages_go_on_from_one_queue_to_the_next
                lanes_are_filtered_by_tenant_queue_prefix_and_state
                a_key_prefix_is_never_a_pattern
                runs_are_listed_newest_first_page_by_page
                a_page_of_runs_that_ends_the_listing_says_so
                audit_is_listed_newest_first_page_by_page
                a_cursor_that_makes_no_sense_does_no_harm
                stats_count_each_tenants_queue_by_itself
                leases_tell_the_oldest_holder_and_those_not_heard_of
                health_tells_the_stores_own_time
                the_description_says_how_much_an_acknowledgement_is_worth
                reads_change_nothing
                a_read_after_a_write_shows_it_on_every_handle
                verify_counts_every_event_that_is_kept
            }
        }
        $crate::promises! { control
            run {
                flush_closes_the_window_now
                a_flushed_window_is_not_opened_again_by_later_events
                a_flush_closes_an_overdue_quiet_window_too
                flush_of_an_empty_unknown_or_due_lane_changes_nothing
                flush_ends_a_backoff
                flush_ends_the_wait_of_a_second_release
                flush_of_a_running_lane_lets_the_next_run_follow_at_once
                flush_never_goes_past_a_pause
                a_flush_is_seen_by_next_at
                a_paused_lane_accepts_events_and_hands_out_none
                windows_and_backoff_go_on_during_a_pause
                a_pause_does_not_stop_a_running_attempt
                a_key_can_be_paused_before_its_first_event
                pausing_and_resuming_twice_changes_nothing_and_keeps_the_first_hand
                a_paused_queue_holds_all_its_lanes_also_those_to_come
                a_queue_can_be_paused_for_one_tenant
                a_queue_of_no_tenant_is_not_the_queue_of_all_tenants
                pauses_are_independent_of_one_another
                pauses_survive_a_restart
                every_operators_hand_is_on_record_with_its_name
                an_operators_hand_moves_no_totals
            }
        }
        $crate::promises! { aside
            run {
                a_delayed_event_is_accepted_without_number_and_run
                a_delayed_event_enters_its_lane_when_its_delay_is_over
                a_delay_ends_at_the_very_millisecond_and_not_before
                an_event_aside_is_found_by_its_id
                a_lane_tells_how_many_events_are_aside
                a_delayed_event_keeps_its_wishes
                a_delay_over_its_limit_is_refused
                delayed_events_enter_in_the_order_of_readiness_and_acceptance
                a_delayed_event_blocks_nobody
                the_window_of_a_delayed_event_begins_at_its_entry
                a_delayed_event_joins_the_window_that_it_meets
                a_paused_lane_takes_ready_events_in
                next_at_includes_when_something_aside_is_ready
                a_listener_is_woken_by_a_delayed_event
                a_sweep_takes_ready_events_in
                many_ready_events_enter_in_steps_and_in_order
                delayed_events_survive_a_restart
                a_full_lane_leaves_events_aside_and_takes_them_in_order
                what_waits_for_a_full_lane_holds_up_nobody
                an_event_from_aside_drops_the_oldest_where_its_queue_says_so
                an_event_from_aside_never_drops_what_a_worker_holds
                several_from_aside_drop_as_many_and_leave_no_gap
                the_same_id_is_one_event_aside_and_in_its_lane
                a_known_id_with_another_payload_is_a_conflict_aside_too
                an_id_aside_belongs_to_its_lane
                an_id_repeated_inside_one_request_of_delayed_events_duplicates_the_first
                an_unknown_answer_of_a_delayed_append_is_resolved_by_repeating_it
                a_refused_request_leaves_nothing_aside
            }
        }
        $crate::promises! { carried
            run {
                what_a_settle_carries_enters_under_ids_of_its_run
                what_a_settle_carries_survives_a_restart
                what_a_settle_carries_is_stored_once_however_often_it_is_repeated
                nothing_is_carried_while_the_run_goes_on
                a_split_carries_nothing
                a_failed_run_carries_events_too
                a_refused_settle_carries_nothing
                a_settle_that_carries_too_much_is_refused_whole
                a_carried_event_may_be_delayed_and_for_its_own_lane
                an_append_with_the_id_of_a_carried_event_is_its_duplicate
                a_carried_event_that_is_already_in_its_lane_is_dropped_and_recorded
                a_carried_event_that_conflicts_becomes_a_dead_letter
                the_end_of_a_run_is_told_once_with_its_facts
                only_the_states_that_were_asked_for_are_told
                a_run_whose_last_lease_expired_is_told_by_the_sweep
                a_cancelled_run_is_told_where_that_is_asked_for
                split_parents_and_merged_runs_are_not_told
                a_run_of_notices_is_never_told
                the_latest_claim_says_who_is_told
            }
        }
        $crate::promises! { schedules
            run {
                a_schedule_fires_an_event_of_its_own_id_at_its_time
                a_fire_happens_once_over_all_handles_claims_and_sweeps
                handles_that_race_fire_once
                a_claim_fires_what_concerns_it_and_a_sweep_everything
                after_downtime_only_the_latest_missed_fire_runs
                a_schedule_keeps_its_place_across_a_restart
                what_has_fired_never_fires_again
                a_new_schedule_has_missed_nothing
                a_schedule_put_again_unchanged_keeps_its_place
                a_schedule_with_other_contents_keeps_its_place
                a_changed_timetable_fires_for_no_moment_before_the_change
                a_schedule_may_move_to_another_queue
                a_removed_schedule_fires_no_more
                a_schedule_fires_by_the_clock_of_its_zone
                next_at_is_the_next_fire
                schedules_of_two_tenants_are_two
                a_fire_opens_the_window_of_its_queue
                a_fire_into_a_full_lane_drops_the_oldest_and_keeps_the_rest
                a_rare_schedule_waits_for_its_day
            }
        }
        $crate::promises! { sources
            run {
                no_more_lanes_are_handed_out_than_there_are_tokens
                a_rest_fills_the_bucket_up_to_the_burst_and_no_further
                a_lane_without_a_token_waits_without_worker_lease_or_attempt
                lanes_of_other_sources_and_of_none_go_on
                next_at_is_the_next_token
                an_event_names_its_own_source_in_place_of_its_queues
                every_attempt_takes_a_token
                a_token_that_was_not_used_goes_back
                a_token_that_comes_back_late_never_adds_to_a_bucket_that_was_filled_meanwhile
                a_repeated_settle_gives_nothing_back_twice
                a_holder_takes_a_token_for_each_further_request
                a_run_that_waits_for_tokens_is_handed_back_without_end_and_burns_no_attempt
                who_says_starved_and_is_not_is_handed_back_like_others
                only_the_holder_asks_anything_of_the_source
                a_run_without_a_source_is_not_governed
                a_batch_is_the_longest_prefix_with_one_source
                what_is_left_of_another_source_waits_for_that_one
                a_retry_takes_in_newer_events_of_its_own_source_only
                a_run_does_not_give_way_to_events_of_another_source
                a_deleted_first_event_leaves_the_source_of_the_next
                a_full_lane_that_drops_its_oldest_asks_the_source_of_what_stays
                a_redriven_run_keeps_its_source
                events_of_several_sources_are_redriven_as_new_and_not_at_the_head
                both_halves_of_a_run_ask_its_source
                a_delayed_event_meets_its_source_when_it_enters
                a_delayed_event_whose_source_was_removed_is_held_and_not_lost
                follow_up_work_of_an_unknown_source_is_held_and_not_lost
                an_unknown_source_is_refused_and_nothing_is_stored
                the_breaker_opens_after_so_many_faults_in_a_row
                an_open_breaker_holds_its_lanes_and_burns_nothing
                a_half_open_breaker_lets_one_lane_go_and_a_good_answer_closes_it
                a_faulty_probe_renews_the_cooldown_and_burns_no_attempt
                a_faulty_probe_that_says_failed_has_failed
                a_probe_that_dies_frees_its_place_and_is_no_verdict
                a_probe_keeps_its_place_as_long_as_it_keeps_its_lease
                only_the_probes_verdict_moves_a_breaker_that_is_not_closed
                a_probe_that_is_handed_back_or_made_no_request_frees_its_place
                requests_that_were_reported_by_themselves_are_not_counted_again_at_the_end
                a_wish_to_be_left_alone_is_honoured_and_bounded
                a_disabled_source_holds_its_lanes_and_enabling_lets_them_go
                a_listener_hears_that_a_source_lets_go
                a_removed_source_holds_its_lanes_until_it_is_declared_again_or_released
                a_reset_closes_fills_and_forgets
                a_changed_rate_concerns_the_future_only
                impossible_rules_are_refused
                two_tenants_have_two_buckets_and_two_breakers
                a_shared_source_is_one_for_all_tenants
                a_shared_source_stays_one_while_it_is_not_declared
                sources_are_listed_by_name_and_tenant_page_by_page
                why_a_lane_waits_names_the_source_and_until_when
                a_flush_does_not_pass_a_source
                sources_and_their_state_survive_a_restart
                claimers_that_race_never_exceed_the_limit
                a_run_asks_another_source_by_that_ones_limit
                the_limit_of_another_source_holds_for_its_lanes_too
                holders_that_race_for_another_source_never_exceed_its_limit
                faults_of_another_source_open_its_breaker_and_a_probe_closes_it
                a_probe_of_another_source_that_fails_opens_it_again
                a_probe_of_another_source_ends_with_the_lease_that_it_had
                what_is_told_of_another_source_does_not_touch_the_runs_own
                the_name_of_the_runs_own_source_means_just_that
                another_source_that_is_not_declared_is_refused
                another_source_that_is_disabled_lets_nobody_ask
                another_source_keeps_no_answers
                another_source_is_the_tenants_own_unless_it_is_shared
                only_the_holder_asks_another_source
                a_kept_answer_is_given_again_and_costs_no_token
                one_fetches_and_the_others_wait
                a_fetch_that_failed_is_not_kept_and_the_next_one_fetches
                a_fetcher_that_died_is_not_waited_for_longer_than_its_flight
                an_answer_expires_by_the_time_of_its_keeper_or_of_who_asks
                a_disabled_cache_keeps_nothing
                answers_of_two_sources_and_of_two_tenants_are_apart
                keys_and_answers_over_their_limits_are_refused
                a_sweep_forgets_answers_that_are_over
                the_policy_of_a_run_is_not_touched_by_its_source
            }
        }
        $crate::promises! { source_trail
            run {
                every_hand_on_a_source_is_in_the_trail_with_who_when_and_why
                a_hand_that_changes_nothing_or_is_refused_leaves_no_record
                the_sources_of_two_tenants_have_two_trails
                nobody_sends_to_the_queue_of_that_trail
                the_trail_of_a_source_is_forgotten_with_the_retention
                hands_that_race_are_all_in_the_trail
            }
        }
        $crate::promises! { attempts
            run {
                every_attempt_is_told_with_its_own_error_and_answer_also_after_a_restart
                an_error_alone_is_kept_and_a_plain_success_leaves_nothing
                a_repeated_settle_leaves_the_report_as_it_is
                who_lost_the_lease_tells_nothing
                of_a_run_that_is_tried_for_ever_the_latest_attempts_are_told
                a_report_is_no_step_and_no_step_is_a_report
                reports_are_erased_with_their_lane_or_event_and_forgotten_with_their_run
                a_redriven_run_begins_without_reports_and_the_old_one_keeps_its_own
                a_report_is_cut_and_its_run_ends_all_the_same
            }
        }
        $crate::promises! { shelf
            run {
                a_document_is_listed_as_it_was_put
                a_put_replaces_what_stands_under_its_name
                documents_are_listed_in_the_order_of_their_bytes
                shelves_do_not_know_of_one_another
                only_the_first_of_a_name_may_be_put_as_new
                what_is_removed_is_gone_and_removing_it_again_says_so
                a_document_is_gone_after_its_time_by_the_clock_of_the_store
                a_name_whose_time_is_over_is_free_again
                a_sweep_takes_away_what_is_over_and_nothing_else
                a_shelf_holds_so_many_documents_and_not_one_more
                a_document_over_a_limit_is_refused_and_nothing_is_stored
                names_and_json_survive_exactly
                documents_survive_a_restart
                a_sealed_store_lists_its_shelves_and_changes_nothing
                of_many_who_want_to_be_the_first_exactly_one_is
            }
        }
        $crate::promises! { tables
            run {
                a_store_has_tables_or_says_that_it_has_none
                rows_come_back_as_they_were_written
                what_was_written_survives_a_restart
                a_write_is_stored_whole_or_not_at_all
                of_many_who_change_a_row_on_a_condition_exactly_one_does
                migrations_are_applied_once_in_order_and_by_one_at_a_time
                tables_of_a_newer_application_are_left_alone
                a_migration_that_fails_leaves_nothing
            }
        }
        $crate::promises! { keys
            run {
                a_store_has_keys_or_says_that_it_has_none
                values_come_back_as_they_were_passed
                what_a_script_wrote_survives_a_restart
                a_script_tells_the_time_of_the_store
                of_many_who_change_a_key_on_a_condition_exactly_one_does
                applications_do_not_see_one_another
                names_beyond_the_applications_own_are_refused
                a_script_that_is_wrong_is_refused_and_so_is_its_answer
                a_read_changes_nothing
                a_sealed_store_is_read_and_not_changed
                the_store_itself_is_not_disturbed
            }
        }
        $crate::promises! { steps
            run {
                the_first_result_of_a_step_stays
                a_result_may_be_any_json
                a_later_attempt_gets_the_result_back
                another_run_starts_without_steps
                a_stale_worker_takes_no_steps
                an_expired_lease_that_nobody_took_back_may_still_record_a_step
                a_merge_forgets_the_steps_and_keeps_them_on_record
                a_held_run_keeps_its_steps
                a_run_shows_its_steps
                the_same_attempt_may_repeat_its_intent
                an_intent_without_a_result_is_unknown_to_a_later_attempt
                an_unknown_step_may_be_finished_by_a_later_attempt
                an_intent_does_not_concern_other_steps
                a_steps_name_is_checked
                a_result_over_its_limit_is_refused
                a_run_has_a_bounded_number_of_steps
                the_retention_removes_the_steps_of_a_run
                an_erasure_removes_the_steps
                a_whole_redrive_at_the_head_carries_the_steps
                a_cancelled_run_carries_its_steps_too
                a_redrive_carries_the_steps_of_the_latest_revision
                any_other_redrive_starts_without_steps
            }
        }
        $crate::promises! { unknowns
            run {
                a_repeated_settle_of_each_verdict_is_answered_alike
                a_repeated_settle_of_an_exhausted_retry_is_answered_alike
                a_repeated_settle_of_giving_way_is_answered_alike
                a_repeated_settle_that_became_a_retry_is_answered_alike
                a_repeated_conditional_success_is_answered_alike
                a_repeated_settle_of_a_cancelled_run_is_answered_alike
                a_repeated_settle_of_a_split_run_is_answered_alike
                a_settlement_is_answered_alike_after_more_than_an_hour
                only_a_token_that_never_settled_is_stale
                settles_sent_at_once_are_answered_each_by_itself
                a_repeated_hold_is_answered_alike_after_its_attempt
                a_repeated_claim_returns_the_same_live_claims
                a_repeated_claim_does_not_change_what_was_handed_over
                a_repeated_claim_starts_anew_when_its_claims_have_ended
                the_same_claim_id_of_another_worker_is_another_claim
                a_claim_that_got_nothing_or_has_no_id_takes_what_is_due
                a_claim_id_that_is_empty_or_too_long_is_refused
                claims_of_one_id_at_once_get_the_same
                a_limit_in_one_request_does_not_affect_another_sent_at_the_same_time
                a_duplicate_of_a_dead_or_discarded_event_revives_nothing
                a_purged_delayed_event_is_known_and_redrivable
                an_id_repeated_inside_one_array_duplicates_the_first
                ids_expire_only_when_the_event_has_ended_and_the_retention_is_over
                the_id_of_a_redriven_event_expires_when_it_ends_at_last
            }
        }
        $crate::promises! { priority
            run {
                a_higher_priority_goes_first
                one_level_overtakes_by_less_than_thirty_seconds
                one_level_does_not_overtake_by_more_than_thirty_seconds
                the_lowest_priority_never_starves
                equal_priorities_go_by_due_time
                priority_hands_out_nothing_early
                priority_never_reorders_inside_a_lane
                a_lane_has_the_highest_priority_of_its_buffered_events
                a_lane_has_the_highest_priority_of_its_current_events_too
                a_newer_event_lifts_a_run_in_backoff
                a_priority_is_kept
                the_scale_is_zero_to_nine_with_a_middle
                a_paused_lane_keeps_its_place
            }
        }
        $crate::promises! { options
            run {
                the_first_event_may_bring_a_window_of_its_own
                a_window_of_its_own_keeps_the_bounds_of_the_queue
                a_later_override_sets_the_quiet_period_of_its_own_step
                a_later_override_lowers_the_cap_and_never_raises_it
                a_fixed_window_is_shortened_and_never_lengthened
                a_later_window_of_none_acts_as_a_flush
                an_override_does_not_outlive_its_window
                an_impossible_window_of_its_own_is_refused
                only_if_idle_is_refused_while_the_lane_has_work
                only_if_idle_is_refused_while_an_event_is_aside
                only_if_idle_counts_its_own_request_and_answers_duplicates
                only_one_of_many_finds_the_lane_idle
                an_equal_event_of_the_open_window_is_the_same_event
                an_equal_event_after_the_window_is_a_new_one
                equal_events_of_one_request_are_one
                equal_events_are_merged_only_where_that_is_asked_for
                a_delayed_event_is_never_merged_by_its_content
                a_full_lane_drops_its_oldest_and_records_it
                as_many_of_the_oldest_are_dropped_as_are_needed
                dropping_does_not_move_the_window
                events_in_flight_are_never_dropped
            }
        }
        $crate::promises! { races
            run {
                every_event_is_delivered_once_and_in_order_when_nobody_crashes
                concurrent_appends_with_one_id_store_one_event
                concurrent_appends_of_one_id_with_two_payloads_keep_one_of_them
                two_claimers_never_get_the_same_lane
                concurrent_claims_keep_max_running
                reclaim_and_settle_at_once_have_exactly_one_winner
                extend_and_reclaim_at_once_have_exactly_one_winner
                one_settle_of_many_at_once_counts
                two_verdicts_at_once_have_exactly_one_winner
                a_lane_limit_holds_against_many_senders
                requests_that_cross_several_lanes_in_opposite_order_all_end
                an_append_that_races_with_the_claim_is_in_this_run_or_the_next
                an_append_that_races_with_the_settle_is_never_forgotten
                one_of_many_operators_pauses_the_lane
                a_worker_that_trusts_its_wake_ups_sleeps_through_nothing
            }
        }
        $crate::promises! { crash
            run {
                a_claimed_run_is_claimable_one_lease_after_a_crash_and_the_attempt_counts
                a_holder_that_outlives_the_store_may_still_settle
                a_settle_whose_answer_was_lost_is_repeated_after_the_restart
                a_renewed_lease_survives_a_restart
                backoff_left_overs_and_closed_windows_survive_a_restart
                a_crash_between_reclaim_and_claim_costs_nothing_more
                a_batch_that_kills_every_worker_ends_in_the_dead_letter
                store_time_never_goes_back_and_never_jumps_at_a_restart
                workers_and_senders_that_vanish_at_any_point_lose_nothing
            }
            run_many {
                a_restart_between_any_two_calls_changes_no_answer
            }
        }
        $crate::promises! { histories
            run_many {
                random_histories_of_windows_match_the_memory_store
                random_histories_of_failures_match_the_memory_store
                random_histories_of_operators_match_the_memory_store
                random_histories_of_policies_match_the_memory_store
                random_histories_of_sources_match_the_memory_store
            }
        }
        $crate::promises! { pitfalls
            run {
                pitfall_01_a_busy_key_runs_even_if_nobody_set_a_cap
                pitfall_02_a_later_event_cannot_lift_the_cap
                pitfall_04_an_event_just_before_the_cap_joins_the_same_run
                pitfall_05_windows_are_kept_to_the_millisecond
                pitfall_06_there_is_one_due_time_wherever_it_is_read
                pitfall_07_only_the_stores_clock_decides
                pitfall_08_a_future_due_time_wakes_those_who_sleep_for_longer
                pitfall_09_a_window_is_measured_from_arrival
                pitfall_11_all_events_of_a_burst_are_delivered
                pitfall_12_an_event_is_never_folded_into_a_batch_already_taken
                pitfall_13_nothing_is_merged_by_finding_and_marking
                pitfall_14_arrays_and_objects_are_events_like_any_other
                pitfall_15_a_failing_run_keeps_its_events_when_newer_ones_arrive
                pitfall_16_newer_events_do_not_reset_attempts_or_backoff
                pitfall_17_every_sender_gets_a_number_or_an_error
                pitfall_18_an_event_during_the_last_moment_of_a_run_needs_no_later_event
                pitfall_19_what_was_not_admitted_reserves_nothing
                pitfall_20_an_answered_event_has_its_timer
                pitfall_21_events_are_ordered_by_arrival_and_not_by_their_own_time
                pitfall_22_a_duplicate_inside_the_window_is_one_event
                pitfall_23_what_is_answered_under_contention_is_there
                pitfall_24_overflow_is_told_to_the_sender
                pitfall_25_a_lease_is_independent_of_the_length_of_the_run
                pitfall_28_every_change_is_conditional_on_state_and_token
                pitfall_30_a_crash_leaks_no_room_under_max_running
                pitfall_31_a_claim_of_many_takes_distinct_lanes
                pitfall_32_an_identity_used_twice_does_not_own_the_old_lease
                pitfall_33_a_crash_counts_as_an_attempt
                pitfall_34_each_claim_of_a_run_is_counted
                pitfall_35_a_claim_takes_back_expired_lanes_without_any_sweeper
                pitfall_36_a_blocked_key_with_many_events_hides_nobody
                pitfall_37_a_backoff_blocks_its_own_lane_and_no_other
                pitfall_38_a_retry_is_never_overtaken
                pitfall_39_a_key_is_only_a_key
                pitfall_40_the_same_key_of_two_tenants_or_queues_is_two_lanes
                pitfall_43_keys_that_went_idle_leave_nothing_behind
                pitfall_44_a_limit_counts_runs_and_not_events
                pitfall_45_a_pause_holds_events_and_skips_none
                pitfall_48_a_hot_key_takes_all_its_events_while_it_is_processed
                pitfall_49_a_batch_is_cut_by_bytes_and_the_rest_follows_in_order
            }
        }
        $crate::promises! { holes
            run {
                hole_000_lost_marker_update_between_two_processes
                hole_000_two_workers_deleting_a_stale_lock
                hole_000_event_during_processing
                hole_000_worker_dies_and_no_later_event_comes
                hole_000_event_between_re_read_and_delete_of_the_marker
                hole_000_two_events_with_one_timestamp
                hole_000_a_slow_holders_clean_up_deletes_anothers_lock
                hole_001_stale_worker_completing_after_reclaim
                hole_001_running_without_any_heartbeat_never_reclaimed
                hole_002_task_longer_than_its_lease
                hole_002_audit_row_missing_after_a_crash
                hole_002_success_reported_twice
                hole_002_crash_between_status_update_and_notification
            }
        }
    };
}

/// The body of [`store_suite!`]: a module of tests, by how each promise is run.
#[doc(hidden)]
#[macro_export]
macro_rules! promises {
    ($group:ident $($run:ident { $($name:ident)* })*) => {
        mod $group {
            $($(
                #[test]
                fn $name() {
                    let harness = super::suite_harness();
                    let name = concat!(stringify!($group), "::", stringify!($name));
                    if let Some(reason) = $crate::Harness::exempts(&harness, name) {
                        eprintln!("{name} is not promised here: {reason}");
                        return;
                    }
                    $crate::$run(harness, async |given| $crate::$group::$name(given).await);
                }
            )*)*
        }
    };
}

#[cfg(test)]
mod tests {
    //! A promise that nobody calls is no promise.

    #[test]
    fn every_promise_is_in_the_macro() {
        let modules = [
            ("append", include_str!("append.rs")),
            ("claim", include_str!("claim.rs")),
            ("extend", include_str!("extend.rs")),
            ("settle", include_str!("settle.rs")),
            ("during_run", include_str!("during_run.rs")),
            ("failure", include_str!("failure.rs")),
            ("redrive", include_str!("redrive.rs")),
            ("hands", include_str!("hands.rs")),
            ("erase", include_str!("erase.rs")),
            ("sweep", include_str!("sweep.rs")),
            ("inspect", include_str!("inspect.rs")),
            ("control", include_str!("control.rs")),
            ("aside", include_str!("aside.rs")),
            ("carried", include_str!("carried.rs")),
            ("schedules", include_str!("schedules.rs")),
            ("shelf", include_str!("shelf.rs")),
            ("sources", include_str!("sources.rs")),
            ("source_trail", include_str!("source_trail.rs")),
            ("attempts", include_str!("attempts.rs")),
            ("tables", include_str!("tables.rs")),
            ("steps", include_str!("steps.rs")),
            ("unknowns", include_str!("unknowns.rs")),
            ("priority", include_str!("priority.rs")),
            ("options", include_str!("options.rs")),
            ("races", include_str!("races.rs")),
            ("crash", include_str!("crash.rs")),
            ("histories", include_str!("histories.rs")),
            ("pitfalls", include_str!("pitfalls.rs")),
            ("holes", include_str!("holes.rs")),
        ];
        let listed: Vec<&str> = include_str!("suite.rs").lines().map(str::trim).collect();
        for (module, source) in modules {
            let promises = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            for promise in promises.filter_map(|rest| rest.split('(').next()) {
                assert!(listed.contains(&promise), "{module}::{promise} is not in store_suite!");
            }
        }
    }
}
