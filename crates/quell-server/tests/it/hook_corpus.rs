//! Deliveries that prove themselves, and all that do not, over real connections.
//!
//! Each case is one delivery, the status that it must get and, where it is refused, the reason that the operator finds in the
//! inspector. Whoever sends it finds nothing: everything that is not proven gets the very same answer.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::senders::*;
use crate::support::World;

struct Case {
    name: String,
    bytes: Vec<u8>,
    status: u16,
    /// In the record; nothing where there is none to be made, or nothing was wrong.
    reason: Option<&'static str>,
}

/// Cases, each with a number of its own in its body and in the field `x-case`.
struct Table {
    cases: Vec<Case>,
    now: i64,
}

/// For a case of these, the number of the case is the id of the event.
fn body(n: usize) -> String {
    format!(
        "{{\"key\": \"k\", \"id\": \"c{n}\",  \"event_id\": \"c{n}\", \"text\": \"gr\u{fc}n \u{1f40c}\", \"n\": 1.0}}"
    )
}

/// The same value in other bytes.
fn rewritten(n: usize) -> String {
    let value: Value = serde_json::from_str(&body(n)).expect("it is JSON");
    value.to_string()
}

fn flipped(hex: &str) -> String {
    let mut text = hex.to_owned().into_bytes();
    let last = text.len() - 1;
    text[last] = if text[last] == b'0' { b'1' } else { b'0' };
    String::from_utf8(text).expect("it is hex")
}

impl Table {
    fn new() -> Self {
        Table { cases: Vec::new(), now: now() }
    }

    fn body(&self) -> String {
        body(self.cases.len())
    }

    fn id(&self) -> String {
        format!("msg_{}", self.cases.len())
    }

    fn at(&self, seconds: i64) -> String {
        (self.now + seconds).to_string()
    }

    fn add(
        &mut self,
        name: &str,
        (method, target): (&str, &str),
        fields: &Fields,
        body: &[u8],
        status: u16,
        reason: Option<&'static str>,
    ) {
        let mut fields = fields.clone();
        fields.push(("x-case".to_owned(), self.cases.len().to_string()));
        let bytes = bytes_of(method, target, &fields, body);
        self.cases.push(Case { name: format!("{target}: {name}"), bytes, status, reason });
    }

    fn taken(&mut self, to: &str, name: &str, fields: &Fields, body: impl AsRef<[u8]>) {
        self.add(name, ("POST", &format!("/hooks/{to}")), fields, body.as_ref(), 200, None);
    }

    fn refused(
        &mut self,
        to: &str,
        reason: &'static str,
        name: &str,
        fields: &Fields,
        body: impl AsRef<[u8]>,
    ) {
        self.add(name, ("POST", &format!("/hooks/{to}")), fields, body.as_ref(), 401, Some(reason));
    }
}

fn changed(fields: &Fields, name: &str, value: &str) -> Fields {
    let change = |(n, v): &(String, String)| {
        (n.clone(), if n.eq_ignore_ascii_case(name) { value.to_owned() } else { v.clone() })
    };
    fields.iter().map(change).collect()
}

fn without(fields: &Fields, name: &str) -> Fields {
    fields.iter().filter(|(n, _)| !n.eq_ignore_ascii_case(name)).cloned().collect()
}

fn twice(fields: &Fields, name: &str) -> Fields {
    let again = fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    fields.iter().chain(again).cloned().collect()
}

fn value_of<'a>(fields: &'a Fields, name: &str) -> &'a str {
    let found = fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str()).expect("it is there")
}

/// Texts for a time that are none, each signed as it is.
const NO_TIMES: [&str; 8] = [
    "soon",
    "-1",
    "99999999999999999999",
    "1234567890123456",
    "+1760000000",
    "17600 00000",
    "1.76e9",
    "1760000000.5",
];

fn standard_cases() -> Vec<Case> {
    let mut t = Table::new();
    let [secret, old, other] = STANDARD_BYTES;
    let signed = |t: &Table| standard_at(secret, &t.id(), &t.at(0), t.body().as_bytes());
    let with = |t: &Table, value: &str| changed(&signed(t), "webhook-signature", value);
    let right = |t: &Table| value_of(&signed(t), "webhook-signature").to_owned();
    let to = "standard";

    t.taken(to, "as it should be", &signed(&t), t.body());
    t.taken(to, "the older secret", &standard_at(old, &t.id(), &t.at(0), t.body().as_bytes()), t.body());
    let both = standard_signature(old, &t.id(), &t.at(0), t.body().as_bytes());
    t.taken(to, "both secrets", &with(&t, &format!("{} v1,{both}", right(&t))), t.body());
    let wrong = format!("v1,{}", base64(&[7; 32]));
    t.taken(to, "the right one after a wrong one", &with(&t, &format!("{wrong} {}", right(&t))), t.body());
    t.taken(to, "other versions beside it", &with(&t, &format!("v1a,x v2,{both} {}", right(&t))), t.body());
    let fifteen = format!("{wrong} ").repeat(15);
    t.taken(to, "the right one is the 16th", &with(&t, &format!("{fifteen}{}", right(&t))), t.body());
    t.taken(to, "no padding", &with(&t, right(&t).trim_end_matches('=')), t.body());
    t.taken(to, "300 s ahead", &standard_at(secret, &t.id(), &t.at(300), t.body().as_bytes()), t.body());
    t.taken(
        to,
        "four minutes old",
        &standard_at(secret, &t.id(), &t.at(-240), t.body().as_bytes()),
        t.body(),
    );
    let ends = format!("{}\r\n", t.body());
    t.taken(to, "a signed line end", &standard_at(secret, &t.id(), &t.at(0), ends.as_bytes()), ends);
    let long = "i".repeat(256);
    t.taken(to, "an id of 256 letters", &standard_at(secret, &long, &t.at(0), t.body().as_bytes()), t.body());
    let typed = [signed(&t), fields(&[("Content-Type", "text/plain")])].concat();
    t.taken(to, "another content type", &typed, t.body());
    let elsewhere = ("POST", "/hooks/standard?retry=1&x=/../");
    t.add("the target is not signed", elsewhere, &signed(&t), t.body().as_bytes(), 200, None);

    let (missing, malformed, bad) = ("missing_signature", "malformed_signature", "bad_signature");
    t.refused(to, missing, "no signature", &without(&signed(&t), "webhook-signature"), t.body());
    t.refused(to, missing, "an empty signature", &with(&t, ""), t.body());
    t.refused(to, malformed, "the signature twice", &twice(&signed(&t), "webhook-signature"), t.body());
    t.refused(to, malformed, "no version", &with(&t, &right(&t)[3..]), t.body());
    t.refused(to, malformed, "only v1a", &with(&t, &right(&t).replace("v1,", "v1a,")), t.body());
    t.refused(to, malformed, "only v0 and v2", &with(&t, &format!("v0,{both} v2,{both}")), t.body());
    t.refused(to, malformed, "a large V", &with(&t, &right(&t).replace("v1,", "V1,")), t.body());
    t.refused(to, malformed, "no base64", &with(&t, "v1,!!!!"), t.body());
    t.refused(to, malformed, "commas between them", &with(&t, &format!("{wrong},{}", right(&t))), t.body());
    t.refused(to, malformed, "letters beyond ASCII", &with(&t, "v1,\u{fc}\u{1f40c}"), t.body());
    t.refused(to, bad, "an empty one", &with(&t, "v1,"), t.body());
    let mut bit = mac(secret, &[t.id().as_bytes(), b".", t.at(0).as_bytes(), b".", t.body().as_bytes()]);
    let hexed = hex(&bit);
    bit[31] ^= 1;
    t.refused(to, bad, "hex instead", &with(&t, &format!("v1,{hexed}")), t.body());
    let whole = mac(secret, &[t.id().as_bytes(), b".", t.at(0).as_bytes(), b".", t.body().as_bytes()]);
    let mut off = whole.clone();
    off[31] ^= 1;
    t.refused(to, bad, "one bit off", &with(&t, &format!("v1,{}", base64(&off))), t.body());
    let whole = mac(secret, &[t.id().as_bytes(), b".", t.at(0).as_bytes(), b".", t.body().as_bytes()]);
    t.refused(to, bad, "only its beginning", &with(&t, &format!("v1,{}", base64(&whole[..16]))), t.body());
    let whole = mac(secret, &[t.id().as_bytes(), b".", t.at(0).as_bytes(), b".", t.body().as_bytes()]);
    let longer = [whole, vec![0]].concat();
    t.refused(to, bad, "a byte more", &with(&t, &format!("v1,{}", base64(&longer))), t.body());
    let sixteen = format!("{wrong} ").repeat(16);
    t.refused(to, bad, "the right one is the 17th", &with(&t, &format!("{sixteen}{}", right(&t))), t.body());
    t.refused(to, bad, "other bytes of the same JSON", &signed(&t), rewritten(t.cases.len()));
    t.refused(to, bad, "a line end more", &signed(&t), format!("{}\n", t.body()));
    t.refused(to, bad, "a byte order mark more", &signed(&t), format!("\u{feff}{}", t.body()));
    t.refused(to, bad, "no body", &signed(&t), "");
    t.refused(to, bad, "another id", &changed(&signed(&t), "webhook-id", "msg_x"), t.body());
    t.refused(to, bad, "another time", &changed(&signed(&t), "webhook-timestamp", &t.at(1)), t.body());
    let retired = standard_at(b"canary-standard-32-bytes-retired", &t.id(), &t.at(0), t.body().as_bytes());
    t.refused(to, bad, "a secret that is retired", &retired, t.body());
    t.refused(
        to,
        bad,
        "the secret of another endpoint",
        &standard_at(other, &t.id(), &t.at(0), t.body().as_bytes()),
        t.body(),
    );
    t.refused("other", bad, "sent to another endpoint", &signed(&t), t.body());
    let text = format!("whsec_{}", base64(secret));
    let undecoded = standard_at(text.as_bytes(), &t.id(), &t.at(0), t.body().as_bytes());
    t.refused(to, bad, "the secret as a text", &undecoded, t.body());
    t.refused(to, missing, "a signature of GitHub's", &github(GITHUB, t.body()), t.body());

    t.refused(to, "missing_header", "no id", &without(&signed(&t), "webhook-id"), t.body());
    t.refused(to, "missing_header", "an empty id", &changed(&signed(&t), "webhook-id", ""), t.body());
    t.refused(to, "malformed_header", "the id twice", &twice(&signed(&t), "webhook-id"), t.body());
    for (name, id) in
        [("an id with a dot", "msg.1"), ("an id with a space", "msg 1"), ("an id too long", &"i".repeat(257))]
    {
        let odd = standard_at(secret, id, &t.at(0), t.body().as_bytes());
        t.refused(to, "malformed_header", name, &odd, t.body());
    }
    // The dot that is refused in an id: the same signed text, taken apart in another place.
    let moved = [
        ("webhook-id", format!("{}.{}", t.id(), t.at(0))),
        ("webhook-timestamp", t.body()),
        ("webhook-signature", right(&t)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    t.refused(to, "malformed_header", "another cut of what is signed", &moved, "");
    t.refused(to, "missing_header", "no time", &without(&signed(&t), "webhook-timestamp"), t.body());
    t.refused(
        to,
        "missing_header",
        "an empty time",
        &changed(&signed(&t), "webhook-timestamp", ""),
        t.body(),
    );
    t.refused(to, "malformed_header", "the time twice", &twice(&signed(&t), "webhook-timestamp"), t.body());
    t.refused(
        to,
        "stale",
        "301 s old",
        &standard_at(secret, &t.id(), &t.at(-301), t.body().as_bytes()),
        t.body(),
    );
    t.refused(
        to,
        "future",
        "in six minutes",
        &standard_at(secret, &t.id(), &t.at(360), t.body().as_bytes()),
        t.body(),
    );
    for text in NO_TIMES {
        let odd = standard_at(secret, &t.id(), text, t.body().as_bytes());
        t.refused(to, "malformed_header", &format!("the time {text}"), &odd, t.body());
    }
    t.cases
}

fn github_cases() -> Vec<Case> {
    let mut t = Table::new();
    const NAME: &str = "X-Hub-Signature-256";
    let to = "github";
    let signed = |t: &Table| github(GITHUB, t.body());
    let right = |t: &Table| hex(&mac(GITHUB, &[t.body().as_bytes()]));
    let with = |value: &str| fields(&[(NAME, value)]);

    t.taken(to, "as it should be", &signed(&t), t.body());
    t.taken(to, "the older secret", &github(GITHUB_OLD, t.body()), t.body());
    t.taken(to, "large letters", &with(&format!("sha256={}", right(&t).to_uppercase())), t.body());
    let older = [signed(&t), fields(&[("X-Hub-Signature", "sha1=00")])].concat();
    t.taken(to, "a wrong SHA-1 beside it", &older, t.body());
    let ends = format!("{}\n", t.body());
    t.taken(to, "a signed line end", &github(GITHUB, &ends), &ends);
    let form =
        format!("payload={}", form_urlencoded::byte_serialize(t.body().as_bytes()).collect::<String>());
    let typed =
        [github(GITHUB, &form), fields(&[("Content-Type", "application/x-www-form-urlencoded")])].concat();
    t.taken(to, "a form", &typed, &form);
    t.add(
        "a name in other letters",
        ("POST", "/hooks/%67it%68ub"),
        &signed(&t),
        t.body().as_bytes(),
        200,
        None,
    );

    let (missing, malformed, bad) = ("missing_signature", "malformed_signature", "bad_signature");
    t.refused(to, missing, "nothing", &fields(&[]), t.body());
    t.refused(to, missing, "an empty signature", &with(""), t.body());
    t.refused(
        to,
        missing,
        "only SHA-1",
        &fields(&[("X-Hub-Signature", &format!("sha1={}", right(&t)))]),
        t.body(),
    );
    t.refused(to, malformed, "the signature twice", &twice(&signed(&t), NAME), t.body());
    t.refused(to, malformed, "a wrong one beside it", &[signed(&t), with("sha256=00")].concat(), t.body());
    t.refused(to, malformed, "sha1 where sha256 should be", &with(&format!("sha1={}", right(&t))), t.body());
    t.refused(to, malformed, "no prefix", &with(&right(&t)), t.body());
    t.refused(to, malformed, "a large prefix", &with(&format!("SHA256={}", right(&t))), t.body());
    t.refused(to, malformed, "an odd length", &with(&format!("sha256={}0", right(&t))), t.body());
    t.refused(to, malformed, "no hex", &with(&format!("sha256=0x{}", &right(&t)[2..])), t.body());
    t.refused(to, malformed, "a space in it", &with(&format!("sha256= {}", right(&t))), t.body());
    t.refused(to, malformed, "base64", &with(&format!("sha256={}", base64(&[7; 32]))), t.body());
    t.refused(to, bad, "only the prefix", &with("sha256="), t.body());
    t.refused(to, bad, "one bit off", &with(&format!("sha256={}", flipped(&right(&t)))), t.body());
    t.refused(to, bad, "only its beginning", &with(&format!("sha256={}", &right(&t)[..32])), t.body());
    t.refused(to, bad, "a byte more", &with(&format!("sha256={}00", right(&t))), t.body());
    t.refused(to, bad, "other bytes of the same JSON", &signed(&t), rewritten(t.cases.len()));
    t.refused(to, bad, "a line end more", &signed(&t), format!("{}\n", t.body()));
    t.refused(to, bad, "a byte order mark more", &signed(&t), format!("\u{feff}{}", t.body()));
    t.refused(to, bad, "a secret that is retired", &github("canary-github-retired", t.body()), t.body());
    t.refused(to, bad, "the secret with a line end", &github(&format!("{GITHUB}\n"), t.body()), t.body());
    t.refused(to, bad, "no secret at all", &github("", t.body()), t.body());
    let other = [b"POST /hooks/github".to_vec(), t.body().into_bytes()].concat();
    t.refused(to, bad, "method and path signed as well", &github(GITHUB, &other), t.body());
    t.refused("hex", missing, "sent to another endpoint", &signed(&t), t.body());
    t.cases
}

fn stripe_cases() -> Vec<Case> {
    let mut t = Table::new();
    const NAME: &str = "Stripe-Signature";
    let to = "stripe";
    let signed = |t: &Table| stripe_at(STRIPE, &t.at(0), t.body().as_bytes());
    let right = |t: &Table| stripe_signature(STRIPE, &t.at(0), t.body().as_bytes());
    let with = |value: &str| fields(&[(NAME, value)]);
    let zeros = "0".repeat(64);

    t.taken(to, "as it should be", &signed(&t), t.body());
    t.taken(to, "the older secret", &stripe_at(STRIPE_OLD, &t.at(0), t.body().as_bytes()), t.body());
    t.taken(
        to,
        "others beside it",
        &with(&format!("t={},v0={zeros},v1={zeros},v1={},v2=x", t.at(0), right(&t))),
        t.body(),
    );
    t.taken(
        to,
        "spaces, another order",
        &with(&format!("v1={}, t={}", right(&t).to_uppercase(), t.at(0))),
        t.body(),
    );
    let fifteen = format!("v1={zeros},").repeat(15);
    t.taken(
        to,
        "the right one is the 16th",
        &with(&format!("t={},{fifteen}v1={}", t.at(0), right(&t))),
        t.body(),
    );

    let (missing, malformed, bad) = ("missing_signature", "malformed_signature", "bad_signature");
    t.refused(to, missing, "nothing", &fields(&[]), t.body());
    t.refused(to, missing, "an empty signature", &with(""), t.body());
    t.refused(to, malformed, "twice", &twice(&signed(&t), NAME), t.body());
    t.refused(to, malformed, "no time", &with(&format!("v1={}", right(&t))), t.body());
    t.refused(
        to,
        malformed,
        "two times",
        &with(&format!("t={},t={},v1={}", t.at(0), t.at(0), right(&t))),
        t.body(),
    );
    t.refused(to, malformed, "only the time", &with(&format!("t={}", t.at(0))), t.body());
    t.refused(to, malformed, "only v0", &with(&format!("t={},v0={}", t.at(0), right(&t))), t.body());
    t.refused(to, malformed, "an odd length", &with(&format!("t={},v1={}0", t.at(0), right(&t))), t.body());
    t.refused(to, malformed, "semicolons", &with(&format!("t={};v1={}", t.at(0), right(&t))), t.body());
    let sixteen = format!("v1={zeros},").repeat(16);
    t.refused(
        to,
        bad,
        "the right one is the 17th",
        &with(&format!("t={},{sixteen}v1={}", t.at(0), right(&t))),
        t.body(),
    );
    t.refused(to, bad, "one bit off", &with(&format!("t={},v1={}", t.at(0), flipped(&right(&t)))), t.body());
    t.refused(to, bad, "another time", &with(&format!("t={},v1={}", t.at(1), right(&t))), t.body());
    t.refused(to, bad, "other bytes of the same JSON", &signed(&t), rewritten(t.cases.len()));
    let decoded = hex(&mac("canary-stripe-secret-123456", &[t.at(0).as_bytes(), b".", t.body().as_bytes()]));
    t.refused(to, bad, "the secret decoded", &with(&format!("t={},v1={decoded}", t.at(0))), t.body());
    t.refused(
        to,
        bad,
        "a secret that is retired",
        &stripe_at("whsec_canary_retired", &t.at(0), t.body().as_bytes()),
        t.body(),
    );
    t.refused(to, "stale", "301 s old", &stripe_at(STRIPE, &t.at(-301), t.body().as_bytes()), t.body());
    t.refused(to, "future", "in six minutes", &stripe_at(STRIPE, &t.at(360), t.body().as_bytes()), t.body());
    for text in NO_TIMES.into_iter().chain([" 1760000000", ""]) {
        let odd = stripe_at(STRIPE, text, t.body().as_bytes());
        t.refused(to, "malformed_header", &format!("the time {text:?}"), &odd, t.body());
    }
    t.cases
}

fn slack_cases() -> Vec<Case> {
    let mut t = Table::new();
    const NAME: &str = "X-Slack-Signature";
    const TIME: &str = "X-Slack-Request-Timestamp";
    let to = "slack";
    let signed = |t: &Table| slack_at(SLACK, &t.at(0), t.body().as_bytes());
    let right = |t: &Table| value_of(&signed(t), NAME).to_owned();
    let with = |t: &Table, value: &str| changed(&signed(t), NAME, value);

    t.taken(to, "as it should be", &signed(&t), t.body());
    t.taken(to, "the older secret", &slack_at(SLACK_OLD, &t.at(-240), t.body().as_bytes()), t.body());
    t.taken(to, "large letters", &with(&t, &right(&t).to_uppercase().replace("V0", "v0")), t.body());

    t.refused(to, "missing_signature", "no signature", &without(&signed(&t), NAME), t.body());
    t.refused(to, "missing_header", "no time", &without(&signed(&t), TIME), t.body());
    t.refused(to, "malformed_signature", "the signature twice", &twice(&signed(&t), NAME), t.body());
    t.refused(to, "malformed_header", "the time twice", &twice(&signed(&t), TIME), t.body());
    t.refused(
        to,
        "malformed_signature",
        "another version",
        &with(&t, &right(&t).replace("v0", "v1")),
        t.body(),
    );
    t.refused(to, "malformed_signature", "no version", &with(&t, &right(&t)[3..]), t.body());
    t.refused(to, "malformed_signature", "an odd length", &with(&t, &right(&t)[..66]), t.body());
    t.refused(to, "bad_signature", "one bit off", &with(&t, &flipped(&right(&t))), t.body());
    t.refused(to, "bad_signature", "another time", &changed(&signed(&t), TIME, &t.at(1)), t.body());
    t.refused(to, "bad_signature", "other bytes", &signed(&t), rewritten(t.cases.len()));
    t.refused(
        to,
        "bad_signature",
        "a secret that is retired",
        &slack_at("canary-slack-retired", &t.at(0), t.body().as_bytes()),
        t.body(),
    );
    t.refused(to, "stale", "301 s old", &slack_at(SLACK, &t.at(-301), t.body().as_bytes()), t.body());
    t.refused(to, "future", "in six minutes", &slack_at(SLACK, &t.at(360), t.body().as_bytes()), t.body());
    for text in NO_TIMES {
        let odd = slack_at(SLACK, text, t.body().as_bytes());
        t.refused(to, "malformed_header", &format!("the time {text}"), &odd, t.body());
    }
    // A challenge is answered to those who have proven themselves, and to nobody else.
    let asks = r#"{"type":"url_verification","challenge":"abc"}"#;
    t.refused(to, "missing_signature", "a question without a proof", &fields(&[]), asks);
    t.cases
}

fn hmac_cases() -> Vec<Case> {
    let mut t = Table::new();
    let in_hex = |t: &Table| hex(&mac(HEX, &[t.body().as_bytes()]));
    let own = |value: &str| fields(&[("X-Signature", value)]);
    t.taken("hex", "as it should be", &own(&in_hex(&t)), t.body());
    t.taken("hex", "large letters", &own(&in_hex(&t).to_uppercase()), t.body());
    t.refused("hex", "missing_signature", "nothing", &fields(&[]), t.body());
    t.refused("hex", "missing_signature", "empty", &own(""), t.body());
    t.refused("hex", "malformed_signature", "a prefix", &own(&format!("sha256={}", in_hex(&t))), t.body());
    t.refused("hex", "malformed_signature", "an odd length", &own(&in_hex(&t)[1..]), t.body());
    t.refused(
        "hex",
        "malformed_signature",
        "twice",
        &[own(&in_hex(&t)), own(&in_hex(&t))].concat(),
        t.body(),
    );
    t.refused("hex", "bad_signature", "one bit off", &own(&flipped(&in_hex(&t))), t.body());
    t.refused("hex", "bad_signature", "other bytes", &own(&in_hex(&t)), rewritten(t.cases.len()));
    t.refused(
        "hex",
        "malformed_signature",
        "base64",
        &own(&base64(&mac(HEX, &[t.body().as_bytes()]))),
        t.body(),
    );

    let in_base64 = |t: &Table| base64(&mac(BASE64, &[t.body().as_bytes()]));
    let own = |value: &str| fields(&[("X-Mac", value)]);
    t.taken("base64", "as it should be", &own(&format!("mac={}", in_base64(&t))), t.body());
    t.taken("base64", "no padding", &own(format!("mac={}", in_base64(&t)).trim_end_matches('=')), t.body());
    t.refused("base64", "malformed_signature", "no prefix", &own(&in_base64(&t)), t.body());
    t.refused("base64", "malformed_signature", "no base64", &own("mac=?"), t.body());
    t.refused(
        "base64",
        "malformed_signature",
        "other letters",
        &own(&format!("mac={}-_", "A".repeat(41))),
        t.body(),
    );
    t.refused(
        "base64",
        "bad_signature",
        "hex",
        &own(&format!("mac={}", hex(&mac(BASE64, &[t.body().as_bytes()])))),
        t.body(),
    );
    t.refused(
        "base64",
        "bad_signature",
        "the secret of another",
        &own(&format!("mac={}", base64(&mac(HEX, &[t.body().as_bytes()])))),
        t.body(),
    );

    let timed = |time: &str, body: &str| {
        let signature = hex(&mac(TIMED, &[time.as_bytes(), b".", body.as_bytes()]));
        fields(&[("X-Signature", &signature), ("X-Time", time)])
    };
    t.taken("timed", "as it should be", &timed(&t.at(0), &t.body()), t.body());
    t.taken("timed", "300 s ahead", &timed(&t.at(300), &t.body()), t.body());
    t.refused(
        "timed",
        "missing_header",
        "no time",
        &without(&timed(&t.at(0), &t.body()), "X-Time"),
        t.body(),
    );
    t.refused("timed", "stale", "301 s old", &timed(&t.at(-301), &t.body()), t.body());
    t.refused("timed", "future", "in six minutes", &timed(&t.at(360), &t.body()), t.body());
    t.refused(
        "timed",
        "bad_signature",
        "another time",
        &changed(&timed(&t.at(0), &t.body()), "X-Time", &t.at(1)),
        t.body(),
    );
    t.refused("timed", "malformed_header", "no number", &timed("now", &t.body()), t.body());
    let body_alone = hex(&mac(TIMED, &[t.body().as_bytes()]));
    let alone = fields(&[("X-Signature", &body_alone), ("X-Time", &t.at(0))]);
    t.refused("timed", "bad_signature", "the time is not signed", &alone, t.body());
    t.cases
}

fn bearer_cases() -> Vec<Case> {
    let mut t = Table::new();
    let says = |value: &str| fields(&[("Authorization", value)]);
    t.taken("bearer", "as it should be", &says(&format!("Bearer {BEARER}")), t.body());
    t.taken("bearer", "small letters, more space", &says(&format!("bearer   {BEARER}")), t.body());
    t.taken("bearer", "the older one", &says(&format!("Bearer {BEARER_OLD}")), t.body());
    t.refused("bearer", "missing_signature", "nothing", &fields(&[]), t.body());
    t.refused(
        "bearer",
        "malformed_signature",
        "Basic",
        &says(&format!("Basic {}", base64(BEARER.as_bytes()))),
        t.body(),
    );
    t.refused("bearer", "malformed_signature", "the token alone", &says(BEARER), t.body());
    t.refused("bearer", "malformed_signature", "no token", &says("Bearer "), t.body());
    let good = says(&format!("Bearer {BEARER}"));
    t.refused("bearer", "malformed_signature", "twice", &[good.clone(), good].concat(), t.body());
    for (name, token) in [
        ("a letter off", "canary-bearer-tokem"),
        ("its beginning", "canary-bearer-toke"),
        ("a letter more", "canary-bearer-token1"),
        ("large letters", "CANARY-BEARER-TOKEN"),
        ("that of another", WORD),
    ] {
        t.refused("bearer", "bad_signature", name, &says(&format!("Bearer {token}")), t.body());
    }
    let query = ("POST", "/hooks/bearer?token=canary-bearer-token&access_token=canary-bearer-token");
    t.add("in the query", query, &fields(&[]), t.body().as_bytes(), 401, Some("missing_signature"));

    let word = |value: &str| fields(&[("X-Shop-Word", value)]);
    t.taken("word", "as it should be", &word(WORD), t.body());
    t.refused("word", "bad_signature", "with Bearer before it", &word(&format!("Bearer {WORD}")), t.body());
    t.refused("word", "missing_signature", "in the usual header", &says(&format!("Bearer {WORD}")), t.body());
    t.refused("word", "missing_signature", "empty", &word(""), t.body());
    t.refused("word", "bad_signature", "that of another", &word(BEARER), t.body());
    t.cases
}

fn open_cases() -> Vec<Case> {
    let mut t = Table::new();
    t.taken("open", "from a program", &fields(&[]), t.body());
    t.taken(
        "open",
        "with anything",
        &fields(&[("Authorization", "Bearer x"), ("Referer", "http://a/")]),
        t.body(),
    );
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:7717"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "none"),
    ] {
        t.refused("open", "from_browser", "from a page", &fields(&[(name, value)]), t.body());
    }
    t.cases
}

/// Names that are none, other methods, other bodies.
fn place_cases() -> Vec<Case> {
    let mut t = Table::new();
    let signed = |t: &Table| standard_at(STANDARD_BYTES[0], &t.id(), &t.at(0), t.body().as_bytes());
    for name in [
        "nobody",
        "STANDARD",
        "standard%20",
        "standard%00",
        "%00",
        "%2e%2e",
        "a%2Fb",
        "%0d%0aX:y",
        "st\u{e4}ndard",
    ] {
        t.refused(name, "unknown_endpoint", "no such name", &signed(&t), t.body());
    }
    t.refused(&"n".repeat(3_900), "unknown_endpoint", "a long name", &signed(&t), t.body());
    t.refused(&"%00".repeat(1_300), "unknown_endpoint", "a long name of nothing", &signed(&t), t.body());
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
        let (body, fields) = (t.body(), signed(&t));
        t.add(method, (method, "/hooks/standard"), &fields, body.as_bytes(), 401, Some("wrong_method"));
        let (body, fields) = (t.body(), signed(&t));
        t.add(method, (method, "/hooks/nobody"), &fields, body.as_bytes(), 401, Some("unknown_endpoint"));
    }
    for (name, target, status) in [
        ("not UTF-8", "/hooks/%ff", 400),
        ("no name", "/hooks/", 404),
        ("no name at all: then it is no hook, and the host must be ours", "/hooks", 421),
        ("more than a name", "/hooks/standard/", 404),
        ("a path in it", "/hooks/standard/../other", 404),
    ] {
        let (body, fields) = (t.body(), signed(&t));
        t.add(name, ("POST", target), &fields, body.as_bytes(), status, None);
    }
    for to in ["standard", "nobody"] {
        let target = format!("/hooks/{to}");
        for coding in ["gzip", "br", "zstd", "gzip, gzip", "deflate, identity"] {
            let fields = [signed(&t), fields(&[("Content-Encoding", coding)])].concat();
            let body = t.body();
            t.add(coding, ("POST", &target), &fields, body.as_bytes(), 415, Some("unsupported-media-type"));
        }
        let large = format!("{{\"key\":\"k\",\"x\":\"{}\"}}", "x".repeat(1024 * 1024 - 17));
        assert_eq!(large.len(), 1024 * 1024 + 1);
        let fields = standard_at(STANDARD_BYTES[0], &t.id(), &t.at(0), large.as_bytes());
        t.add("a byte too many", ("POST", &target), &fields, large.as_bytes(), 413, Some("too-large"));
        // The same without saying so before.
        let chunks =
            [format!("{:x}\r\n", large.len()).as_bytes(), large.as_bytes(), b"\r\n0\r\n\r\n"].concat();
        t.add("a byte too many, unsaid", ("POST", &target), &fields, &chunks, 413, Some("too-large"));
        let last = t.cases.last_mut().expect("it was added");
        let length = format!("Content-Length: {}\r\n", chunks.len());
        let text = String::from_utf8(std::mem::take(&mut last.bytes)).expect("it is text");
        last.bytes = text.replacen(&length, "Transfer-Encoding: chunked\r\n", 1).into_bytes();
    }
    let plain = [signed(&t), fields(&[("Content-Encoding", "identity")])].concat();
    t.taken("standard", "no coding, said so", &plain, t.body());
    t.cases
}

/// Sends them all and waits for their records; the fields of a 401 are those of `first`.
async fn check(world: &World, cases: &[Case], first: &mut Option<Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for case in cases {
        let before = world.accepted().await;
        let got = Answered::of(&world.send_raw(&case.bytes).await);
        let name = &case.name[..case.name.floor_char_boundary(120)];
        if got.status != case.status {
            faults.push(format!("{name}: not {} but {} {}", case.status, got.status, got.body));
        }
        if got.status == 401 {
            let wanted = first.get_or_insert_with(|| got.head.clone());
            if got.head != *wanted || !got.body.is_empty() {
                faults.push(format!("{name}: {:?} {:?} and not {wanted:?}", got.head, got.body));
            }
        }
        let grown = world.accepted().await - before;
        if grown != u64::from(case.status == 200) {
            faults.push(format!("{name}: {grown} events were accepted"));
        }
    }
    faults
}

/// The reason of each refusal, as the list of deliveries has it, by the number of its case.
async fn reasons(world: &World) -> BTreeMap<usize, (String, bool)> {
    let listed = world.get("/v1/deliveries?verdict=refused").await.json();
    let listed: BTreeMap<&str, &str> = (listed["items"].as_array().expect("a list").iter())
        .map(|row| (row["id"].as_str().expect("an id"), row["reason"].as_str().expect("a reason")))
        .collect();
    let mut reasons = BTreeMap::new();
    for record in world.engine.deliveries().await.expect("they are listed") {
        let number = record.headers.iter().find(|(name, _)| name == "x-case");
        if let (Some((_, number)), Some(reason)) = (number, listed.get(record.id.as_str())) {
            reasons.insert(number.parse().expect("a number"), ((*reason).to_owned(), record.proven));
        }
    }
    reasons
}

async fn check_all(cases: Vec<Case>) -> usize {
    let world = hooked("").await;
    let mut faults = Vec::new();
    let mut first = None;
    let mut wanted: BTreeMap<usize, (String, bool)> = BTreeMap::new();
    // So many are remembered in one round.
    for (round, cases) in cases.chunks(24).enumerate() {
        faults.extend(check(&world, cases, &mut first).await);
        let refused = cases.iter().enumerate().filter_map(|(n, case)| Some((n, case.reason?)));
        wanted.extend(refused.map(|(n, reason)| (round * 24 + n, (reason.to_owned(), false))));
        let mut got = BTreeMap::new();
        let looking = async {
            while got.len() < wanted.len() {
                quell::clock::sleep(std::time::Duration::from_millis(20)).await;
                got = reasons(&world).await;
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(10), looking).await;
        for (n, reason) in &wanted {
            if got.get(n) != Some(reason) {
                faults.push(format!("{n}: recorded as {:?} and not {reason:?}", got.get(n)));
            }
        }
        if !faults.is_empty() {
            break;
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    world.verify().await;
    cases.len()
}

#[tokio::test]
async fn only_what_is_proven_is_taken_and_everything_else_gets_the_same_answer() {
    let (standard, github, stripe, slack, hmac, bearer, open, places) = tokio::join!(
        check_all(standard_cases()),
        check_all(github_cases()),
        check_all(stripe_cases()),
        check_all(slack_cases()),
        check_all(hmac_cases()),
        check_all(bearer_cases()),
        check_all(open_cases()),
        check_all(place_cases()),
    );
    let all = [standard, github, stripe, slack, hmac, bearer, open, places];
    assert_eq!((all, all.iter().sum::<usize>()), ([60, 31, 32, 25, 25, 19, 7, 43], 242));
}
