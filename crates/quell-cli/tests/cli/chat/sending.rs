//! Servers that are killed while a provider takes a reply: nobody knows whether it was sent, and it is never sent twice.

use quell::webhook::{Scheme, Secret};
use quell_chat::inbound::meta::Meta;
use quell_chat::local::ProviderFault;
use quell_chat::message::Channel;
use serde_json::json;

use super::bot::{Bot, JSON, Server, Setup, message};
use crate::hook::host::until;
use crate::support::items;

const CUSTOMER: &str = "12025550110";
const OTHER: &str = "12025550111";
const SECRET: &str = "the-secret-of-our-application";
const META: &str = "[endpoints.meta]\nscheme = \"meta\"\npath = \"/meta\"\nsecret_file = \"meta.secret\"\n";

/// Providers have so many calls and say nothing; then everybody who knew of them is gone, and others come.
fn killed_while_sending(bot: &Bot, server: Server, calls: usize) -> Server {
    until("the provider is called", || bot.providers.received().len() == calls);
    server.kill();
    bot.serve()
}

#[test]
fn a_reply_that_wati_has_is_not_sent_again_and_one_that_it_does_not_have_is() {
    let bot = Bot::new(&Setup::default());
    let server = bot.serve();
    for (number, (fault, customer)) in
        [(ProviderFault::SilentAfter, CUSTOMER), (ProviderFault::SilentBefore, OTHER)].into_iter().enumerate()
    {
        bot.providers.fail_next(Channel::Wati, fault);
        server.takes(&message(customer, "Hi!"));
        until("the provider is called", || bot.providers.received().len() == number + 1);
    }
    let server = killed_while_sending(&bot, server, 2);
    bot.replies(2);
    let calls = |customer: &str| bot.providers.received().iter().filter(|call| call.to == customer).count();
    assert_eq!((calls(CUSTOMER), calls(OTHER)), (1, 2), "both were looked for, and one was sent");
    assert_eq!(bot.questions(), ["Hi!", "Hi!"], "the model was not asked again");
    for customer in [CUSTOMER, OTHER] {
        assert_eq!(bot.said(customer), ["customer: Hi!", "bot: You said: Hi!"]);
    }
    assert_eq!(items(&bot.json(&["chat", "list", "--human"])).len(), 0);
    server.stop();
}

#[test]
fn with_meta_a_person_is_asked() {
    let bot = Bot::new(&Setup { sections: META, ..Setup::default() });
    bot.folder.write("meta.secret", SECRET);
    bot.providers.fail_next(Channel::Meta, ProviderFault::SilentAfter);
    let server = bot.serve();
    let body = json!({ "object": "whatsapp_business_account", "entry": [{ "id": "1", "changes": [{
        "field": "messages",
        "value": {
            "messaging_product": "whatsapp",
            "metadata": { "display_phone_number": "15550783881", "phone_number_id": "106540352242922" },
            "contacts": [{ "profile": { "name": "Ada" }, "wa_id": CUSTOMER }],
            "messages": [{
                "from": CUSTOMER, "id": "wamid.1", "timestamp": "1749416383", "type": "text", "text": { "body": "Hi!" },
            }],
        },
    }] }] })
    .to_string();
    let signed = Meta.sign(&Secret::new(SECRET), "", 0, body.as_bytes());
    let mut headers = vec![JSON];
    headers.extend(signed.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    assert_eq!(server.address.post("/meta", &headers, &body), Some(200));
    let server = killed_while_sending(&bot, server, 1);
    bot.replies(1);
    assert_eq!((bot.providers.received().len(), bot.questions().len()), (1, 1));
    let waiting = bot.json(&["chat", "list", "--human"]);
    assert_eq!(items(&waiting)[0]["key"], format!("meta:{CUSTOMER}"), "{waiting:#}");
    bot.quell(&["chat", "show", CUSTOMER])
        .ok()
        .says("it is unknown whether the last reply reached the customer")
        .says("(unknown whether it was sent)");
    assert_eq!(server.stop().named("chat.handed_over").len(), 1);
}

#[test]
fn a_reply_that_wati_took_without_a_word_is_found_although_the_call_took_long_to_fail() {
    let bot = Bot::new(&Setup::default());
    bot.providers.fail_next(Channel::Wati, ProviderFault::SilentAfter);
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hi!"));
    bot.replies(1);
    assert_eq!(bot.providers.received().len(), 1, "it was looked for from the beginning of the call on");
    assert_eq!(bot.said(CUSTOMER), ["customer: Hi!", "bot: You said: Hi!"]);
    server.stop();
}
