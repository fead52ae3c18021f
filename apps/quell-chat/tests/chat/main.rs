//! Chat on real stores, with a real worker, a model and providers that are real servers on this machine.
//!
//! Every promise is kept on SQLite, on PostgreSQL and on Redis.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod books;
mod desk;
mod sending;
mod world;

/// Every promise on every store.
macro_rules! on_all {
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

            #[tokio::test(flavor = "multi_thread")]
            async fn on_redis() {
                crate::$from::$name(Kind::Redis).await;
            }
        })*
    };
}

on_all! { answers:
    a_burst_is_one_question_and_one_reply
    customers_are_answered_beside_each_other
    the_model_is_told_what_was_said_before
    with_queue_a_message_during_the_answer_is_answered_next
    with_interrupt_the_model_is_stopped_and_asked_again
    with_gate_a_reply_that_no_longer_fits_is_thrown_away
    a_message_during_the_natural_wait_is_still_heard
    a_repeated_delivery_is_answered_once_and_still_answered
    the_same_words_twice_are_two_messages_unless_configured
    faults_of_the_model_are_tried_again
    a_conversation_that_is_too_long_is_shortened_once
    what_the_model_will_not_answer_goes_to_a_person
    settings_change_while_it_runs
    somebody_types_once_the_burst_is_over
}

on_all! { sending:
    a_crash_after_the_answer_of_the_model_does_not_ask_again
    a_reply_that_was_certainly_not_sent_is_sent_again
    a_reply_of_which_nobody_knows_is_never_sent_twice
    a_reply_of_which_nobody_knows_is_looked_for_where_that_is_possible
    a_worker_that_dies_while_it_sends_makes_no_second_reply
    what_cannot_be_answered_is_escalated_with_a_message_and_a_pause
    a_provider_that_is_away_is_waited_for
}

on_all! { desk:
    a_person_takes_over_says_something_and_hands_back
    a_reply_that_was_under_way_is_held_back_at_a_take_over
    a_paused_conversation_keeps_everything_for_later
    forgotten_means_forgotten_everywhere
}

on_all! { books:
    an_entry_is_written_once
    a_long_conversation_keeps_its_end
    who_answers_is_kept_and_listed
    texts_of_all_kinds_come_back_as_they_were
}
