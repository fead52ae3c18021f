//! The handler `http`: each batch is sent to a service, as one signed POST of its envelope.
//!
//! The signature is that of Standard Webhooks, one for each secret, so that a secret can be changed while both are known.
//! `webhook-id` names run and batch and stays the same over all attempts, the `quell-…` headers carry token and range:
//! enough for a receiver that must not do a thing twice, or not after somebody newer has.
//!
//! The status is the answer: 2xx succeeded, 409 gives way to newer events, 408, 425, 429 and 5xx are tried again (when
//! `Retry-After` says so), every other one has failed. Redirects are never followed: where batches go is decided by the
//! configuration and by nobody else. No answer (a time-out, a lost connection) is tried again, and so is a forbidden
//! address: nothing was sent, and the operator can mend it. A JSON object in the answer is a report (`report.rs`).
//!
//! The promise: when the future is dropped the connection is closed, so a run that lost its lease or is not wanted any
//! more does not go on in the dark as far as we can help it. What the service does after that, the token tells apart.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use quell_core::attempt::AttemptReport;
use quell_core::clock::Timestamp;
use quell_core::outcome::{Outcome, Verdict};
use quell_core::source::{FaultKind, SourceFault};
use quell_fetch::{Call, CallError, Excess, Http, Reply, retry_after};
use quell_webhook::{ID, SIGNATURE, Scheme, Secret, Standard, TIMESTAMP};

use super::{HandlerError, report};
pub use crate::config::PushSettings;
use crate::config::SecretSource;
use crate::handler::{Handler, Run};
use crate::outbound::Outbound;
use crate::secrets::{self, SecretError};
use crate::trace::{self, Trace};

/// The run's id.
pub const RUN: &str = "quell-run";
/// The queue's name.
pub const QUEUE: &str = "quell-queue";
/// Percent-encoded: a key may be any text.
pub const KEY: &str = "quell-key";
/// Percent-encoded; only when there is one.
pub const TENANT: &str = "quell-tenant";
/// 1 for the first attempt of the run.
pub const ATTEMPT: &str = "quell-attempt";
/// Larger for every later claim of the key: a receiver that keeps the largest can refuse what comes too late.
pub const TOKEN: &str = "quell-token";
/// The first and the last sequence number of the batch, `11-12`.
pub const SEQ: &str = "quell-seq";

/// A service cannot make a key wait longer than this by `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// How much of an answer's text an error repeats.
const TEXT_BYTES_MAX: usize = 1024;
/// What needs no encoding anywhere in a URL.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sends each batch to a service.
#[derive(Debug)]
pub struct Push {
    url: String,
    /// The URL for people.
    target: String,
    timeout: Duration,
    secrets: Vec<Secret>,
    http: Http,
}

impl Push {
    /// With a client and secrets of the caller's; without secrets nothing is signed. The client's guard judges the URL at
    /// each request.
    pub fn new(settings: &PushSettings, secrets: Vec<Secret>, http: Http) -> Self {
        let target = settings.target();
        Push { url: settings.url.clone(), target, timeout: settings.timeout, secrets, http }
    }

    /// As a configuration says: the secrets are read now, and an address that is written in the URL is meant.
    pub fn from_settings(
        settings: &PushSettings,
        env: &BTreeMap<String, String>,
        outbound: &Outbound,
    ) -> Result<Self, HandlerError> {
        let secrets = settings.secrets.iter().map(|source| secret(source, env)).collect::<Result<_, _>>()?;
        let http =
            outbound.http().map_err(|error| HandlerError::Client(error.to_string()))?.meaning(&settings.url);
        http.admit(&settings.url)?;
        Ok(Push::new(settings, secrets, http))
    }

    fn call(&self, run: &Run, body: String) -> Call {
        Call {
            headers: self.headers(run, body.as_bytes()),
            ..Call::new(Method::POST, &self.url).body(body).timeout(self.timeout).excess(Excess::Drop)
        }
    }

    fn headers(&self, run: &Run, body: &[u8]) -> HeaderMap {
        let (batch, trace) = (run.batch(), Trace::for_handler(run));
        let encoded = |text: &str| utf8_percent_encode(text, UNRESERVED).to_string();
        let (id, now) =
            (format!("{}-{}", run.run_id(), run.revision()), run.wall().as_millis().div_euclid(1000));
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &str| {
            // Only what came with an event can be no header; then it is left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set("content-type", "application/json");
        set(RUN, &run.run_id().to_string());
        set(QUEUE, run.queue().as_str());
        set(KEY, &encoded(run.key().as_str()));
        if !run.tenant().is_none() {
            set(TENANT, &encoded(run.tenant().as_str()));
        }
        set(ATTEMPT, &run.attempt().to_string());
        set(TOKEN, &run.token().to_string());
        set(SEQ, &format!("{}-{}", batch.lo(), batch.hi()));
        set(trace::PARENT, &trace.parent);
        if let Some(state) = &trace.state {
            set(trace::STATE, state);
        }
        set(ID, &id);
        set(TIMESTAMP, &now.to_string());
        if !self.secrets.is_empty() {
            set(SIGNATURE, &Standard::signatures(&self.secrets, &id, now, body));
        }
        headers
    }
}

#[async_trait]
impl Handler for Push {
    async fn handle(&self, run: &Run) -> Outcome {
        let body = match run.envelope() {
            Ok(text) => text,
            Err(e) => return Outcome::failed(format!("an event of this run is not stored as JSON: {e}")),
        };
        let call = self.call(run, body);
        let mut told =
            AttemptReport { request: Some(format!("POST {}", self.target)), ..AttemptReport::default() };
        let outcome = tokio::select! {
            // In this order, so that work which is already answered is judged by its answer.
            biased;
            result = self.http.call(call) => match result {
                Ok(reply) => {
                    let text = String::from_utf8_lossy(&reply.body);
                    told.status = Some(reply.status.as_u16());
                    told.response = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
                    report::add(by_status(&reply, &text, system_time(run.wall())), &text)
                }
                Err(error) => unanswered(&error),
            },
            () = run.interrupted().cancelled() => Outcome::interrupted(),
        };
        outcome.with_report(told.bounded())
    }
}

/// Reads a signing secret from where the settings say.
fn secret(source: &SecretSource, env: &BTreeMap<String, String>) -> Result<Secret, SecretError> {
    let text = secrets::read(source, env)?;
    if secrets::readable_by_all(source) {
        tracing::warn!(place = %source, "everybody on this machine can read this secret");
    }
    let unusable =
        |bad| SecretError { place: source.to_string(), problem: format!("is no signing secret: {bad}") };
    Standard.secret(&text).map_err(unusable)
}

fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0))
}

fn by_status(reply: &Reply, text: &str, now: SystemTime) -> Outcome {
    let code = reply.status.as_u16();
    let error = || match beginning(text) {
        said if said.is_empty() => format!("the service answered {}", reply.status),
        said => format!("the service answered {}: {said}", reply.status),
    };
    match code {
        200..=299 => Outcome::succeeded(),
        300..=399 => Outcome::failed(format!("{}; redirects are never followed", error())),
        // The text is kept for the case that there is nothing to give way to.
        409 => Outcome { error: Some(error()), ..Outcome::superseded() },
        408 | 425 | 429 | 500..=599 => {
            let after = retry_after(&reply.headers, now).map(|wait| wait.min(RETRY_AFTER_MAX));
            let outcome = Outcome { verdict: Verdict::Retry { after }, ..Outcome::retry(error()) };
            match SourceFault::of_status(code) {
                Some(fault) => outcome.source_fault(SourceFault { retry_after: after, ..fault }),
                None => outcome,
            }
        }
        _ => Outcome::failed(error()),
    }
}

fn unanswered(error: &CallError) -> Outcome {
    let outcome = Outcome::retry(error.to_string());
    match error {
        CallError::TimedOut(_) => outcome.source_fault(SourceFault::new(FaultKind::TimeOut)),
        CallError::Connect(_) | CallError::Broken(_) => {
            outcome.source_fault(SourceFault::new(FaultKind::Connection))
        }
        CallError::Refused(_) | CallError::Invalid(_) => {
            Outcome::retry(format!("nothing was sent: {error}")).source_unused()
        }
        CallError::TooLarge { .. } => outcome,
    }
}

/// The beginning of what a service wrote, in one line: without line breaks, control characters and NUL, which no store
/// keeps in a text.
fn beginning(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect();
    let mut line = String::new();
    for word in plain.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > TEXT_BYTES_MAX {
            line.truncate(line.floor_char_boundary(TEXT_BYTES_MAX));
            line.push('…');
            break;
        }
    }
    line
}
