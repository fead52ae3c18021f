//! The way back: how a reply is sent by WATI, Twilio or Meta, and what is known of it afterwards.
//!
//! None of the three takes a key that would make a second call harmless. So the one thing that matters is to tell three
//! cases apart ([`Sending`]): it was sent; it was certainly not sent, and may be tried again or not; nobody knows. A call
//! that got no answer, or one that says nothing of what became of it, is of the third kind and is never simply repeated.
//! [`Provider::reconcile`] then asks the provider what it has sent, where it can be asked.
//!
//! A text is cut to what the provider takes ([`Provider::fit`]): exactly one message answers a batch.

mod fit;
mod meta;
mod twilio;
mod wati;

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use quell::fetch::{Call, CallError, Http, Reply, retry_after};
use quell::quell_core::clock::Timestamp;
use serde_json::Value;

use crate::message::{Channel, Message};
use crate::words::{line, wall};

pub use meta::MetaAccount;
pub use twilio::TwilioAccount;
pub use wati::WatiAccount;

/// From the first byte sent to the last byte read, unless a setting says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

/// A provider cannot make a customer wait longer than this by `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// How far the clock of a provider may be behind ours when messages are compared by their time.
const CLOCK_SLACK: Duration = Duration::from_secs(5);

/// How many of the latest messages are looked through: more than one conversation has within a minute, few enough for
/// the smallest cap on answers.
const LISTED: usize = 10;

/// An account by which replies leave.
#[derive(Debug, Clone, PartialEq)]
pub enum Provider {
    Wati(WatiAccount),
    Twilio(TwilioAccount),
    Meta(MetaAccount),
}

/// Who gets a reply, and what it leaves from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The phone number in digits, or what the provider knows the customer by when it shows none.
    pub customer: String,
    /// Our number or the provider's id of it; without one the account's own.
    pub from: Option<String>,
}

impl Recipient {
    /// Whoever wrote this message, from where it was written to.
    pub fn of(message: &Message) -> Self {
        Recipient { customer: message.customer.clone(), from: message.to.clone() }
    }

    /// The digits of a phone number, however it is written; none for a name.
    fn number(&self) -> Option<&str> {
        let digits = self.customer.strip_prefix('+').unwrap_or(&self.customer);
        is_number(digits).then_some(digits)
    }
}

/// What is known of a reply after it was given to the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sending {
    Sent {
        /// The provider's id of the message, where it tells.
        id: Option<String>,
    },
    /// It is certain that nothing was sent.
    NotSent {
        why: String,
        /// Whether the same may be tried again, and after which time if the provider says; none means never.
        again: Option<Option<Duration>>,
        /// Whether it is the provider's fault rather than ours.
        source_fault: bool,
    },
    /// It may have been sent.
    Unknown { why: String },
}

impl Sending {
    fn never(why: impl Into<String>) -> Self {
        Sending::NotSent { why: why.into(), again: None, source_fault: false }
    }

    fn later(why: impl Into<String>, after: Option<Duration>) -> Self {
        let after = after.map(|after| after.min(RETRY_AFTER_MAX));
        Sending::NotSent { why: why.into(), again: Some(after), source_fault: true }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Sending::Unknown { why: why.into() }
    }
}

/// What a provider says of a reply that may have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled {
    Sent {
        id: Option<String>,
    },
    NotSent,
    /// It cannot be asked, or does not say.
    Unknown {
        why: String,
    },
}

impl Reconciled {
    fn unknown(why: impl Into<String>) -> Self {
        Reconciled::Unknown { why: why.into() }
    }
}

impl Provider {
    pub fn channel(&self) -> Channel {
        match self {
            Provider::Wati(_) => Channel::Wati,
            Provider::Twilio(_) => Channel::Twilio,
            Provider::Meta(_) => Channel::Meta,
        }
    }

    /// The text as it is sent: cut near the end of a word when it is longer than the provider takes.
    pub fn fit<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self {
            Provider::Wati(_) => fit::fit(text, wati::TEXT_MAX, Some(wati::ENCODED_MAX)),
            Provider::Twilio(_) => fit::fit(text, twilio::TEXT_MAX, None),
            Provider::Meta(_) => fit::fit(text, meta::TEXT_MAX, None),
        }
    }

    /// Sends one message. `own_id` is what we call it; a provider that can gives it back with its reports.
    pub async fn send(&self, http: &Http, to: &Recipient, text: &str, own_id: &str) -> Sending {
        let text = self.fit(text);
        match self {
            Provider::Wati(account) => account.send(http, to, &text).await,
            Provider::Twilio(account) => account.send(http, to, &text).await,
            Provider::Meta(account) => account.send(http, to, &text, own_id).await,
        }
    }

    /// Asks whether this text has been sent since then. A request that is still on its way is not on any list: leave it
    /// the time of a call before asking.
    pub async fn reconcile(&self, http: &Http, to: &Recipient, text: &str, since: Timestamp) -> Reconciled {
        let text = self.fit(text);
        let since = Timestamp::from_millis(since.as_millis() - millis(CLOCK_SLACK));
        match self {
            Provider::Wati(account) => account.reconcile(http, to, &text, since).await,
            Provider::Twilio(account) => account.reconcile(http, to, &text, since).await,
            Provider::Meta(_) => Reconciled::unknown("Meta has no list of sent messages"),
        }
    }

    /// Shows the customer that a reply to this message is being written, where the provider can. Nobody waits for it and
    /// nothing depends on it.
    pub async fn typing(&self, http: &Http, to: &Recipient, message_id: &str) {
        if let Provider::Meta(account) = self {
            account.typing(http, to, message_id).await;
        }
    }
}

/// Makes a call to an address that stands in the operator's configuration, and so is meant.
async fn made(http: &Http, base: &str, call: Call) -> Result<Reply, CallError> {
    http.meaning(base).call(call).await
}

/// What it means for a reply that its call got no answer.
fn unanswered(error: &CallError) -> Sending {
    match error {
        CallError::Connect(_) => Sending::later(error.to_string(), None),
        CallError::Refused(_) | CallError::Invalid(_) => Sending::never(format!("nothing was sent: {error}")),
        CallError::TimedOut(_) | CallError::Broken(_) | CallError::TooLarge { .. } => {
            Sending::unknown(error.to_string())
        }
    }
}

/// What a status without success means where nothing else is said. `said` is the provider's own reason.
fn by_status(reply: &Reply, said: &str) -> Sending {
    let status = reply.status;
    let why = match line(said) {
        said if said.is_empty() => format!("the provider answered {status}"),
        said => format!("the provider answered {status}: {said}"),
    };
    let wait = retry_after(&reply.headers, wall());
    match status.as_u16() {
        429 => Sending::later(why, wait),
        503 if wait.is_some() => Sending::later(why, wait),
        // It has not read the whole request, or will not yet.
        408 | 425 => Sending::later(why, None),
        300..=499 => Sending::never(why),
        _ => Sending::unknown(why),
    }
}

/// A list of the latest messages, newest first or not.
struct Listed<'a> {
    id: Option<&'a str>,
    ours: bool,
    text: &'a str,
    at: Option<Timestamp>,
}

/// Looks for a text among the latest messages. It has not been sent if the list reaches back to before it could have been,
/// or is a whole one.
fn found(listed: &[Listed<'_>], text: &str, since: Timestamp) -> Reconciled {
    let same = |item: &&Listed<'_>| {
        item.ours && item.text.trim() == text.trim() && item.at.is_some_and(|at| at >= since)
    };
    if let Some(item) = listed.iter().find(same) {
        return Reconciled::Sent { id: item.id.map(str::to_owned) };
    }
    if listed.iter().any(|item| item.at.is_none()) {
        return Reconciled::unknown("the list of messages has no times");
    }
    let reaches_back =
        listed.len() < LISTED || listed.iter().any(|item| item.at.is_some_and(|at| at < since));
    if reaches_back {
        Reconciled::NotSent
    } else {
        Reconciled::unknown("the list of messages does not reach back far enough")
    }
}

/// The JSON of a list, or why there is none.
fn list_of(answer: Result<Reply, CallError>) -> Result<Value, Reconciled> {
    let reply = answer.map_err(|error| Reconciled::unknown(error.to_string()))?;
    if reply.status != StatusCode::OK {
        return Err(Reconciled::unknown(format!("the list of messages: {}", reply.status)));
    }
    serde_json::from_slice(&reply.body).map_err(|_| Reconciled::unknown("the list of messages is not JSON"))
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn json_type(call: Call) -> Call {
    call.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str, ours: bool, at: i64) -> Listed<'_> {
        Listed { id: Some("7"), ours, text, at: Some(Timestamp::from_millis(at)) }
    }

    #[test]
    fn only_our_own_text_of_that_time_is_the_reply() {
        let since = Timestamp::from_millis(1000);
        let found = |items: &[Listed<'_>]| found(items, "Yes", since);
        assert_eq!(found(&[listed("Yes ", true, 1000)]), Reconciled::Sent { id: Some("7".into()) });
        assert_eq!(found(&[listed("Yes", true, 999)]), Reconciled::NotSent);
        assert_eq!(found(&[listed("Yes", false, 2000)]), Reconciled::NotSent);
        assert_eq!(found(&[]), Reconciled::NotSent);
        let full: Vec<_> = (0..LISTED).map(|_| listed("No", true, 2000)).collect();
        assert!(matches!(found(&full), Reconciled::Unknown { .. }));
        let timeless = Listed { at: None, ..listed("Yes", true, 0) };
        assert!(matches!(found(&[timeless]), Reconciled::Unknown { .. }));
    }

    #[test]
    fn what_is_not_certain_is_unknown() {
        let status = |status: u16, wait: Option<&'static str>| {
            let mut headers = http::HeaderMap::new();
            if let Some(wait) = wait {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(wait));
            }
            by_status(&Reply { status: StatusCode::from_u16(status).unwrap(), headers, body: vec![] }, "")
        };
        for code in [301, 400, 401, 403, 404, 409, 422] {
            assert!(matches!(status(code, None), Sending::NotSent { again: None, .. }), "{code}");
        }
        for code in [500, 502, 503, 504] {
            assert!(matches!(status(code, None), Sending::Unknown { .. }), "{code}");
        }
        let after = |sending| match sending {
            Sending::NotSent { again: Some(after), source_fault: true, .. } => {
                after.map(|after| after.as_secs())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(after(status(429, None)), None);
        assert_eq!(after(status(429, Some("7"))), Some(7));
        assert_eq!(after(status(503, Some("90000"))), Some(3600));
        let without = |error| unanswered(&error);
        assert!(matches!(
            without(CallError::Connect(String::new())),
            Sending::NotSent { again: Some(None), .. }
        ));
        assert!(matches!(without(CallError::Invalid(String::new())), Sending::NotSent { again: None, .. }));
        for error in [CallError::TimedOut(String::new()), CallError::Broken(String::new())] {
            assert!(matches!(without(error), Sending::Unknown { .. }));
        }
    }
}
