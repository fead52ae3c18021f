//! One answer per burst, per customer, in order.

use std::time::Duration;

use quell::clock;
use quell_chat::book::Voice;
use quell_chat::local::{Ended, ModelFault, Script};
use quell_chat::message::Channel::{Meta, Twilio, Wati};
use quell_chat::model::Role;
use serde_json::json;

use crate::world::{Kind, WAIT, World, until};

const CUSTOMER: &str = "12025550110";

fn thinking(text: &str, thinking: Duration) -> Script {
    Script { thinking, ..Script::fixed(text) }
}

pub(crate) async fn a_burst_is_one_question_and_one_reply(kind: Kind) {
    let world = World::new(kind).await;
    for text in ["Hola", "Quiero reservar", "para dos"] {
        world.write(CUSTOMER, text).await;
        clock::sleep(WAIT / 3).await;
    }
    let replies = world.replies(1).await;
    assert_eq!((replies[0].to.as_str(), replies[0].text.as_str()), (CUSTOMER, "Certainly."));
    assert_eq!(world.questions(), ["Hola\n[+0s] Quiero reservar\n[+0s] para dos"]);
    let entries = world.entries(Wati, CUSTOMER).await;
    let (asked, replied) = (&entries[0], &entries[1]);
    assert_eq!(entries.len(), 2);
    assert!(asked.about.is_aggregated);
    assert_eq!((asked.about.message_count, asked.about.fired_by.as_deref()), (Some(3), Some("quiet")));
    let (first, last) = asked.about.seqs.unwrap();
    assert!(first < last, "{first} {last}");
    assert_eq!(replied.about.run, asked.about.run);
    assert!(replied.about.sent_as.is_some(), "{replied:?}");
}

pub(crate) async fn customers_are_answered_beside_each_other(kind: Kind) {
    let world = World::new(kind).await;
    world.model.follow(thinking("Yes.", Duration::from_millis(700)));
    for number in 1..=4 {
        world.write(&format!("5037681962{number}"), "Test").await;
    }
    until("all four are asked about at once", async || {
        let asked = world.model.asked();
        asked.len() == 4 && asked.iter().all(|asked| asked.ended == Ended::NotYet)
    })
    .await;
    let mut to: Vec<String> = world.replies(4).await.into_iter().map(|reply| reply.to).collect();
    to.sort_unstable();
    assert_eq!(to, ["50376819621", "50376819622", "50376819623", "50376819624"]);
}

pub(crate) async fn the_model_is_told_what_was_said_before(kind: Kind) {
    let world = World::with(kind, "prompt = \"You sell coins.\"\nhistory_messages = 2").await;
    for (number, text) in ["one", "two", "three"].into_iter().enumerate() {
        world.write(CUSTOMER, text).await;
        world.replies(number + 1).await;
    }
    let last = world.model.asked().pop().unwrap().messages;
    let told: Vec<(Role, &str)> = last.iter().map(|turn| (turn.role, turn.content.as_str())).collect();
    let expected = [
        (Role::System, "You sell coins."),
        (Role::User, "two"),
        (Role::Assistant, "Certainly."),
        (Role::User, "three"),
    ];
    assert_eq!(told, expected);
}

pub(crate) async fn with_queue_a_message_during_the_answer_is_answered_next(kind: Kind) {
    let world = World::new(kind).await;
    world.model.follow(thinking("Yes.", WAIT * 3));
    world.write(CUSTOMER, "first").await;
    world.model.wait_until(|asked| asked.len() == 1).await;
    world.write(CUSTOMER, "second").await;
    world.replies(2).await;
    assert_eq!(world.questions(), ["first", "second"]);
    assert_eq!(
        world.said(Wati, CUSTOMER).await,
        ["customer: first", "bot: Yes.", "customer: second", "bot: Yes."]
    );
    let second = world.model.asked().pop().unwrap();
    assert_eq!(second.messages.len(), 3, "the first answer is told before the second question");
}

pub(crate) async fn with_interrupt_the_model_is_stopped_and_asked_again(kind: Kind) {
    let world = World::with(kind, "during_run = \"interrupt\"").await;
    world.model.follow(thinking("Yes.", Duration::from_secs(3)));
    world.write(CUSTOMER, "Two rooms").await;
    world.model.wait_until(|asked| asked.len() == 1).await;
    world.write(CUSTOMER, "no, three").await;
    world.model.wait_until(|asked| asked[0].ended == Ended::HungUp).await;
    world.replies(1).await;
    let questions = world.questions();
    assert_eq!(questions.len(), 2, "{questions:?}");
    assert!(
        questions[1].starts_with("Two rooms\n[+") && questions[1].ends_with("s] no, three"),
        "{questions:?}"
    );
    assert_eq!(world.entries(Wati, CUSTOMER).await.len(), 2, "one question and one answer");
}

pub(crate) async fn with_gate_a_reply_that_no_longer_fits_is_thrown_away(kind: Kind) {
    let world = World::with(kind, "during_run = \"gate\"").await;
    world.model.follow(thinking("Yes.", WAIT * 3));
    world.write(CUSTOMER, "Two rooms").await;
    world.model.wait_until(|asked| asked.len() == 1).await;
    world.write(CUSTOMER, "no, three").await;
    world.replies(1).await;
    let asked = world.model.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].ended, Ended::Whole, "it was not stopped, only its answer was not used");
    assert!(world.questions()[1].contains("no, three"));
    assert_eq!(world.entries(Wati, CUSTOMER).await.len(), 2);
}

pub(crate) async fn a_message_during_the_natural_wait_is_still_heard(kind: Kind) {
    let more = "during_run = \"interrupt\"\nnatural_delays_enabled = true\ndelay_variance_percent = 0";
    let world = World::with(kind, more).await;
    world.write(CUSTOMER, "Two rooms").await;
    world.model.wait_until(|asked| asked.first().is_some_and(|asked| asked.ended == Ended::Whole)).await;
    world.write(CUSTOMER, "no, three").await;
    let replies = world.replies(1).await;
    assert_eq!(world.questions().len(), 2, "the answer to the first was not sent");
    let asked = world.model.asked();
    let waited = replies[0].at.as_millis() - asked[1].at.as_millis();
    assert!(waited >= 1_000, "a reply waits a second at least, and this one waited {waited} ms");
}

pub(crate) async fn a_repeated_delivery_is_answered_once_and_still_answered(kind: Kind) {
    let world = World::new(kind).await;
    let hello = || world.send(Twilio, CUSTOMER, json!({ "text": "Hello" }), Some("SM1"));
    let first = hello().await;
    let again = hello().await;
    assert_eq!((first.event_id, first.seq), (again.event_id.clone(), again.seq));
    assert!(!first.duplicate && again.duplicate);
    world.replies(1).await;
    assert_eq!(world.questions(), ["Hello"]);
    assert!(hello().await.duplicate, "also when it has been answered");
    clock::sleep(WAIT * 2).await;
    world.replies(1).await;
}

pub(crate) async fn the_same_words_twice_are_two_messages_unless_configured(kind: Kind) {
    let world = World::new(kind).await;
    world.write(CUSTOMER, "ok").await;
    world.write(CUSTOMER, "ok").await;
    world.replies(1).await;
    assert_eq!(world.questions(), ["ok\n[+0s] ok"], "a customer may say it twice");
    world.change("content_dedupe = true");
    world.write(CUSTOMER, "hello").await;
    let again = world.write(CUSTOMER, "hello").await;
    assert!(again.duplicate, "a retry without an id is known by what it says");
    world.replies(2).await;
    assert_eq!(world.questions()[1], "hello", "and still answered");
}

pub(crate) async fn faults_of_the_model_are_tried_again(kind: Kind) {
    let world = World::new(kind).await;
    for fault in [ModelFault::ServerError, ModelFault::Cut, ModelFault::RateLimited(Duration::from_secs(1))] {
        world.model.fail_next(fault);
    }
    world.write(CUSTOMER, "Hello").await;
    world.replies(1).await;
    assert_eq!(world.questions(), ["Hello"; 4]);
}

pub(crate) async fn a_conversation_that_is_too_long_is_shortened_once(kind: Kind) {
    let world = World::new(kind).await;
    for number in 0..4 {
        world.write(CUSTOMER, &format!("question {number}")).await;
        world.replies(number + 1).await;
    }
    let short = Script { turns_max: Some(3), ..Script::fixed("Short.") };
    world.model.follow(short);
    world.write(CUSTOMER, "and now?").await;
    let replies = world.replies(5).await;
    assert_eq!(replies[4].text, "Short.");
    let turns: Vec<usize> =
        world.model.asked().iter().rev().take(2).map(|asked| asked.messages.len()).collect();
    assert!(turns[0] <= 3 && turns[1] == 9, "{turns:?}");
    // What is too long even then goes to a person.
    world.model.follow(Script { bytes_max: Some(1), ..Script::fixed("never") });
    world.write(CUSTOMER, "this alone is too much").await;
    until("a person is asked for", async || {
        world.conversation(Wati, CUSTOMER).await.unwrap().state == Voice::Human
    })
    .await;
}

pub(crate) async fn what_the_model_will_not_answer_goes_to_a_person(kind: Kind) {
    let world = World::new(kind).await;
    world.model.follow(Script::fixed("  "));
    world.send(Meta, CUSTOMER, json!({ "text": "How do I …", "message_id": "wamid.1" }), None).await;
    until("a person is asked for", async || {
        world.conversation(Meta, CUSTOMER).await.is_some_and(|found| found.state == Voice::Human)
    })
    .await;
    world.idle().await;
    assert!(world.providers.delivered().is_empty());
    let said = world.said(Meta, CUSTOMER).await;
    assert_eq!(said[0], "customer: How do I …");
    assert!(
        said[1].starts_with("note: a person is asked to take over: the model answered nothing"),
        "{said:?}"
    );
}

pub(crate) async fn settings_change_while_it_runs(kind: Kind) {
    let world = World::with(kind, "wait_time_before_replying_ms = 60000\nprompt = \"before\"").await;
    let slow = world.write("1", "waits for a minute").await;
    world.change("wait_time_before_replying_ms = 200\nprompt = \"after\"");
    world.write("2", "quick").await;
    world.providers.wait_until(|got| got.iter().any(|one| one.to == "2")).await;
    assert_eq!(world.model.asked()[0].messages[0].content, "after");
    let lane = world.engine.lane(crate::world::lane(Wati, "1")).await.unwrap().unwrap();
    assert_eq!(lane.row.due_at, slow.due_at, "a window that is open keeps what it began with");
}

pub(crate) async fn somebody_types_once_the_burst_is_over(kind: Kind) {
    let world = World::with(kind, "typing_indicator_enabled = true").await;
    world.model.follow(thinking("Yes.", WAIT));
    world.send(Meta, CUSTOMER, json!({ "text": "Hi", "message_id": "wamid.1" }), Some("wamid.1")).await;
    world.send(Meta, CUSTOMER, json!({ "text": "there?", "message_id": "wamid.2" }), Some("wamid.2")).await;
    world.replies(1).await;
    let calls = world.providers.received();
    let typing: Vec<&str> = calls.iter().filter_map(|call| call.typing_for.as_deref()).collect();
    assert_eq!(typing, ["wamid.2"], "once, for the last message: {calls:?}");
    let asked = world.model.asked()[0].at;
    let replied = world.providers.delivered()[0].at;
    let shown = calls.iter().find(|call| call.typing_for.is_some()).unwrap().at;
    assert!(shown < replied && asked < replied, "before the reply");
}
