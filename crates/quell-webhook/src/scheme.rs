//! How a provider proves itself: the interface, and the list of known ones.
//!
//! A scheme is asked twice. [`Scheme::verify`] sees headers and bytes and says whether they are from whoever knows the
//! secret; [`Scheme::read`] is asked only after that and says which events are in it. Most providers only differ in the
//! first; a chat provider sends several messages in one delivery and writes its own `read`.
//!
//! Everything is passed in, the time as well: the same delivery always gets the same verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};

use crate::content::Content;
use crate::endpoint::{Item, Reading, Rules};
use crate::refusal::{Because, Refusal};
use crate::rule::Rule;
use crate::secret::{BadSecret, Secret};
use crate::{bearer, github, hmac, open, slack, standard, stripe};

/// A request as it arrived.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// `POST`, as a rule.
    pub method: &'a Method,
    /// Path and query, as the server saw them.
    pub target: &'a str,
    /// The segment of the path beyond the endpoint's own address, as it was sent, for schemes that take their token there.
    pub rest: Option<&'a str>,
    /// As they came.
    pub headers: &'a HeaderMap,
    /// As it came, byte for byte: signatures are over these.
    pub body: &'a [u8],
}

impl<'a> Delivery<'a> {
    /// A header that must be there once. Twice is a trick: two readers may take two of them for the one.
    pub fn header(&self, name: &str, missing: Because) -> Result<&'a str, Refusal> {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next().filter(|value| !value.is_empty()) else {
            return Err(Refusal::new(missing, format!("the header {name} is missing or empty")));
        };
        let malformed = match missing {
            Because::MissingSignature => Because::MalformedSignature,
            _ => Because::MalformedHeader,
        };
        if values.next().is_some() {
            return Err(Refusal::new(malformed, format!("the header {name} is there twice")));
        }
        let unreadable = |_| Refusal::new(malformed, format!("the header {name} is not plain text"));
        Ok(value.to_str().map_err(unreadable)?.trim())
    }
}

/// What a delivery is checked with.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// Any of them will do: the new one and the old one, while a secret is changed.
    pub secrets: &'a [Secret],
    /// The words that prove a question before the first delivery, of schemes that have such ones.
    pub verify: &'a [Secret],
    /// Seconds since 1970, when the delivery arrived.
    pub now: i64,
    /// How far its own time may be from that.
    pub tolerance: Duration,
    /// Under which address the provider knows the endpoint, for those that sign it.
    pub public_url: Option<&'a str>,
}

impl Check<'_> {
    /// Judges the time that was signed with a delivery. Exactly the tolerance is still good.
    pub fn time(&self, text: &str, header: &str) -> Result<i64, Refusal> {
        let digits = !text.is_empty() && text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
        let Some(sent) = text.parse::<i64>().ok().filter(|_| digits) else {
            let detail = format!("the time in {header} is not a number of seconds");
            return Err(Refusal::new(Because::MalformedHeader, detail));
        };
        let tolerance = i64::try_from(self.tolerance.as_secs()).unwrap_or(i64::MAX);
        let age = self.now.saturating_sub(sent);
        if age > tolerance {
            let detail = format!("it was sent {age} s ago, and {tolerance} s are allowed");
            return Err(Refusal::new(Because::Stale, detail));
        }
        if age < tolerance.saturating_neg() {
            let ahead = age.saturating_neg();
            let detail = format!(
                "it says it was sent {ahead} s in the future, and {tolerance} s are allowed: is this machine's clock right?"
            );
            return Err(Refusal::new(Because::Future, detail));
        }
        Ok(sent)
    }

    /// Whether one of the signatures is that of the signed text with one of the secrets. All pairs are tried, so that the
    /// time it takes does not tell which one it was.
    pub fn any(&self, signatures: &[Vec<u8>], sign: impl Fn(&Secret) -> Vec<u8>) -> Result<usize, Refusal> {
        let mut found = None;
        for (number, secret) in self.secrets.iter().enumerate() {
            let right = Secret::new(sign(secret));
            for signature in signatures {
                if right.is(signature) {
                    found = found.or(Some(number));
                }
            }
        }
        found.ok_or_else(|| {
            let detail = match self.secrets.len() {
                1 => "the signature is not that of these bytes with our secret".to_owned(),
                n => format!("the signature is not that of these bytes with any of our {n} secrets"),
            };
            Refusal::new(Because::BadSignature, detail)
        })
    }
}

/// How strong the proof of a scheme is; shown beside the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The body is signed: nobody else could have written it.
    Signed,
    /// The sender knows a word; whoever has seen one delivery knows it, too.
    Bearer,
    /// Nothing: anybody can send anything.
    None,
}

impl Proof {
    /// The word in the inspector.
    pub fn as_str(self) -> &'static str {
        match self {
            Proof::Signed => "signed",
            Proof::Bearer => "bearer, not signed",
            Proof::None => "unsigned",
        }
    }
}

/// What a provider that asks for a sign of life is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// Sent as plain text.
    pub answer: String,
}

/// What a delivery that was taken is answered with, always as 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// What became of it, as JSON.
    Account,
    /// Nothing: some show the answer to their users.
    Nothing,
    /// Always this, for those that act on the answer.
    Text {
        /// Its content type.
        media: &'static str,
        /// The whole body.
        text: &'static str,
    },
}

/// A provider's way to prove itself and to pack its events. One value serves one endpoint.
pub trait Scheme: fmt::Debug + Send + Sync {
    /// What `scheme = "…"` says.
    fn name(&self) -> &'static str;

    /// What a delivery of this scheme is worth: how the inspector and the check of addresses call it.
    fn proof(&self) -> Proof {
        Proof::Signed
    }

    /// Makes a secret of what the operator wrote, or says what is wrong with it.
    fn secret(&self, text: &str) -> Result<Secret, BadSecret> {
        if text.len() < SECRET_BYTES_MIN {
            return Err(BadSecret(format!(
                "it has {} bytes; a secret that nobody guesses has {SECRET_BYTES_MIN} or more",
                text.len()
            )));
        }
        Ok(Secret::new(text))
    }

    /// Whether the delivery is from somebody who knows a secret; the number of the secret that it was.
    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal>;

    /// A request that only asks whether somebody is here, such as a GET with a challenge. It proves itself in its own way.
    fn greet(&self, _delivery: &Delivery<'_>, _check: &Check<'_>) -> Option<Result<Handshake, Refusal>> {
        None
    }

    /// What is in it. The default: one event, by the rules of the endpoint.
    fn read(&self, delivery: &Delivery<'_>, rules: &Rules) -> Result<Reading, Refusal> {
        let content = Content::of(delivery)?;
        Ok(Reading::Items(vec![Item::Event(rules.event(delivery, &content)?)]))
    }

    /// Where the id stands unless the endpoint says otherwise.
    fn usual_id(&self) -> Option<Rule> {
        None
    }

    /// Headers that travel with the event unless the endpoint says otherwise.
    fn usual_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Headers and query parameters that are as good as the secret, so they are not kept.
    fn confidential(&self) -> Vec<String> {
        vec!["authorization".to_owned()]
    }

    /// The body without what is as good as the secret, for what is kept of a delivery; nothing if all of it may be kept.
    fn without_secrets(&self, _body: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// What a delivery that was taken is answered with.
    fn answer(&self) -> Answer {
        Answer::Account
    }

    /// Whether its `read` knows whose event it is, what its id is and what of it is kept. Then the endpoint has no rules for
    /// these, and may name a flow.
    fn finds_keys(&self) -> bool {
        false
    }

    /// Whether the address under which the provider knows the endpoint is signed, too.
    fn needs_public_url(&self) -> bool {
        false
    }

    /// Whether a question before the first delivery is proven by a word of its own ([`Check::verify`]).
    fn has_verify_token(&self) -> bool {
        false
    }

    /// Whether its token may stand in the path, as one segment more than the endpoint's address has ([`Delivery::rest`]).
    fn takes_path_token(&self) -> bool {
        false
    }

    /// Headers that make this body a delivery of this provider, for trying an endpoint out.
    fn sign(&self, _secret: &Secret, _id: &str, _now: i64, _body: &[u8]) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// 16 characters of a random text have more than 64 bits.
const SECRET_BYTES_MIN: usize = 16;

/// The schemes that endpoints can name.
#[derive(Clone)]
pub struct Schemes(BTreeMap<&'static str, Arc<dyn Scheme>>);

impl Schemes {
    /// Those of this crate; `hmac` and `bearer` as they are without settings of their own.
    pub fn built_in() -> Self {
        let mut schemes = Schemes(BTreeMap::new());
        schemes.add(Arc::new(standard::Standard));
        schemes.add(Arc::new(github::GitHub));
        schemes.add(Arc::new(stripe::Stripe));
        schemes.add(Arc::new(slack::Slack));
        schemes.add(Arc::new(hmac::Hmac::default()));
        schemes.add(Arc::new(bearer::Bearer::default()));
        schemes.add(Arc::new(open::Open));
        schemes
    }

    /// Adds a scheme of an application; one of the same name is replaced.
    pub fn add(&mut self, scheme: Arc<dyn Scheme>) {
        let name = scheme.name();
        self.0.insert(name, scheme);
    }

    /// The scheme of this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Scheme>> {
        self.0.get(name).cloned()
    }

    /// All names, for errors and documentation.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.keys().copied().collect()
    }
}

impl Default for Schemes {
    fn default() -> Self {
        Schemes::built_in()
    }
}

impl fmt::Debug for Schemes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schemes").field(&self.names()).finish()
    }
}
