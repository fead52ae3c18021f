//! The passkey in all of its places, and messages as WATI and older programs send them.

use quell::webhook::{Because, Endpoint, Proof};
use quell_chat::inbound::{Parsed, wati};
use quell_chat::message::{Kind, Media};
use serde_json::{Value, json};

use crate::support::{Sent, endpoint};

const PASSKEY: &str = "FuK@tTcKerZ-2o25";
const FORM: &str = "application/x-www-form-urlencoded";

fn ours() -> Endpoint {
    endpoint("wati", &["another-passkey", PASSKEY])
}

/// The body of the older system, with this passkey.
fn body(passkey: Value) -> Vec<u8> {
    json!({ "waId": "50376819621", "text": "Message 1", "passkey": passkey }).to_string().into_bytes()
}

fn plain() -> Sent {
    Sent::new(r#"{"waId":"50376819621","text":"Message 1"}"#)
}

#[test]
fn the_passkey_is_taken_from_the_header_the_address_or_the_body() {
    let bearer = format!("Bearer {PASSKEY}");
    let good = [
        plain().with("authorization", PASSKEY),
        plain().with("authorization", &bearer),
        plain().with("authorization", &bearer.replace("Bearer", "bEARER")),
        plain().to("/hooks/any?passkey=FuK@tTcKerZ-2o25"),
        plain().to("/webhook?x=1&token=FuK%40tTcKerZ-2o25"),
        plain().beyond("FuK@tTcKerZ-2o25"),
        plain().beyond("FuK%40tTcKerZ-2o25"),
        Sent::new(body(json!(PASSKEY))),
        Sent::new(body(json!(PASSKEY))).with("content-type", FORM),
        // An empty header is none.
        Sent::new(body(json!(PASSKEY))).with("authorization", ""),
        // The same in several places.
        Sent::new(body(json!("whatever"))).with("authorization", PASSKEY),
        plain().with("authorization", PASSKEY).beyond("FuK%40tTcKerZ-2o25"),
        Sent::new(r#"{"passkey":"FuK\u0040tTcKerZ-2o25","waId":"1","text":"x"}"#),
    ];
    for (number, sent) in good.iter().enumerate() {
        assert_eq!(sent.verdict(&ours()), Ok(1), "{number}");
    }
    let first = plain().with("authorization", "another-passkey");
    assert_eq!(first.verdict(&ours()), Ok(0));
    assert_eq!(ours().scheme.proof(), Proof::Bearer);
}

#[test]
fn whatever_else_is_presented_is_refused() {
    use Because::{BadSignature, MalformedSignature, MissingSignature};
    let twice = format!(r#"{{"passkey":"{PASSKEY}","passkey":"{PASSKEY}","waId":"1","text":"x"}}"#);
    let deep = format!(r#"{{"x":{}1{},"waId":"1"}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let bad: Vec<(Sent, Because)> = vec![
        (plain(), MissingSignature),
        (Sent::new(""), MissingSignature),
        (Sent::new("passkey=FuK@tTcKerZ-2o25&waId=1"), MissingSignature),
        (Sent::new(body(Value::Null)), MissingSignature),
        (Sent::new(&body(json!(PASSKEY))[..40]), MissingSignature),
        (Sent::new(body(json!(25))), MalformedSignature),
        (Sent::new(twice), MalformedSignature),
        (Sent::new(format!("[{{\"passkey\":\"{PASSKEY}\"}}]")), MissingSignature),
        (Sent::new(format!("[\"{PASSKEY}\"]")), MissingSignature),
        (Sent::new(format!("\"{PASSKEY}\"")), MissingSignature),
        (Sent::new(format!("{{\"data\":{{\"passkey\":\"{PASSKEY}\"}}}}")), MissingSignature),
        (Sent::new(body(json!("FuK@tTcKerZ-2o26"))), BadSignature),
        (Sent::new(body(json!("fuk@ttckerz-2o25"))), BadSignature),
        (Sent::new(body(json!(""))), BadSignature),
        (plain().with("authorization", "wrong"), BadSignature),
        (plain().with("authorization", "Bearer"), BadSignature),
        (plain().with("authorization", "Basic FuK@tTcKerZ-2o25"), BadSignature),
        (plain().with("authorization", PASSKEY).with("authorization", PASSKEY), MalformedSignature),
        (plain().to("/hooks/any?passkey="), BadSignature),
        (plain().to("/hooks/any?passkey=FuK@tTcKerZ-2o25&passkey=x"), BadSignature),
        (plain().to("/hooks/any?Passkey=FuK@tTcKerZ-2o25"), MissingSignature),
        (plain().beyond("FuK@tTcKerZ"), BadSignature),
        // Each place that is used must be right; the body does not mend it.
        (Sent::new(body(json!(PASSKEY))).with("authorization", "wrong"), BadSignature),
        (Sent::new(body(json!(PASSKEY))).to("/hooks/any?token=wrong"), BadSignature),
        (plain().with("authorization", PASSKEY).to("/hooks/any?token=wrong"), BadSignature),
        // It is read over, however deep it is.
        (Sent::new(deep), MissingSignature),
    ];
    for (number, (sent, because)) in bad.iter().enumerate() {
        assert_eq!(sent.verdict(&ours()), Err(*because), "{number}");
    }
    assert_eq!(Sent::new(body(json!(PASSKEY))).verdict(&endpoint("wati", &[])), Err(BadSignature));
}

#[test]
fn a_passkey_has_eight_bytes_at_the_least() {
    let scheme = ours().scheme;
    assert!(scheme.secret("eight888").is_ok());
    let told = scheme.secret("seven77").unwrap_err().to_string();
    assert!(told.contains("7 bytes") && !told.contains("seven77"), "{told}");
}

#[test]
fn what_is_kept_of_a_body_has_no_passkey() {
    let scheme = ours().scheme;
    let kept = |body: &[u8]| scheme.without_secrets(body).map(|kept| String::from_utf8(kept).unwrap());
    let shown = kept(&body(json!(PASSKEY))).unwrap();
    let value: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(value, json!({ "waId": "50376819621", "text": "Message 1", "passkey": "[redacted]" }));
    for odd in [
        r#"{"passkey":"FuK@tTcKerZ-2o25""#.to_owned(),
        r#"[{"passkey":"FuK@tTcKerZ-2o25"}]"#.to_owned(),
        "PassKey=FuK@tTcKerZ-2o25".to_owned(),
        r#"{"passkey":"FuK\u0040tTcKerZ-2o25","passkey":["FuK@tTcKerZ-2o25"]}"#.to_owned(),
    ] {
        let kept = kept(odd.as_bytes()).unwrap();
        assert!(kept.contains("[redacted]") && !kept.contains("tTcKerZ"), "{odd}: {kept}");
    }
    assert_eq!(kept(br#"{"waId":"1"}"#), None, "nothing is changed where there is none");
    assert_eq!(kept(b""), None);
}

#[test]
fn both_bodies_of_the_older_system_are_messages() {
    let first = Sent::new(body(json!(PASSKEY))).with("content-type", "application/json").message(&ours());
    assert_eq!((first.customer.as_str(), first.text.as_deref()), ("50376819621", Some("Message 1")));
    assert_eq!((first.kind, first.message_id.as_deref()), (Kind::Text, None));
    assert_eq!(first.key(), "wati:50376819621");
    let second = br#"{"waId":"50376819622","text":"Test","passkey":"FuK@tTcKerZ-2o25"}"#;
    let second = Sent::new(second).with("content-type", FORM).message(&ours());
    assert_eq!((second.customer.as_str(), second.text.as_deref()), ("50376819622", Some("Test")));
    let stored = serde_json::to_string(&second).unwrap();
    assert!(!stored.contains("passkey") && !stored.contains("tTcKerZ"), "{stored}");
}

fn only(body: Value) -> Parsed {
    let mut items = wati::items(body.to_string().as_bytes()).unwrap();
    assert_eq!(items.len(), 1);
    items.remove(0)
}

#[test]
fn what_needs_no_answer_is_ignored_by_name() {
    let message = |more: Value| {
        let mut body = json!({ "waId": "12025550110", "eventType": "message", "type": "text", "text": "Hi" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        only(body)
    };
    for (more, why) in [
        (json!({ "owner": true }), "own_message"),
        (json!({ "owner": "true" }), "own_message"),
        (json!({ "eventType": "sessionMessageSent" }), "own_message"),
        (json!({ "eventType": "templateMessageSent_v2", "owner": false }), "own_message"),
        (json!({ "eventType": "newContactMessageReceived" }), "no_message"),
        (json!({ "eventType": "somethingNew" }), "no_message"),
        (json!({ "eventType": "sentMessage" }), "no_message"),
        (json!({ "type": "reaction" }), "reaction"),
        (json!({ "type": "contacts" }), "unsupported"),
        (json!({ "type": "order" }), "unsupported"),
        (json!({ "type": "media_placeholder" }), "unsupported"),
        (json!({ "text": "" }), "empty"),
        (json!({ "text": " \n\t\u{3000}" }), "empty"),
        (json!({ "text": null }), "empty"),
        (json!({ "text": ["x"] }), "empty"),
        (json!({ "waId": null }), "no_customer"),
        (json!({ "waId": " " }), "no_customer"),
    ] {
        assert_eq!(message(more.clone()), Parsed::Ignored(why), "{more}");
    }
    let told = only(json!({ "eventType": "sentMessageREAD_v2", "whatsappMessageId": "wamid.1" }));
    let (message_id, status) = ("wamid.1".to_owned(), "read".to_owned());
    assert_eq!(told, Parsed::Status { message_id, status, error_code: None });
    let sent = Sent::new(r#"{"eventType":"sentMessageREAD_v2","whatsappMessageId":"wamid.1"}"#);
    assert_eq!(sent.read(&ours()), (Vec::new(), vec!["status read".to_owned()]));
    for body in ["", "[]", "7", "{\"waId\":", "waId=1"] {
        assert_eq!(wati::items(body.as_bytes()).unwrap_err().because, Because::Unreadable, "{body}");
    }
}

fn message(body: Value) -> quell_chat::message::Message {
    match only(body.clone()) {
        Parsed::Message(message) => message,
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn a_customer_without_a_number_is_known_by_the_id_that_outlives_it() {
    let both =
        json!({ "eventType": "message_bsuid", "bsuid": "US.123", "waId": "+12025550110", "text": "Hi" });
    let both = message(both);
    assert_eq!((both.customer.as_str(), both.user_id.as_deref()), ("12025550110", Some("US.123")));
    let alone = message(json!({ "eventType": "message_v2_bsuid", "bsuid": "US.123", "text": "Hi" }));
    assert_eq!((alone.customer.as_str(), alone.user_id.as_deref()), ("US.123", Some("US.123")));
    assert_eq!((both.key(), alone.key()), ("wati:US.123".to_owned(), "wati:US.123".to_owned()));
    let number = message(json!({ "waId": 12_025_550_110_u64, "text": "Hi" }));
    assert_eq!(number.customer, "12025550110");
}

#[test]
fn a_file_is_an_address_an_object_or_nothing_at_all() {
    let file = |data: Value| message(json!({ "waId": "1", "type": "voice", "text": null, "data": data }));
    let url = Some("https://media.example.com/a.opus".to_owned());
    let address = file(json!("https://media.example.com/a.opus"));
    assert_eq!(
        (address.kind, address.media),
        (Kind::Audio, Some(Media { url: url.clone(), ..Media::default() }))
    );
    let object =
        file(json!({ "url": "https://media.example.com/a.opus", "mimeType": "audio/ogg", "fileName": "a" }));
    let about = Media { url, id: None, mime: Some("audio/ogg".to_owned()), name: Some("a".to_owned()) };
    assert_eq!(object.media, Some(about));
    // That something was sent is worth an answer, although nobody can fetch it.
    for nothing in [json!(null), json!(7), json!([]), json!("")] {
        assert_eq!(file(nothing).media, Some(Media::default()));
    }
    let place = |data: Value| message(json!({ "waId": "1", "type": "location", "data": data }));
    for data in
        [json!("https://maps.example.com/?q=1.5,-2.25"), json!({ "latitude": 1.5, "longitude": "-2.25" })]
    {
        let found = place(data).location.unwrap();
        assert_eq!((found.latitude, found.longitude), (1.5, -2.25));
    }
    let link = place(json!("https://maps.example.com/place/somewhere"));
    assert!(link.location.is_none() && link.media.unwrap().url.is_some());
}
