//! Meta's question before the first delivery, and its batches.

use http::Method;
use quell::webhook::{Because, Endpoint};
use quell_chat::inbound::{Parsed, meta};
use quell_chat::message::Kind;
use serde_json::{Value, json};

use crate::support::{Sent, endpoint, verify_token};

const SECRET: &str = "an app secret of 32 characters..";

fn ours() -> Endpoint {
    let verify = [verify_token("the new word"), verify_token("the old word")].concat();
    Endpoint { verify, ..endpoint("meta", &[SECRET]) }
}

fn asked(query: &str) -> Sent {
    Sent { method: Method::GET, ..Sent::new("").to(&format!("/hooks/meta{query}")) }
}

#[test]
fn the_right_word_is_answered_with_the_challenge() {
    for word in ["the%20new%20word", "the+old+word"] {
        let question =
            asked(&format!("?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={word}"));
        assert_eq!(question.greeting(&ours()).unwrap().unwrap().answer, "1158201444");
    }
}

#[test]
fn another_question_is_refused_and_anything_else_is_none() {
    use Because::{BadVerifyToken, Unusable};
    let long = format!("?hub.mode=subscribe&hub.verify_token=the+new+word&hub.challenge={}", "1".repeat(129));
    for (query, because) in [
        ("?hub.mode=subscribe&hub.challenge=1&hub.verify_token=nope", BadVerifyToken),
        ("?hub.mode=subscribe&hub.challenge=1&hub.verify_token=", BadVerifyToken),
        ("?hub.mode=subscribe&hub.challenge=1", BadVerifyToken),
        ("?hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=the+new+word", BadVerifyToken),
        (
            "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=an+app+secret+of+32+characters..",
            BadVerifyToken,
        ),
        ("?hub.mode=subscribe&hub.verify_token=the+new+word", Unusable),
        ("?hub.mode=subscribe&hub.verify_token=the+new+word&hub.challenge=%3Cscript%3E", Unusable),
        (&long, Unusable),
    ] {
        let refusal = asked(query).greeting(&ours()).unwrap().unwrap_err();
        assert_eq!(refusal.because, because, "{query}");
        assert!(!refusal.detail.contains("word"), "{refusal}");
    }
    let without = endpoint("meta", &[SECRET]);
    let question = asked("?hub.mode=subscribe&hub.challenge=1&hub.verify_token=");
    assert_eq!(question.greeting(&without).unwrap().unwrap_err().because, BadVerifyToken);
    assert!(asked("").greeting(&ours()).is_none() && asked("?mode=subscribe").greeting(&ours()).is_none());
    let post = Sent { method: Method::POST, ..asked("?hub.mode=subscribe&hub.verify_token=the+new+word") };
    assert!(post.greeting(&ours()).is_none());
}

fn whole(changes: Value) -> Vec<u8> {
    json!({ "object": "whatsapp_business_account", "entry": [{ "changes": changes }] })
        .to_string()
        .into_bytes()
}

fn one(message: Value, contacts: Value) -> Parsed {
    let metadata = json!({ "display_phone_number": "12025550199", "phone_number_id": "100" });
    let value = json!({ "metadata": metadata, "contacts": contacts, "messages": [message] });
    let mut items = meta::items(&whole(json!([{ "field": "messages", "value": value }]))).unwrap();
    assert_eq!(items.len(), 1);
    items.remove(0)
}

#[test]
fn a_customer_may_have_a_number_an_id_or_both() {
    let contacts = json!([
        { "profile": { "name": "Somebody else" }, "wa_id": "12025550111", "user_id": "US.2" },
        { "profile": { "username": "ana" }, "wa_id": "12025550110", "user_id": "US.1" },
    ]);
    let text = json!({ "body": "Hi" });
    for (from, customer, user_id, name, key) in [
        (
            json!({ "from": "12025550110", "from_user_id": "US.1" }),
            "12025550110",
            Some("US.1"),
            "ana",
            "meta:US.1",
        ),
        (json!({ "from": "12025550110" }), "12025550110", Some("US.1"), "ana", "meta:US.1"),
        (json!({ "from_user_id": "US.1" }), "12025550110", Some("US.1"), "ana", "meta:US.1"),
        (json!({ "from_user_id": "US.9" }), "US.9", Some("US.9"), "", "meta:US.9"),
        (json!({ "from": "12025550100" }), "12025550100", None, "", "meta:12025550100"),
    ] {
        let mut message = json!({ "id": "wamid.1", "timestamp": "7", "type": "text", "text": text });
        message.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
        let Parsed::Message(found) = one(message, contacts.clone()) else { panic!("{from}") };
        assert_eq!((found.customer.as_str(), found.user_id.as_deref()), (customer, user_id), "{from}");
        assert_eq!((found.name.as_deref().unwrap_or_default(), found.key().as_str()), (name, key), "{from}");
        assert_eq!((found.to.as_deref(), found.sent_at), (Some("100"), Some(7)));
    }
    let nobody = json!({ "id": "wamid.1", "type": "text", "text": text });
    assert_eq!(one(nobody.clone(), contacts), Parsed::Ignored("no_customer"));
    let only = json!([{ "wa_id": "12025550110" }]);
    assert!(matches!(one(nobody, only), Parsed::Message(message) if message.customer == "12025550110"));
}

#[test]
fn what_needs_no_answer_is_ignored_by_name() {
    let message = |more: Value| {
        let mut message =
            json!({ "id": "wamid.1", "from": "12025550110", "type": "text", "text": { "body": "Hi" } });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        one(message, json!([]))
    };
    for (more, why) in [
        (json!({ "from": "12025550199" }), "own_message"),
        (json!({ "type": "reaction", "reaction": { "message_id": "wamid.0" } }), "reaction"),
        (json!({ "type": "order" }), "unsupported"),
        (json!({ "type": "system" }), "unsupported"),
        (json!({ "type": null }), "unsupported"),
        (json!({ "group_id": "g1" }), "unsupported"),
        (json!({ "type": "interactive", "interactive": { "nfm_reply": {} } }), "unsupported"),
        (json!({ "text": { "body": "" } }), "empty"),
        (json!({ "text": { "body": "\u{a0} \n" } }), "empty"),
        (json!({ "text": null }), "empty"),
        (json!({ "type": "location", "location": { "latitude": "north" } }), "empty"),
    ] {
        assert_eq!(message(more.clone()), Parsed::Ignored(why), "{more}");
    }
    let strings = json!({ "type": "location", "location": { "latitude": "1.5", "longitude": "-2" } });
    assert!(
        matches!(message(strings), Parsed::Message(found) if found.location.as_ref().unwrap().longitude == -2.0)
    );
    let sticker = json!({ "type": "sticker", "sticker": { "id": "5", "mime_type": "image/webp" } });
    assert!(
        matches!(message(sticker), Parsed::Message(found) if found.kind == Kind::Sticker && found.text.is_none())
    );
    for (field, why) in [("smb_message_echoes", "own_message"), ("account_update", "no_message")] {
        let found = meta::items(&whole(json!([{ "field": field, "value": {} }]))).unwrap();
        assert_eq!(found, [Parsed::Ignored(why)]);
    }
    for body in ["{}", "{\"object\":\"page\",\"entry\":[{\"changes\":[{\"field\":\"messages\"}]}]}"] {
        assert_eq!(meta::items(body.as_bytes()).unwrap(), [Parsed::Ignored("no_message")], "{body}");
    }
    assert_eq!(meta::items(b"[]").unwrap_err().because, Because::Unreadable);
}

#[test]
fn a_batch_is_looked_at_on_every_level_and_in_its_order() {
    let text =
        |id: &str, from: &str| json!({ "id": id, "from": from, "type": "text", "text": { "body": id } });
    let failed = json!({ "id": "w0", "status": "failed", "errors": [{ "code": 131_047 }] });
    let body = json!({
        "object": "whatsapp_business_account",
        "entry": [
            { "changes": [
                { "field": "messages", "value": { "messages": [text("a1", "1"), text("b1", "2")], "statuses": [failed] } },
                { "field": "messages", "value": { "messages": [text("a2", "1")] } },
            ] },
            { "changes": [] },
            { "changes": [{ "field": "messages", "value": { "messages": [text("b2", "2"), text("a3", "1")] } }] },
        ],
    });
    let sent = Sent::new(body.to_string());
    let (messages, ignored) = sent.read(&ours());
    let order: Vec<(&str, &str)> = messages
        .iter()
        .map(|message| (message.customer.as_str(), message.message_id.as_deref().unwrap()))
        .collect();
    assert_eq!(order, [("1", "a1"), ("2", "b1"), ("1", "a2"), ("2", "b2"), ("1", "a3")]);
    assert_eq!(ignored, ["status failed"]);
    let items = meta::items(&sent.body).unwrap();
    let (message_id, status) = ("w0".to_owned(), "failed".to_owned());
    assert_eq!(items[2], Parsed::Status { message_id, status, error_code: Some(131_047) });
}
