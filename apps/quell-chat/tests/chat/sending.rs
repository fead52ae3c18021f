//! At most one reply per batch, whatever happens on the way.

use std::time::Duration;

use quell::quell_core::lifecycle::RunState;
use quell_chat::book::Voice;
use quell_chat::local::{Ended, ModelFault, ProviderFault, Script};
use quell_chat::message::Channel::{self, Meta, Twilio, Wati};
use serde_json::json;

use crate::world::{Kind, World, lane, until};

const CUSTOMER: &str = "12025550110";

async fn write(world: &World, channel: Channel, text: &str) {
    world.send(channel, CUSTOMER, json!({ "text": text }), None).await;
}

pub(crate) async fn a_crash_after_the_answer_of_the_model_does_not_ask_again(kind: Kind) {
    let more = "natural_delays_enabled = true\ndelay_variance_percent = 0";
    let mut world = World::with(kind, more).await;
    world.model.follow(Script::fixed("x".repeat(100)));
    world.write(CUSTOMER, "Hello").await;
    world.model.wait_until(|asked| asked.first().is_some_and(|asked| asked.ended == Ended::Whole)).await;
    until("the answer is remembered", async || {
        let lane = world.engine.lane(lane(Wati, CUSTOMER)).await.unwrap().unwrap();
        let Some(run) = lane.current_run else { return false };
        world
            .engine
            .run(run)
            .await
            .unwrap()
            .is_some_and(|run| run.steps.iter().any(|step| step.name == "delay"))
    })
    .await;
    world.kill().await;
    world.work();
    world.replies(1).await;
    assert_eq!(world.model.asked().len(), 1, "the model was paid once");
}

pub(crate) async fn a_reply_that_was_certainly_not_sent_is_sent_again(kind: Kind) {
    let world = World::new(kind).await;
    world.providers.fail_next(Twilio, ProviderFault::TooMany(Some(Duration::from_secs(1))));
    world.providers.fail_next(Twilio, ProviderFault::TooMany(None));
    write(&world, Twilio, "Hello").await;
    world.replies(1).await;
    assert_eq!(world.model.asked().len(), 1, "the answer is the same");
    assert_eq!(world.providers.received().len(), 3);
}

pub(crate) async fn a_reply_of_which_nobody_knows_is_never_sent_twice(kind: Kind) {
    let world = World::new(kind).await;
    for (fault, customer) in [
        (ProviderFault::ErrorAfter, "1"),
        (ProviderFault::ErrorBefore, "2"),
        (ProviderFault::GarbageAfter, "3"),
    ] {
        world.providers.fail_next(Meta, fault);
        world.send(Meta, customer, json!({ "text": "Hello" }), None).await;
        until("a person is asked for", async || {
            world.conversation(Meta, customer).await.is_some_and(|found| found.state == Voice::Human)
        })
        .await;
        world.idle().await;
        let tries = world.providers.received().iter().filter(|call| call.to == customer).count();
        assert_eq!(tries, 1, "{fault:?}");
        let found = world.conversation(Meta, customer).await.unwrap();
        assert!(found.reason.unwrap().contains("unknown whether the last reply reached the customer"));
        let entries = world.entries(Meta, customer).await;
        assert_eq!(entries[1].about.delivery.as_deref(), Some("unknown"), "{entries:?}");
    }
}

pub(crate) async fn a_reply_of_which_nobody_knows_is_looked_for_where_that_is_possible(kind: Kind) {
    let world = World::new(kind).await;
    world.providers.fail_next(Twilio, ProviderFault::ErrorAfter);
    write(&world, Twilio, "Hello").await;
    world.replies(1).await;
    let entries = world.entries(Twilio, CUSTOMER).await;
    assert_eq!(entries.len(), 2);
    assert!(entries[1].about.sent_as.is_some(), "it was found at the provider: {entries:?}");
    assert_eq!(world.conversation(Twilio, CUSTOMER).await.unwrap().state, Voice::Bot);
    // One that was not sent is sent, once.
    world.providers.fail_next(Twilio, ProviderFault::ErrorBefore);
    world.model.follow(Script::fixed("Another answer."));
    write(&world, Twilio, "Hello again").await;
    let replies = world.replies(2).await;
    assert_eq!(replies[1].text, "Another answer.");
}

pub(crate) async fn a_worker_that_dies_while_it_sends_makes_no_second_reply(kind: Kind) {
    let mut world = World::new(kind).await;
    world.providers.fail_next(Meta, ProviderFault::SilentAfter);
    write(&world, Meta, "Hello").await;
    world.providers.wait_until(|got| got.len() == 1).await;
    world.kill().await;
    world.work();
    until("a person is asked for", async || {
        world.conversation(Meta, CUSTOMER).await.is_some_and(|found| found.state == Voice::Human)
    })
    .await;
    world.replies(1).await;
    assert_eq!((world.model.asked().len(), world.providers.received().len()), (1, 1));
    let reason = world.conversation(Meta, CUSTOMER).await.unwrap().reason.unwrap();
    assert!(reason.contains("a worker died while it was sent"), "{reason}");
}

pub(crate) async fn what_cannot_be_answered_is_escalated_with_a_message_and_a_pause(kind: Kind) {
    let more = "escalation_message = \"A colleague will answer you.\"\npause_when_escalated = true";
    let world = World::with(kind, more).await;
    for _ in 0..4 {
        world.model.fail_next(ModelFault::ServerError);
    }
    world.write(CUSTOMER, "Hello").await;
    world.write(CUSTOMER, "anybody?").await;
    until("the customer is told", async || world.providers.delivered().len() == 1).await;
    assert_eq!(world.providers.delivered()[0].text, "A colleague will answer you.");
    until("it is paused", async || {
        world
            .engine
            .lane(lane(Wati, CUSTOMER))
            .await
            .unwrap()
            .is_some_and(|lane| lane.row.paused_by.is_some())
    })
    .await;
    world.idle().await;
    let found = world.conversation(Wati, CUSTOMER).await.unwrap();
    assert_eq!(found.state, Voice::Human);
    assert!(found.reason.unwrap().starts_with("no answer could be made"));
    let said = world.said(Wati, CUSTOMER).await;
    assert!(said[0].starts_with("customer: Hello\n[+"), "{said:?}");
    assert!(said.iter().any(|line| line == "bot: A colleague will answer you."), "{said:?}");
    let runs = world.engine.runs(Default::default()).await.unwrap();
    assert!(runs.items.iter().any(|run| run.state == RunState::Failed), "the events are in the dead letter");
    // After `resume` what comes is answered, and the failed run can be redriven.
    world.desk().resume(&crate::world::place(Wati, CUSTOMER), "ada").await.unwrap();
    world.write(CUSTOMER, "still here").await;
    world.replies(2).await;
}

pub(crate) async fn a_provider_that_is_away_is_waited_for(kind: Kind) {
    let world = World::new(kind).await;
    world.providers.fail_next(Wati, ProviderFault::Unavailable(Duration::from_secs(1)));
    world.write(CUSTOMER, "Hello").await;
    let replies = world.replies(1).await;
    assert_eq!(replies[0].text, "Certainly.");
    let sources = world.engine.sources(Default::default()).await.unwrap();
    let known = |name: &str| sources.items.iter().any(|source| source.name.as_str() == name);
    assert!(known("chat-wati") && known("chat-model"), "both have sources of their own");
}
