//! What pull workers send and receive.

use std::collections::BTreeMap;
use std::time::Duration;

use quell::Outcome;
use quell::quell_core::attempt::AttemptReport;
use quell::quell_core::batch::{Batch, RunId};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::outcome::VerdictKind;
use quell::quell_core::source::{FaultKind, SourceFault};
use quell::quell_core::store::HoldAnswer;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::{Answer, Problem};

/// What a worker would like to work on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBody {
    /// Only these; every queue that is pulled when it is left out.
    #[serde(default)]
    pub(crate) queues: Vec<String>,
    /// The worker's name, shown to people.
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) worker: String,
    /// Runs at the most, each of another key; 1 unless it is said.
    #[schema(minimum = 1, maximum = 100)]
    pub(crate) max: Option<usize>,
    /// How long to wait for something to do; more than 55 s means 55 s.
    pub(crate) wait_ms: Option<u64>,
    /// In place of the queue's lease.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub(crate) lease_ms: Option<u64>,
    /// Chosen by the worker: repeating it returns the runs it got that are still held, and takes no others.
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) claim_id: Option<String>,
    #[schema(max_length = 128)]
    pub(crate) tenant: Option<String>,
}

/// Runs that are now the worker's.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Claims<'a> {
    pub(crate) claims: &'a [Batch],
    /// The store's clock: leases are measured by it.
    pub(crate) now: Timestamp,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendBody {
    pub(crate) token: u64,
    /// In place of the lease that the claim had.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub(crate) lease_ms: Option<u64>,
    /// Also pass the gate: from here on newer events do not interrupt.
    #[serde(default)]
    pub(crate) hold: bool,
}

/// A lease that was kept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Extended)]
pub(crate) struct Extension {
    pub(crate) lease_until: Timestamp,
    pub(crate) head_seq: u64,
    /// Events that arrived for the next run.
    pub(crate) newer: u64,
    /// Newer events want the worker to stop: settle as `interrupted`.
    pub(crate) interrupt: bool,
    /// An operator wants the worker to stop: any end but `succeeded` is the cancellation.
    pub(crate) cancel: bool,
    /// What the gate said, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<HoldAnswer>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldBody {
    pub(crate) token: u64,
    /// The envelope's `head_seq`: pass only if nothing newer has arrived since.
    pub(crate) if_head: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HoldReply {
    pub(crate) answer: HoldAnswer,
    pub(crate) state: RunState,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepBody {
    pub(crate) token: u64,
    /// The result, up to 256 KiB.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    pub(crate) value: Option<serde_json::Value>,
    /// Record the intent, before something is done that must not be done twice.
    #[serde(default)]
    pub(crate) begin: bool,
}

/// `null` is a value, too.
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(from).map(Some)
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepReply {
    /// `new`, `begun`, `unknown` (an earlier attempt meant to do it, and nobody knows whether it did) or `done`.
    pub(crate) state: &'static str,
    #[schema(value_type = Option<Object>)]
    pub(crate) value: Option<serde_json::Value>,
    /// This call has recorded it.
    pub(crate) stored: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Holder {
    pub(crate) token: u64,
}

/// How an attempt ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleBody {
    pub(crate) token: u64,
    pub(crate) outcome: VerdictKind,
    /// With `retry`: in place of the queue's backoff, at most 7 days.
    pub(crate) retry_after_ms: Option<u64>,
    /// Why, for people; the last 4 KiB are kept.
    pub(crate) error: Option<String>,
    /// Succeed only if nothing newer than this has arrived; otherwise the answer is 409 `superseded`.
    pub(crate) if_head: Option<u64>,
    /// A small JSON for whoever waits for the run.
    #[schema(value_type = Option<Object>)]
    pub(crate) result: Option<serde_json::Value>,
    /// Named numbers, 32 at the most.
    #[serde(default)]
    pub(crate) usage: BTreeMap<String, f64>,
    /// The run's source is to blame.
    pub(crate) source_fault: Option<SourceFaultBody>,
    /// No request was made to the run's source: its token goes back.
    #[serde(default)]
    pub(crate) source_unused: bool,
    /// What was asked and answered, for people who look at the attempt; kept for the latest 20 of a run.
    pub(crate) report: Option<AttemptReport>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceFaultBody {
    /// For people: a run asks one source, and the store knows which.
    #[serde(default)]
    #[allow(dead_code, reason = "taken, because clients name it")]
    pub(crate) source: Option<String>,
    pub(crate) kind: Fault,
    pub(crate) retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    TimeOut,
    Connection,
    TooManyRequests,
    ServerError,
    Other,
}

impl From<Fault> for FaultKind {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::TimeOut => FaultKind::TimeOut,
            Fault::Connection => FaultKind::Connection,
            Fault::TooManyRequests => FaultKind::TooManyRequests,
            Fault::ServerError => FaultKind::ServerError,
            Fault::Other => FaultKind::Other,
        }
    }
}

impl SettleBody {
    /// As a handler in this process would have said it.
    pub(crate) fn outcome(self) -> Answer<Outcome> {
        let wrong = |text: &str, place: &str| Err(Problem::bad_request(text).at(place.to_owned()));
        if self.retry_after_ms.is_some() && self.outcome != VerdictKind::Retry {
            return wrong("retry_after_ms goes with outcome `retry`", "retry_after_ms");
        }
        if self.if_head.is_some() && self.outcome != VerdictKind::Succeeded {
            return wrong("if_head goes with outcome `succeeded`", "if_head");
        }
        if self.source_unused && self.source_fault.is_some() {
            return wrong("a source that was not asked has no fault", "source_unused");
        }
        if self.usage.values().any(|amount| !amount.is_finite()) {
            return wrong("usage is finite numbers", "usage");
        }
        // Not every store keeps a NUL, and an end of a run is not refused for its text.
        let error = self.error.unwrap_or_default().replace('\0', "\u{fffd}");
        let mut outcome = match self.outcome {
            VerdictKind::Succeeded => Outcome::succeeded(),
            VerdictKind::Retry => match self.retry_after_ms {
                Some(ms) => Outcome::retry_after(Duration::from_millis(ms), error.clone()),
                None => Outcome::retry(error.clone()),
            },
            VerdictKind::Failed => Outcome::failed(error.clone()),
            VerdictKind::Release => Outcome::release(error.clone()),
            VerdictKind::Interrupted => Outcome::interrupted(),
            VerdictKind::Superseded => Outcome::superseded(),
        };
        outcome.error = Some(error).filter(|text| !text.is_empty());
        outcome.result = self.result;
        outcome.usage = self.usage;
        outcome.if_head = self.if_head;
        outcome.report = self.report.map(|report| Box::new(report.bounded()));
        if let Some(fault) = self.source_fault {
            let mut told = SourceFault::new(fault.kind.into());
            told.retry_after = fault.retry_after_ms.map(Duration::from_millis);
            outcome = outcome.source_fault(told);
        } else if self.source_unused {
            outcome = outcome.source_unused();
        }
        Ok(outcome)
    }
}

/// What became of the run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Settlement {
    pub(crate) run_id: RunId,
    pub(crate) state: RunState,
    /// When it is due again, for retry, release and giving way.
    pub(crate) next_at: Option<Timestamp>,
    /// The same answer as before, because the call was repeated.
    pub(crate) repeated: bool,
}
