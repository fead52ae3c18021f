//! What people do with conversations.

use std::time::Duration;

use quell::clock;
use quell::quell_core::inspect::LaneFilter;
use quell_chat::book::{Role, Voice};
use quell_chat::desk::DeskError;
use quell_chat::local::{Ended, ModelFault, Script};
use quell_chat::message::Channel::Wati;

use crate::world::{Kind, WAIT, World, lane, place, until};

const CUSTOMER: &str = "12025550110";

pub(crate) async fn a_person_takes_over_says_something_and_hands_back(kind: Kind) {
    let world = World::new(kind).await;
    let (desk, here) = (world.desk(), place(Wati, CUSTOMER));
    world.write(CUSTOMER, "Hello").await;
    world.replies(1).await;
    desk.take_over(&here, "ada").await.unwrap();
    world.write(CUSTOMER, "I want a person").await;
    until("it is in the book", async || world.entries(Wati, CUSTOMER).await.len() == 4).await;
    desk.say(&world.live, &world.http, &here, "I am Ada.", "ada").await.unwrap();
    let replies = world.replies(2).await;
    assert_eq!(replies[1].text, "I am Ada.");
    assert_eq!(world.model.asked().len(), 1, "the bot said nothing meanwhile");
    desk.resume(&here, "ada").await.unwrap();
    world.write(CUSTOMER, "Thanks").await;
    world.replies(3).await;
    let told: Vec<String> = world.model.asked()[1].messages.iter().map(|turn| turn.content.clone()).collect();
    assert_eq!(told, ["Hello", "Certainly.", "I want a person", "I am Ada.", "Thanks"]);
    let roles: Vec<Role> = world.entries(Wati, CUSTOMER).await.iter().map(|entry| entry.role).collect();
    assert_eq!(roles[2..6], [Role::Note, Role::Customer, Role::Human, Role::Note]);
    let unknown = desk.take_over(&place(Wati, "nobody"), "ada").await;
    assert!(matches!(unknown, Err(DeskError::Unknown(_))), "{unknown:?}");
}

pub(crate) async fn a_reply_that_was_under_way_is_held_back_at_a_take_over(kind: Kind) {
    let world = World::new(kind).await;
    world.model.follow(Script { thinking: WAIT * 3, ..Script::fixed("Too late.") });
    world.write(CUSTOMER, "Hello").await;
    world.model.wait_until(|asked| asked.len() == 1).await;
    world.desk().take_over(&place(Wati, CUSTOMER), "ada").await.unwrap();
    world.model.wait_until(|asked| asked[0].ended == Ended::Whole).await;
    world.idle().await;
    assert!(world.providers.delivered().is_empty());
    let said = world.said(Wati, CUSTOMER).await;
    assert!(
        said.iter().any(|line| line.starts_with("note: an answer of the model was not sent")),
        "{said:?}"
    );
}

pub(crate) async fn a_paused_conversation_keeps_everything_for_later(kind: Kind) {
    let world = World::new(kind).await;
    world.write(CUSTOMER, "Hello").await;
    let here = place(Wati, CUSTOMER);
    assert!(world.desk().pause(&here, "ada").await.unwrap());
    clock::sleep(WAIT * 2).await;
    world.write(CUSTOMER, "anybody?").await;
    clock::sleep(WAIT * 2).await;
    assert!(world.model.asked().is_empty());
    world.desk().resume(&here, "ada").await.unwrap();
    world.replies(1).await;
    assert!(world.questions()[0].starts_with("Hello\n[+"), "{:?}", world.questions());
}

pub(crate) async fn forgotten_means_forgotten_everywhere(kind: Kind) {
    let mut world = World::new(kind).await;
    world.model.follow(Script::fixed("Your secret SESAME is safe."));
    world.write(CUSTOMER, "My secret is SESAME").await;
    world.replies(1).await;
    // Also in a dead letter, in an escalation and among what waits.
    for _ in 0..4 {
        world.model.fail_next(ModelFault::ServerError);
    }
    world.write(CUSTOMER, "SESAME, I say").await;
    until("a person is asked for", async || {
        world.conversation(Wati, CUSTOMER).await.unwrap().state == Voice::Human
    })
    .await;
    world.idle().await;
    world.change("wait_time_before_replying_ms = 60000");
    world.write(CUSTOMER, "SESAME, still waiting").await;
    let forgotten = world.desk().forget(&place(Wati, CUSTOMER), "ada").await.unwrap();
    assert!(forgotten >= 4, "{forgotten}");
    assert!(world.conversation(Wati, CUSTOMER).await.is_none());
    assert!(world.entries(Wati, CUSTOMER).await.is_empty());
    assert!(world.engine.lane(lane(Wati, CUSTOMER)).await.unwrap().is_none());
    let lanes = world.engine.lanes(LaneFilter::default()).await.unwrap();
    assert!(lanes.items.iter().all(|row| !row.lane.key.as_str().contains(CUSTOMER)), "{lanes:?}");
    let runs = world.engine.runs(Default::default()).await.unwrap();
    for run in &runs.items {
        let detail = world.engine.run(run.id).await.unwrap().unwrap();
        let text = serde_json::to_string(&detail.list).unwrap() + &format!("{:?}", detail.steps);
        assert!(!text.contains("SESAME"), "{text}");
    }
    let audit = world.engine.audit(Default::default()).await.unwrap();
    assert!(!audit.items.is_empty(), "that something happened is still known");
    // A new message begins a new conversation.
    world.change("");
    world.model.follow(Script::fixed("Welcome."));
    world.write(CUSTOMER, "Hello").await;
    world.replies(2).await;
    assert_eq!(world.model.asked().last().unwrap().messages.len(), 1, "nothing is remembered");
    if let Kind::Sqlite = kind {
        world.kill().await;
        clock::sleep(Duration::from_millis(200)).await;
        for file in std::fs::read_dir(world.folder.path()).unwrap().flatten() {
            let bytes = std::fs::read(file.path()).unwrap_or_default();
            let found = bytes.windows(6).any(|part| part == b"SESAME");
            assert!(!found, "{} still holds it", file.path().display());
        }
    }
}
