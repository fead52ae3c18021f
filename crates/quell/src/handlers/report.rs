//! What work outside this process says of itself besides its verdict: one JSON object with `result`, `usage`,
//! `retry_after_ms`, `source_fault` or `source_unused`. A program prints it as its last line, an HTTP service answers with
//! it. Other fields and other texts are no mistake: not everybody who answers means a report.

use std::time::Duration;

use serde_json::{Map, Value};

use quell_core::limits;
use quell_core::outcome::{Outcome, Verdict};
use quell_core::source::{FaultKind, SourceFault, SourceReport};

/// Adds what the text reports. A text that is not a report changes nothing.
pub(super) fn add(outcome: Outcome, text: &str) -> Outcome {
    match serde_json::from_str(text) {
        Ok(Value::Object(report)) => with(outcome, report),
        _ => outcome,
    }
}

fn with(mut outcome: Outcome, mut report: Map<String, Value>) -> Outcome {
    if let Some(Value::Object(usage)) = report.get("usage") {
        outcome.usage =
            usage.iter().filter_map(|(name, amount)| Some((name.clone(), amount.as_f64()?))).collect();
    }
    if let (Verdict::Retry { after }, Some(wish)) =
        (&mut outcome.verdict, report.get("retry_after_ms").and_then(Value::as_u64))
    {
        *after = Some(Duration::from_millis(wish).min(limits::RETRY_AFTER_MAX));
    }
    outcome.source = match (report.get("source_fault"), report.get("source_unused")) {
        (None | Some(Value::Null | Value::Bool(false)), Some(Value::Bool(true))) => SourceReport::Unused,
        (Some(Value::Bool(false)), _) => SourceReport::Fine,
        (None | Some(Value::Null), _) => outcome.source,
        (Some(fault), _) => SourceReport::Fault(source_fault(fault)),
    };
    outcome.result = report.remove("result");
    outcome.bounded()
}

/// `{"kind": "time_out", "retry_after_ms": 30000}`, or just `true`. A kind that is not known is still a fault.
fn source_fault(report: &Value) -> SourceFault {
    let kind = report.get("kind").cloned().and_then(|kind| serde_json::from_value(kind).ok());
    let fault = SourceFault::new(kind.unwrap_or(FaultKind::Other));
    match report.get("retry_after_ms").and_then(Value::as_u64) {
        Some(after) => fault.retry_after(Duration::from_millis(after)),
        None => fault,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_said_of_the_source_replaces_what_was_assumed() {
        let assumed = SourceReport::Fault(SourceFault::new(FaultKind::ServerError));
        let said = |report: Value| {
            let outcome = Outcome { source: assumed, ..Outcome::retry("503") };
            add(outcome, &report.to_string()).source
        };
        let other = SourceFault::new(FaultKind::Other);
        let slow = SourceFault::new(FaultKind::TimeOut).retry_after(Duration::from_secs(30));
        for (report, expected) in [
            (json!({}), assumed),
            (json!({ "source_fault": null }), assumed),
            (json!({ "source_unused": false }), assumed),
            (json!({ "source_fault": false }), SourceReport::Fine),
            (json!({ "source_unused": true }), SourceReport::Unused),
            (json!({ "source_fault": false, "source_unused": true }), SourceReport::Unused),
            (json!({ "source_fault": true, "source_unused": true }), SourceReport::Fault(other)),
            (json!({ "source_fault": { "kind": "strange" } }), SourceReport::Fault(other)),
            (
                json!({ "source_fault": { "kind": "time_out", "retry_after_ms": 30_000 } }),
                SourceReport::Fault(slow),
            ),
        ] {
            assert_eq!(said(report.clone()), expected, "{report}");
        }
    }

    #[test]
    fn only_a_json_object_is_a_report() {
        for text in ["", "ok", "[1]", "7", "\"result\"", "{\"result\":1} x", "<html>"] {
            assert_eq!(add(Outcome::succeeded(), text), Outcome::succeeded(), "{text}");
        }
    }
}
