//! Signatures over an address and a form, written down a second time, and messages of Twilio.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use quell::webhook::{Answer, Because, Endpoint};
use quell_chat::inbound::{Parsed, twilio};
use quell_chat::message::Kind;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::support::{Sent, endpoint};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

pub(crate) fn at(public_url: &str) -> Endpoint {
    Endpoint { public_url: Some(public_url.to_owned()), ..endpoint("twilio", &[TOKEN]) }
}

pub(crate) fn sign(signed: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(TOKEN.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn sign256(key: &str, signed: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn form(body: &str, signed: &str) -> Sent {
    Sent::new(body).with("content-type", FORM).with("x-twilio-signature", &sign(signed))
}

#[test]
fn names_are_sorted_and_repeated_ones_have_their_distinct_values_sorted() {
    let url = "https://bot.example.com/hooks/twilio";
    let ours = at(url);
    for (body, signed) in [
        ("b=2&a=1", "a1b2"),
        ("a=z&B=y", "Byaz"),
        ("a=2&a=1&a=2&b=", "a1a2b"),
        ("a=+x%2B+&%C3%BC=%E2%9C%93", "a x+ ü✓"),
        ("", ""),
    ] {
        assert_eq!(form(body, &format!("{url}{signed}")).verdict(&ours), Ok(0), "{body}");
    }
    for (body, signed) in [("b=2&a=1", "b2a1"), ("a=2&a=1", "a2a1"), ("a=1&a=1", "a1a1"), ("a= x ", "ax")] {
        let verdict = form(body, &format!("{url}{signed}")).verdict(&ours);
        assert_eq!(verdict, Err(Because::BadSignature), "{body}");
    }
}

#[test]
fn the_address_is_the_configured_one_with_or_without_a_port_and_the_query_that_came() {
    let public = "https://bot.example.com/hooks/twilio";
    for (configured, target, signed, good) in [
        (public, "/hooks/twilio", "https://bot.example.com/hooks/twilio", true),
        (public, "/hooks/twilio", "https://bot.example.com:443/hooks/twilio", true),
        ("https://bot.example.com:443/hooks/twilio", "/hooks/twilio", public, true),
        ("https://bot.example.com:8443/t", "/t", "https://bot.example.com:8443/t", true),
        ("https://bot.example.com:8443/t", "/t", "https://bot.example.com/t", true),
        ("http://bot.example.com/t", "/t", "http://bot.example.com:80/t", true),
        ("http://[2001:db8::1]/t", "/t", "http://[2001:db8::1]:80/t", true),
        // Behind a proxy the path is another one.
        (public, "/inner/path", public, true),
        (public, "/inner?a=b%20c&d=%2B", "https://bot.example.com/hooks/twilio?a=b%20c&d=%2B", true),
        // The query may be written in the setting, too; the one that came counts.
        ("https://bot.example.com/t?a=1", "/t?a=1", "https://bot.example.com/t?a=1", true),
        (public, "/hooks/twilio?a=1", public, false),
        (public, "/hooks/twilio", "https://bot.example.com/hooks/twilio?a=1", false),
        (public, "/hooks/twilio", "http://bot.example.com/hooks/twilio", false),
        (public, "/hooks/twilio", "https://bot.example.com:80/hooks/twilio", false),
        (public, "/hooks/twilio", "https://bot.example.org/hooks/twilio", false),
        (public, "/hooks/twilio", "/hooks/twilio", false),
    ] {
        let sent = form("a=1", &format!("{signed}a1")).to(target);
        let wanted = if good { Ok(0) } else { Err(Because::BadSignature) };
        assert_eq!(sent.verdict(&at(configured)), wanted, "{configured} {signed}");
    }
    let nowhere = endpoint("twilio", &[TOKEN]);
    assert_eq!(form("a=1", "a1").verdict(&nowhere), Err(Because::BadSignature));
    assert!(nowhere.scheme.needs_public_url());
}

#[test]
fn a_body_that_is_no_form_needs_its_hash_in_the_address() {
    let url = "https://bot.example.com/t";
    let body = r#"{"MessageSid":"SM1"}"#;
    let hex = |body: &str| Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let hash: String = hex(body);
    let with = |query: &str, body: &str, media: &str| {
        let signature = sign(&format!("{url}?{query}"));
        let sent = Sent::new(body).to(&format!("/t?{query}")).with("x-twilio-signature", &signature);
        sent.with("content-type", media).verdict(&at(url))
    };
    let query = format!("bodySHA256={hash}");
    assert_eq!(with(&query, body, "application/json"), Ok(0));
    assert_eq!(with(&query.to_uppercase().replace("BODY", "body"), body, "application/json"), Ok(0));
    let bad = Err(Because::BadSignature);
    assert_eq!(with(&query, "{}", "application/json"), bad);
    // What the body is called is not signed: the hash counts all the same.
    assert_eq!(with(&query, "", FORM), bad);
    assert_eq!(with("x=1", body, "application/json"), bad);
    assert_eq!(with("bodySHA256=", body, "application/json"), bad);
    assert_eq!(with(&format!("{query}&{query}"), body, "application/json"), bad);
    let unsigned = Sent::new(body).with("x-twilio-signature", &sign(url)).with("content-type", "text/plain");
    assert_eq!(unsigned.to("/t").verdict(&at(url)), bad);
}

#[test]
fn the_algorithm_is_that_of_the_secret_and_not_of_the_sender() {
    const KEY: &str = "a-shared-key-for-sha256";
    let url = "https://bot.example.com/t";
    let settings = |text: &'static str, signature: String| {
        let sent = Sent::new("a=1").with("content-type", FORM).with("x-twilio-signature", &signature);
        if text.is_empty() { sent } else { sent.with("x-twilio-webhooks-signature-settings", text) }
    };
    let signed = format!("{url}a1");
    let new =
        Endpoint { public_url: Some(url.to_owned()), ..endpoint("twilio", &[&format!("sha256:{KEY}")]) };
    let secrets = [TOKEN, &format!("sha256:{KEY}")];
    let both = Endpoint { public_url: Some(url.to_owned()), ..endpoint("twilio", &secrets) };
    let stronger = settings("key=K1,algorithm=HMAC_SHA256", sign256(KEY, &signed));
    assert_eq!(stronger.verdict(&new), Ok(0));
    assert_eq!(stronger.verdict(&both), Ok(1));
    assert_eq!(stronger.verdict(&at(url)), Err(Because::BadSignature), "it is not configured");
    assert_eq!(settings("", sign(&signed)).verdict(&both), Ok(0));
    assert_eq!(settings("algorithm=HMAC_SHA1", sign(&signed)).verdict(&both), Ok(0));
    // Never the weaker one with the key of the stronger, nor the other way round.
    let mut mac = Hmac::<Sha1>::new_from_slice(KEY.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    let weaker = STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(settings("", weaker).verdict(&new), Err(Because::BadSignature));
    assert_eq!(settings("", sign(&signed)).verdict(&new), Err(Because::BadSignature));
    let token = settings("algorithm=HMAC_SHA256", sign256(TOKEN, &signed));
    assert_eq!(token.verdict(&both), Err(Because::BadSignature));
    for odd in ["algorithm=HMAC_MD5", "algorithm=none", "algorithm=HMAC_SHA256,algorithm=HMAC_SHA1"] {
        let verdict = settings(odd, sign256(KEY, &signed)).verdict(&both);
        assert_eq!(verdict, Err(Because::MalformedHeader), "{odd}");
    }
    let scheme = new.scheme;
    assert!(scheme.secret("sha256:short").is_err() && scheme.secret("too short").is_err());
}

#[test]
fn a_signature_is_base64_of_its_length_once() {
    let url = "https://bot.example.com/t";
    let right = sign(&format!("{url}a1"));
    let with = |signature: &str| {
        Sent::new("a=1").with("content-type", FORM).with("x-twilio-signature", signature).verdict(&at(url))
    };
    assert_eq!(with(&right), Ok(0));
    for odd in ["=", "AAAA", "!", right.trim_end_matches('='), &format!("{right}AAAA")] {
        assert_eq!(with(odd), Err(Because::MalformedSignature), "{odd}");
    }
    assert_eq!(with(""), Err(Because::MissingSignature));
    let twice = form("a=1", &format!("{url}a1")).with("x-twilio-signature", &right);
    assert_eq!(twice.verdict(&at(url)), Err(Because::MalformedSignature));
    let many = "a=1&".repeat(600);
    assert_eq!(form(&many, &format!("{url}a1")).verdict(&at(url)), Err(Because::MalformedSignature));
}

fn items(form: &str) -> Vec<Parsed> {
    twilio::items(true, form.as_bytes()).unwrap()
}

#[test]
fn a_customer_is_the_number_and_a_status_is_none() {
    let sent =
        Sent::new("From=whatsapp%3A%2B12025550110&To=whatsapp%3A%2B12025550199&Body=Hi&MessageSid=SM1");
    let ours = at("https://bot.example.com/t");
    let message = sent.with("content-type", FORM).message(&ours);
    assert_eq!(
        (message.customer.as_str(), message.to.as_deref()),
        ("12025550110", Some("whatsapp:+12025550199"))
    );
    assert_eq!((message.key().as_str(), message.message_id.as_deref()), ("twilio:12025550110", Some("SM1")));
    let named = items("From=whatsapp%3AUS.77&Body=Hi");
    let [Parsed::Message(named)] = named.as_slice() else { panic!("{named:?}") };
    assert_eq!((named.customer.as_str(), &named.message_id), ("US.77", &None));
    for (form, why) in [
        ("Body=Hi", "no_message"),
        ("", "no_message"),
        ("From=whatsapp%3A&Body=Hi", "no_customer"),
        ("From=%2B1202&Body=", "empty"),
        ("From=%2B1202&Body=+%0A", "empty"),
        ("From=%2B1202&Body=x&MessageType=reaction", "reaction"),
        ("MessageStatus=delivered", "no_message"),
    ] {
        assert_eq!(items(form), [Parsed::Ignored(why)], "{form}");
    }
    let (message_id, status) = ("SM1".to_owned(), "undelivered".to_owned());
    let told = Parsed::Status { message_id, status, error_code: Some(63016) };
    assert_eq!(items("MessageStatus=undelivered&MessageSid=SM1&ErrorCode=63016&From=%2B1"), [told]);
    assert_eq!(ours.scheme.answer(), Answer::Text { media: "text/xml", text: "<Response/>" });
}

#[test]
fn each_file_of_a_message_is_kept() {
    let found = items(
        "From=%2B1202&MessageSid=MM1&Body=two&NumMedia=3&MediaUrl0=https%3A%2F%2Fm.example%2F0&MediaContentType0=image%2Fpng\
         &MediaUrl1=https%3A%2F%2Fm.example%2F1&MediaContentType1=application%2Fpdf&MediaUrl2=https%3A%2F%2Fm.example%2F2",
    );
    let shown: Vec<(Kind, Option<&str>, Option<&str>)> = found
        .iter()
        .map(|one| match one {
            Parsed::Message(message) => {
                (message.kind, message.message_id.as_deref(), message.text.as_deref())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let wanted = [
        (Kind::Image, Some("MM1"), Some("two")),
        (Kind::Document, Some("MM1/1"), None),
        (Kind::Document, Some("MM1/2"), None),
    ];
    assert_eq!(shown, wanted);
    let json = twilio::items(false, br#"{"From":"whatsapp:+1202","Body":"Hi","MessageSid":"SM1"}"#).unwrap();
    assert!(matches!(json.as_slice(), [Parsed::Message(message)] if message.customer == "1202"), "{json:?}");
    assert_eq!(twilio::items(false, b"[1]").unwrap(), [Parsed::Ignored("no_message")]);
    assert!(twilio::items(false, b"{").is_err());
}
