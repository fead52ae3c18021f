//! What is signed is accepted, and nothing that differs from it by a bit.

use proptest::prelude::*;
use quell::webhook::{Because, Endpoint, Secret};
use sha2::{Digest, Sha256};

use crate::support::{NOW, Sent, endpoint};
use crate::twilio::{FORM, at, sign};

const URL: &str = "https://bot.example.com/hooks/twilio";
const SECRETS: [&str; 2] = ["the new secret of the app", "the old secret of the app"];

fn meta() -> Endpoint {
    endpoint("meta", &SECRETS)
}

/// As one of the secrets signs it.
fn signed_by(number: usize, body: &[u8]) -> Sent {
    let headers = meta().scheme.sign(&Secret::new(SECRETS[number]), "", NOW, body);
    headers.iter().fold(Sent::new(body), |sent, (name, value)| sent.with(name, value))
}

fn changed(text: &str, at: usize, to: char) -> String {
    text.chars().enumerate().map(|(number, letter)| if number == at { to } else { letter }).collect()
}

fn form(fields: &[(String, String)]) -> Sent {
    let body: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let mut sorted = fields.to_vec();
    sorted.sort();
    let signed: String = sorted.iter().map(|(name, value)| format!("{name}{value}")).collect();
    Sent::new(body).with("content-type", FORM).with("x-twilio-signature", &sign(&format!("{URL}{signed}")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_other_bit_of_a_body_of_meta_is_accepted(
        body in proptest::collection::vec(any::<u8>(), 1..200),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
        number in 0..2usize,
    ) {
        let sent = signed_by(number, &body);
        prop_assert_eq!(sent.verdict(&meta()), Ok(number));
        let mut other = sent.clone();
        other.body[at.index(body.len())] ^= 1 << bit;
        prop_assert_eq!(other.verdict(&meta()), Err(Because::BadSignature));
        let mut longer = sent;
        longer.body.push(b' ');
        prop_assert_eq!(longer.verdict(&meta()), Err(Because::BadSignature));
    }

    #[test]
    fn no_other_signature_of_meta_is_accepted(
        body in proptest::collection::vec(any::<u8>(), 0..50),
        at in 0..71usize,
        to in proptest::char::range(' ', '~'),
    ) {
        let sent = signed_by(0, &body);
        let right = sent.headers["x-hub-signature-256"].to_str().unwrap().to_owned();
        let other = changed(&right, at, to);
        // Hex may be written with large letters.
        let same = other.strip_prefix("sha256=").is_some_and(|hex| hex.eq_ignore_ascii_case(&right[7..]));
        let verdict = Sent::new(&body).with("x-hub-signature-256", &other).verdict(&meta());
        prop_assert_eq!(verdict.is_ok(), same, "{}", other);
    }

    #[test]
    fn no_other_value_of_a_form_of_twilio_is_accepted(
        values in proptest::collection::vec("[ -~é✓]{1,12}", 1..8),
        which in any::<prop::sample::Index>(),
        at_letter in any::<prop::sample::Index>(),
        to in any::<char>(),
    ) {
        let fields: Vec<(String, String)> =
            values.iter().enumerate().map(|(number, value)| (format!("F{number}"), value.clone())).collect();
        let sent = form(&fields);
        prop_assert_eq!(sent.verdict(&at(URL)), Ok(0));
        let mut other = fields.clone();
        let value = &mut other[which.index(fields.len())].1;
        *value = changed(value, at_letter.index(value.chars().count()), to);
        let mut tampered = form(&other);
        tampered.headers = sent.headers.clone();
        prop_assert_eq!(tampered.verdict(&at(URL)).is_ok(), other == fields);
        let mut more = fields.clone();
        more.push(("G".to_owned(), "1".to_owned()));
        let mut tampered = form(&more);
        tampered.headers = sent.headers.clone();
        prop_assert_eq!(tampered.verdict(&at(URL)), Err(Because::BadSignature));
        let elsewhere = sent.to("/hooks/twilio?x");
        prop_assert_eq!(elsewhere.verdict(&at(URL)), Err(Because::BadSignature));
    }

    #[test]
    fn no_other_signature_of_twilio_is_accepted(
        value in "[a-z]{1,12}",
        at_letter in 0..28usize,
        to in proptest::char::range(' ', '~'),
    ) {
        let sent = form(&[("Body".to_owned(), value)]);
        let right = sent.headers["x-twilio-signature"].to_str().unwrap().to_owned();
        let other = changed(&right, at_letter, to);
        let mut tampered = sent;
        tampered.headers.insert("x-twilio-signature", other.parse().unwrap());
        prop_assert_eq!(tampered.verdict(&at(URL)).is_ok(), other == right, "{}", other);
    }

    #[test]
    fn no_other_bit_of_a_body_of_twilio_that_is_no_form_is_accepted(
        body in proptest::collection::vec(any::<u8>(), 1..100),
        at_byte in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let hash: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
        let signature = sign(&format!("{URL}?bodySHA256={hash}"));
        let sent = Sent::new(&body).to(&format!("/x?bodySHA256={hash}")).with("x-twilio-signature", &signature);
        prop_assert_eq!(sent.verdict(&at(URL)), Ok(0));
        let mut other = sent.clone();
        other.body[at_byte.index(body.len())] ^= 1 << bit;
        prop_assert_eq!(other.verdict(&at(URL)), Err(Because::BadSignature));
        // Nor as a form, which is another text that is signed.
        prop_assert!(other.with("content-type", FORM).verdict(&at(URL)).is_err());
    }

    #[test]
    fn nothing_that_is_sent_makes_a_panic(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        text in "[ -~]{0,60}",
        query in "[!-~]{0,40}",
    ) {
        for scheme in ["wati", "twilio", "meta"] {
            let ours = Endpoint { public_url: Some(URL.to_owned()), ..endpoint(scheme, &["a secret that nobody has"]) };
            let target = format!("/hooks/x?{query}");
            for name in ["authorization", "x-twilio-signature", "x-hub-signature-256"] {
                let sent = Sent::new(&body).to(&target).with(name, &text).with("content-type", FORM);
                prop_assert!(sent.verdict(&ours).is_err());
                let _ = (sent.greeting(&ours), ours.read(&sent.delivery()), ours.scheme.without_secrets(&body));
            }
        }
    }
}
