//! What a handler may answer, and what is recorded of a failure.
//!
//! An outcome is data, not an error: "try again in a minute" and "this can never work" are answers. Everything here is
//! plain and serialisable, because it outlives the process that produced it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::AttemptReport;
use crate::event::NewEvent;
use crate::limits;
use crate::source::{SourceFault, SourceReport};

/// What becomes of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum Verdict {
    /// Done.
    Succeeded,
    /// Try again: after `after` if the handler knows better than the queue's backoff.
    Retry { after: Option<Duration> },
    /// This can never work: to the dead letter.
    Failed,
    /// Hand it back, the attempt refunded.
    Release,
    /// The holder stopped because newer events interrupted it: merge, refunded.
    Interrupted,
    /// The handler gave way to newer events: merge, refunded; a retry when there are none.
    Superseded,
}

/// A verdict without its details: what the trail keeps, so that a repeated settle is told from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum VerdictKind {
    /// The work is done.
    Succeeded,
    /// Later, as one more attempt.
    Retry,
    /// Never again by itself: the dead letter.
    Failed,
    /// Handed back untouched; the attempt is refunded.
    Release,
    /// Stopped because newer events or an operator wanted it.
    Interrupted,
    /// Out of date: the run starts over with newer events.
    Superseded,
}

impl VerdictKind {
    /// All of them.
    pub const ALL: [VerdictKind; 6] = [
        VerdictKind::Succeeded,
        VerdictKind::Retry,
        VerdictKind::Failed,
        VerdictKind::Release,
        VerdictKind::Interrupted,
        VerdictKind::Superseded,
    ];

    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            VerdictKind::Succeeded => "succeeded",
            VerdictKind::Retry => "retry",
            VerdictKind::Failed => "failed",
            VerdictKind::Release => "release",
            VerdictKind::Interrupted => "interrupted",
            VerdictKind::Superseded => "superseded",
        }
    }
}

impl Verdict {
    /// Which one it is, without its particulars.
    pub fn kind(self) -> VerdictKind {
        match self {
            Verdict::Succeeded => VerdictKind::Succeeded,
            Verdict::Retry { .. } => VerdictKind::Retry,
            Verdict::Failed => VerdictKind::Failed,
            Verdict::Release => VerdictKind::Release,
            Verdict::Interrupted => VerdictKind::Interrupted,
            Verdict::Superseded => VerdictKind::Superseded,
        }
    }
}

/// A handler's whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How the attempt ended.
    pub verdict: Verdict,
    /// Why, for retry, failed and release; kept with the run and shown to people.
    pub error: Option<String>,
    /// A small JSON for whoever waits for the run.
    pub result: Option<serde_json::Value>,
    /// Named numbers: tokens, pages, cents.
    pub usage: BTreeMap<String, f64>,
    /// Succeed only if nothing newer than this sequence number has arrived; otherwise the run gives way.
    pub if_head: Option<u64>,
    /// Follow-up work, stored in the transaction that ends the run and only if it ends.
    pub events: Vec<NewEvent>,
    /// What the attempt has shown of the run's source.
    pub source: SourceReport,
    /// What was asked and answered, for people who look at the attempt.
    pub report: Option<Box<AttemptReport>>,
}

impl Outcome {
    /// The work is done.
    pub fn succeeded() -> Self {
        Outcome {
            verdict: Verdict::Succeeded,
            error: None,
            result: None,
            usage: BTreeMap::new(),
            if_head: None,
            events: Vec::new(),
            source: SourceReport::default(),
            report: None,
        }
    }

    /// Try again after the queue's backoff.
    pub fn retry(error: impl Into<String>) -> Self {
        Outcome { verdict: Verdict::Retry { after: None }, error: Some(error.into()), ..Outcome::succeeded() }
    }

    /// Tried again after this long, whatever the queue's backoff says.
    pub fn retry_after(after: Duration, error: impl Into<String>) -> Self {
        Outcome { verdict: Verdict::Retry { after: Some(after) }, ..Outcome::retry(error) }
    }

    /// Failed for good: the run goes to the dead letter with this text.
    pub fn failed(error: impl Into<String>) -> Self {
        Outcome { verdict: Verdict::Failed, ..Outcome::retry(error) }
    }

    /// Hands the run back untouched: the attempt is refunded, and another worker may take it.
    pub fn release(reason: impl Into<String>) -> Self {
        Outcome { verdict: Verdict::Release, ..Outcome::retry(reason) }
    }

    /// Give way to newer events: batch and newer events become one, the attempt is refunded. Without newer events, or
    /// when the run has given way too often, it is tried again after the queue's backoff.
    pub fn superseded() -> Self {
        Outcome { verdict: Verdict::Superseded, ..Outcome::succeeded() }
    }

    /// Stopped because newer events interrupted the run. A worker says this by itself when it stops a handler.
    pub fn interrupted() -> Self {
        Outcome { verdict: Verdict::Interrupted, ..Outcome::succeeded() }
    }

    /// Succeed only if nothing newer than `head_seq` has arrived: the envelope's, for a handler whose only effect is
    /// its outcome. Otherwise the run gives way to the newer events.
    #[must_use]
    pub fn if_head(mut self, head_seq: u64) -> Self {
        self.if_head = Some(head_seq);
        self
    }

    /// Follow-up work: stored together with the end of the run, or not at all. Its id is `run_id/n`, so a repeated
    /// settlement makes no second one.
    #[must_use]
    pub fn then(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }

    /// The run did not go as it should by the fault of its source: time-outs, lost connections, 429 and 5xx. Enough of
    /// them in a row open its breaker; the run's own verdict is another matter.
    #[must_use]
    pub fn source_fault(mut self, fault: SourceFault) -> Self {
        self.source = SourceReport::Fault(fault);
        self
    }

    /// No request was made to the source: its token goes back.
    #[must_use]
    pub fn source_unused(mut self) -> Self {
        self.source = SourceReport::Unused;
        self
    }

    /// Hand the run back until its source has another token. What is finished is kept as steps; no attempt is counted.
    pub fn starved(reason: impl Into<String>) -> Self {
        Outcome { source: SourceReport::Starved, ..Outcome::release(reason) }
    }

    /// What came of it, for whoever waits and for `quell run`; 64 KiB at the most.
    #[must_use]
    pub fn with_result(mut self, result: serde_json::Value) -> Self {
        self.result = Some(result);
        self
    }

    /// An amount that was used up, such as tokens of a model; shown with the run.
    #[must_use]
    pub fn with_usage(mut self, name: impl Into<String>, amount: f64) -> Self {
        self.usage.insert(name.into(), amount);
        self
    }

    /// What this attempt asked and was answered; kept for the latest attempts of a run and shown with it.
    #[must_use]
    pub fn with_report(mut self, report: AttemptReport) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// Cuts what a handler reports to the limits: a report that is too large never makes a run fail.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.error = self.error.map(|text| keep_tail(&text, limits::ERROR_BYTES_MAX));
        if self.result.as_ref().is_some_and(|r| r.to_string().len() > limits::RESULT_BYTES_MAX) {
            let note =
                format!("the result was larger than {} bytes and was not kept", limits::RESULT_BYTES_MAX);
            self.result = Some(serde_json::json!({ "dropped": note }));
        }
        while self.usage.len() > limits::USAGE_ENTRIES_MAX {
            self.usage.pop_last();
        }
        self
    }
}

/// The end of a text within `max` bytes, at a character boundary: the end of an error says the most.
pub fn keep_tail(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut start = text.len() - max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(start) {
        start += 1;
    }
    format!("…{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_cut_and_never_refused() {
        let long = "é".repeat(10_000);
        let mut outcome = Outcome::failed(long).with_result(serde_json::json!("x".repeat(100_000)));
        for i in 0..100 {
            outcome = outcome.with_usage(format!("n{i:03}"), 1.0);
        }
        let kept = outcome.bounded();
        assert!(
            kept.error.as_ref().is_some_and(|e| e.len() <= limits::ERROR_BYTES_MAX && e.starts_with('…'))
        );
        assert!(kept.result.is_some_and(|r| r["dropped"].is_string()));
        assert_eq!(kept.usage.len(), limits::USAGE_ENTRIES_MAX);
    }

    #[test]
    fn a_short_text_is_kept_whole() {
        assert_eq!(keep_tail("abc", 3), "abc");
        assert_eq!(keep_tail("abcdefgh", 6), "…fgh");
    }
}
