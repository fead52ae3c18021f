//! `quell chat`: what people see of conversations, and what they do with them while a server runs.

use serde_json::{Value, json};

use super::bot::{Bot, JSON, Setup, identified, key, message, thinking};
use crate::hook::host::until;
use crate::support::{Folder, items};

const CUSTOMER: &str = "12025550110";

/// The same customer has another conversation at this address.
const SALES: &str = "[endpoints.sales]\nscheme = \"wati\"\npath = \"/sales\"\nsecret_env = \"WATI_PASSKEY\"\nflow = \"sales\"\n";

fn named(text: &str) -> String {
    message(CUSTOMER, text).replace(",\"passkey\"", ",\"senderName\":\"Ada\",\"passkey\"")
}

#[test]
fn conversations_are_listed_and_shown() {
    let bot = Bot::new(&Setup::default());
    let server = bot.serve();
    let empty = bot.quell(&["chat", "list"]).ok().complains("no conversation yet");
    assert_eq!(empty.out, "");
    assert_eq!(bot.json(&["chat", "list"]), json!({ "items": [] }));

    server.takes(&named("Hi!"));
    server.takes(&named("do you buy silver coins?"));
    bot.replies(1);
    bot.quell(&["chat", "list"])
        .ok()
        .says("KEY")
        .says("wati:12025550110")
        .says("Ada")
        .says("bot")
        .says("You said: Hi! / [+0s] do you buy silver coins?");
    let list = bot.json(&["chat", "list"]);
    let [one] = items(&list) else { panic!("{list:#}") };
    for (name, value) in
        [("key", "wati:12025550110"), ("customer", CUSTOMER), ("name", "Ada"), ("state", "bot")]
    {
        assert_eq!(one[name], value, "{one:#}");
    }
    assert_eq!(items(&bot.json(&["chat", "list", "--human"])).len(), 0);
    assert_eq!(items(&bot.json(&["chat", "list", "--tenant", "nobody"])).len(), 0);

    // By the number in any form, and by the key.
    for who in [CUSTOMER, "+1 (202) 555-0110", "wati:12025550110"] {
        bot.quell(&["chat", "show", who])
            .ok()
            .says("Ada")
            .says("answered by")
            .says("customer ")
            .says("  Hi!\n  [+0s] do you buy silver coins?\n")
            .says("bot ")
            .says("  You said: Hi! / [+0s] do you buy silver coins?\n");
    }
    let shown = bot.json(&["chat", "show", CUSTOMER]);
    let entries = shown["entries"].as_array().unwrap();
    let about = &entries[0]["about"];
    assert_eq!(
        (&about["is_aggregated"], &about["message_count"], &about["fired_by"]),
        (&json!(true), &json!(2), &json!("quiet")),
        "{shown:#}"
    );
    assert_eq!((entries.len(), &shown["waiting"]), (2, &json!([])), "{shown:#}");
    assert!(entries[1]["about"]["sent_as"].as_str().unwrap().starts_with("wamid."), "{shown:#}");
    let last = bot.json(&["chat", "show", CUSTOMER, "--limit", "1"]);
    assert_eq!(last["entries"].as_array().unwrap().len(), 1);
    server.stop();
}

#[test]
fn a_paused_conversation_waits_and_is_answered_after_it_was_resumed() {
    let bot = Bot::new(&Setup::default());
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hi!"));
    bot.replies(1);
    bot.quell(&["chat", "pause", CUSTOMER])
        .ok()
        .says("paused: nothing is answered before `quell chat resume`");
    bot.quell(&["chat", "pause", CUSTOMER]).ok().says("it was paused already");
    server.takes(&message(CUSTOMER, "are you there?"));
    bot.quell(&["chat", "show", CUSTOMER]).ok().says("waits:").says("paused").says("are you there?");
    let shown = bot.json(&["chat", "show", CUSTOMER]);
    assert_eq!(shown["waiting"][0]["message"]["text"], "are you there?", "{shown:#}");
    assert_eq!(bot.questions().len(), 1);
    bot.quell(&["chat", "resume", CUSTOMER]).ok().says("the bot answers again");
    bot.replies(2);
    server.stop();
}

#[test]
fn a_person_takes_over_says_something_and_hands_back() {
    let bot = Bot::new(&Setup::default());
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hi!"));
    bot.replies(1);
    bot.quell(&["chat", "takeover", CUSTOMER, "--actor", "grace"]).ok().says("taken over");
    bot.quell(&["chat", "list", "--human"]).ok().says("human");
    bot.quell(&["chat", "show", CUSTOMER]).ok().says("taken over by grace");
    server.takes(&message(CUSTOMER, "a person, please"));
    until("it is in the book", || bot.said(CUSTOMER).contains(&"customer: a person, please".to_owned()));
    bot.quell(&["chat", "say", CUSTOMER, "I am here.", "--actor", "grace"]).ok().says("sent");
    let said = bot.replies(2);
    assert_eq!((said[1].to.as_str(), said[1].text.as_str()), (CUSTOMER, "I am here."));
    bot.quell(&["chat", "show", CUSTOMER]).ok().says("grace ").says("  I am here.");
    bot.quell(&["chat", "resume", CUSTOMER, "--actor", "grace"]).ok();
    server.takes(&message(CUSTOMER, "thanks"));
    bot.replies(3);
    assert_eq!(bot.questions(), ["Hi!", "thanks"]);
    // The bot knows what was said meanwhile.
    let told: Vec<String> = bot.model.asked()[1].messages.iter().map(|turn| turn.content.clone()).collect();
    assert!(told.iter().any(|turn| turn == "I am here."), "{told:?}");
    assert_eq!(items(&bot.json(&["chat", "list", "--human"])).len(), 0);
    server.stop();
}

#[test]
fn forgetting_removes_a_conversation_also_from_under_a_worker() {
    let bot = Bot::new(&Setup::default());
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "my secret"));
    bot.replies(1);
    bot.model.follow(thinking(2_000));
    server.takes(&message(CUSTOMER, "another secret"));
    bot.asked(2);
    // Without a terminal nobody can be asked.
    let refused = bot.quell(&["chat", "forget", CUSTOMER]);
    assert_ne!(refused.code, 0, "{refused:?}");
    bot.quell(&["chat", "forget", CUSTOMER, "--yes"]).ok().says("forgotten: ");
    bot.quell(&["chat", "show", CUSTOMER]).exits(3);
    bot.idle();
    server.stop();
    bot.quell(&["chat", "show", CUSTOMER]).exits(3);
    assert_eq!(items(&bot.json(&["chat", "list"])).len(), 0);
    let runs = bot.json(&["runs"]);
    assert!(!runs.to_string().contains("secret"), "{runs:#}");
    let events = "SELECT count(*) FROM event WHERE payload LIKE '%secret%'";
    assert_eq!(bot.number(events), 0);
}

#[test]
fn a_customer_that_nobody_knows_is_not_found() {
    let bot = Bot::new(&Setup::default());
    bot.serve().stop();
    for args in [
        ["show", "999"].as_slice(),
        &["pause", "999"],
        &["resume", "999"],
        &["takeover", "999"],
        &["say", "999", "hello"],
        &["forget", "999", "--yes"],
        &["show", "wati:999"],
        &["say", "wati:999", "hello"],
    ] {
        let args: Vec<&str> = [&["chat"], args].concat();
        bot.quell(&args).exits(3).complains("there is no conversation with").complains("quell chat list");
    }
    Folder::new().quell(&["chat", "list"]).exits(5).complains("there is no store");
}

#[test]
fn two_conversations_with_one_number_must_be_told_apart() {
    let bot = Bot::new(&Setup { sections: SALES, ..Setup::default() });
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "help"));
    assert_eq!(server.address.post("/sales", &[JSON], &message(CUSTOMER, "an offer, please")), Some(200));
    bot.replies(2);
    let sales = format!("{}:sales", key(CUSTOMER));
    bot.quell(&["chat", "show", CUSTOMER])
        .exits(2)
        .complains("2 conversations with")
        .complains(&sales)
        .complains("name the key");
    bot.quell(&["chat", "takeover", CUSTOMER]).exits(2);
    bot.quell(&["chat", "show", &sales]).ok().says("an offer, please");
    bot.quell(&["chat", "takeover", &sales]).ok();
    let state = |of: &str| bot.json(&["chat", "show", of])["conversation"]["state"].clone();
    assert_eq!((state(&key(CUSTOMER)), state(&sales)), (Value::from("bot"), Value::from("human")));
    server.stop();
}

#[test]
fn saying_something_needs_an_account() {
    let bot = Bot::new(&Setup::default());
    let server = bot.serve();
    server.takes(&identified(CUSTOMER, "Hi!", "wamid.1"));
    bot.replies(1);
    server.stop();
    let long = "a".repeat(5_000);
    bot.quell(&["chat", "say", CUSTOMER, &long]).exits(2).complains("say it in parts");
    bot.folder.write("quell.toml", "[queues.chat]\n");
    bot.quell(&["chat", "say", CUSTOMER, "hello"])
        .exits(2)
        .complains("there is no [chat] in the configuration")
        .complains("--config");
    assert_eq!(bot.providers.delivered().len(), 1);
    // What was said can still be read.
    bot.quell(&["chat", "show", CUSTOMER]).ok().says("Hi!");
}

#[test]
fn the_demo_of_a_chat_plays_by_itself_where_nobody_can_type() {
    let folder = Folder::new();
    let answer = folder
        .quell(&["demo", "chat"])
        .ok()
        .says("the wait begins anew")
        .says("the model is asked once, with\n     Hi!\n     [+1s] do you buy silver coins?")
        .says("You wrote 3 messages, and this is one answer to all of them.")
        .says("You wrote 2 messages, and this is one answer to all of them.")
        .says("2 bursts, 2 replies: one for each.");
    assert_eq!(answer.err, "");
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
}
