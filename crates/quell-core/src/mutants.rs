//! Deliberate bugs, one of which can be switched on in a build that is made for it.
//!
//! The tests of the tests: whoever believes in a simulator wants to see it find something. Every place where a mistake
//! would be easy asks [`mutant`] by name whether to make it. In every other build the answer is the constant no, so that
//! nothing of it is left in the program: only `--cfg quell_mutants`, which `crates/quell-core-mutants` sets for a second
//! compilation of these sources, makes it a question. `crates/quell-sim-mutants` proves that each is caught, and
//! `docs/design/mutants.md` says by what.

/// Whether this mistake is to be made: never.
#[cfg(not(quell_mutants))]
#[inline(always)]
pub(crate) const fn mutant(_: &str) -> bool {
    false
}

#[cfg(quell_mutants)]
pub use chosen::{ALL, VARIABLE, choose};

#[cfg(quell_mutants)]
pub(crate) use chosen::mutant;

#[cfg(quell_mutants)]
mod chosen {
    use std::cell::Cell;
    use std::sync::OnceLock;

    /// What names a mistake to a whole process: the suite of the stores spreads its calls over several threads.
    pub const VARIABLE: &str = "QUELL_MUTANT";

    static OF_PROCESS: OnceLock<String> = OnceLock::new();

    thread_local! {
        /// Per thread: a schedule runs on one, so that several mutants can be tried at once.
        static CHOSEN: Cell<&'static str> = const { Cell::new("") };
    }

    /// From now on this mistake is made on this thread, and no other; by the empty name that of the process.
    pub fn choose(name: &'static str) {
        CHOSEN.set(name);
    }

    /// Whether this mistake is to be made.
    pub(crate) fn mutant(name: &str) -> bool {
        match CHOSEN.get() {
            "" => OF_PROCESS.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default()) == name,
            chosen => chosen == name,
        }
    }

    /// Every mistake there is to choose: its name, and what it is.
    pub const ALL: &[(&str, &str)] = &[
        // lane.rs: tokens and leases
        ("no_token_check", "whoever held the run once may settle and extend it, whatever its token"),
        ("token_outlives_its_lease", "a token is still taken after the lane was taken back"),
        ("step_without_token", "a step is remembered for whoever names the run"),
        ("token_counted_per_run", "tokens are counted anew in each run"),
        ("lease_lives_at_its_end", "`<=` for `<` at expiry: a lease lives one moment too long"),
        ("extend_does_not_extend", "a heartbeat is answered, but the lease ends as before"),
        ("crash_resets_attempts", "a lost worker gives all attempts back"),
        ("crash_never_exhausts", "a run whose worker is lost each time is tried for ever"),
        ("crash_forgets_cancel", "a cancelled run whose worker is lost goes on"),
        // lane.rs: attempts and their ends
        ("one_attempt_more", "`>` for `>=`: the last attempt is retried once more"),
        ("half_tries_again", "a half of a split has as many attempts as its queue allows"),
        ("retry_at_once", "a retry does not wait for its backoff"),
        ("backoff_never_grows", "every backoff is as long as the first"),
        ("hand_back_for_ever", "a run may be handed back without a bound"),
        ("cancel_is_forgotten", "a holder that was asked to stop and failed is retried"),
        ("cancel_without_asking", "a cancel ends a running attempt at once, without its holder"),
        ("giving_way_costs_an_attempt", "an attempt that gave way is not refunded"),
        ("gives_way_for_ever", "newer events may interrupt a run without a bound"),
        ("gate_ignores_newer", "the gate before an effect never sees newer events"),
        ("full_batch_gives_way", "a batch that cannot grow gives way to newer events"),
        ("hold_is_forgotten", "the gate answers, and the batch is not frozen"),
        // lane.rs: batches
        ("held_batch_grows", "a batch that was frozen takes newer events in"),
        ("same_batch_grows", "a retry that should repeat the same batch takes newer events in"),
        ("held_batch_is_halved", "a batch that was frozen is halved"),
        ("last_attempt_merges", "the last attempt takes newer events with it to the dead letter"),
        ("merge_keeps_its_revision", "a batch that grew still finds the steps of the smaller one"),
        ("leftover_is_forgotten", "what a full batch leaves behind is lost"),
        ("leftover_waits_again", "what a full batch leaves behind opens a new window"),
        ("one_event_too_many", "a batch has one event more than its bound"),
        ("halves_lose_an_event", "a split leaves one event out"),
        ("right_half_goes_first", "the halves of a split change places"),
        ("last_queued_goes_first", "of the frozen runs that wait the last is next"),
        // lane.rs: pauses and blocks
        ("pause_spares_retries", "a paused lane still hands out its retries"),
        ("pause_of_all_tenants_is_ignored", "a queue that is paused for everybody is paused for nobody"),
        ("block_is_ignored", "a lane that waits for an operator goes on"),
        ("block_on_paper_only", "a block is recorded, and not made"),
        ("resume_lifts_the_block_too", "the end of a pause ends a block with it"),
        ("redrive_leaves_the_block", "a lane still waits for a failed run that was put back to work"),
        // window.rs
        ("due_too_early", "a lane is handed out twenty milliseconds before it is due"),
        ("quiet_does_not_restart", "a quiet window is measured from its first event"),
        ("cap_is_ignored", "an endless burst is never handed out"),
        ("fixed_restarts", "a fixed window restarts with each event"),
        ("closed_window_opens_again", "an event opens a window again that was full or flushed"),
        ("duplicate_moves_the_window", "an event that is known already restarts the quiet period"),
        // working_set.rs: what is appended
        ("id_ends_with_its_run", "an id is forgotten when its run ends"),
        ("conflict_is_a_duplicate", "a known id with another payload is answered as a duplicate"),
        ("equal_content_merges_given_ids", "two events with ids of their own and equal contents become one"),
        ("content_outlives_its_window", "contents are compared with those of a window that is over"),
        ("sequence_without_the_lock", "a sequence number is read before the lane is locked"),
        ("lane_has_no_limit", "a full lane takes events all the same"),
        ("drops_the_newest", "a full lane that drops its oldest events drops the newest"),
        ("dropped_still_counted", "dropped events still count as waiting"),
        ("delay_is_ignored", "a delayed event enters its lane at once"),
        ("aside_enters_twice", "an event from aside enters although its id is known"),
        // working_set.rs and memory.rs: what is written
        ("audit_after_commit", "the record is written after the commit, and a crash comes between"),
        ("reclaim_leaves_no_record", "a lane is taken back without a record"),
        (
            "release_in_two_steps",
            "that nothing waits is seen at the claim, and believed when the lane is released",
        ),
        ("settlement_is_not_remembered", "a settlement that is repeated is answered as a lost lease"),
        ("second_verdict_is_taken", "a settlement that is repeated with another verdict is answered as done"),
        ("retry_sends_its_follow_ups", "follow-up events are sent before the run has ended"),
        ("nobody_is_told", "the end of a run is not told to the queue that wants to know"),
        ("dead_are_not_counted", "events of failed runs still count as in flight"),
        ("redriven_stay_dead", "events that were put back to work stay in the dead letter, too"),
        ("redrive_forgets_its_steps", "a run that was put back to work does its steps again"),
        ("finished_step_runs_again", "a step that was done is done again"),
        ("retention_takes_dead_letters", "the retention takes what is in the dead letter"),
        ("max_running_is_ignored", "more runs of a queue are running than it allows"),
        ("restore_keeps_leases", "whoever held a lane before a restore still holds it"),
        ("restore_takes_numbers_back", "a restored store tells numbers again that it has told before"),
        // source.rs
        ("source_token_is_free", "a claim takes no token of its source"),
        ("everybody_is_a_probe", "a half-open breaker lets everybody through"),
    ];
}
