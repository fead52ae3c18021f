//! The attempts of a run: from each claim to what ended it, by the trail, with what the attempt told of itself.
//!
//! The trail knows every attempt; reports are those of the latest ones, found by the token of the claim. Texts in them are
//! gone through by the rules of redaction before anything else sees them.

use quell::quell_core::attempt::ReportedAttempt;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{RunDetail, RunRow, span};
use quell::quell_core::lifecycle::{Change, RunState};
use quell::redact::{RedactRule, redact_text};

use super::payload::Shown;

/// One attempt as the trail tells it.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    token: u64,
    pub(super) worker: String,
    pub(super) from: Timestamp,
    pub(super) took: Option<String>,
    pub(super) end: String,
    pub(super) state: &'static str,
    pub(super) told: Option<Told>,
}

/// What it told of itself, as far as it may be shown.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) request: Option<String>,
    /// `status 503` or `exit code 3`.
    pub(super) answer: Option<String>,
    pub(super) error: Option<String>,
    pub(super) response: Option<String>,
    pub(super) stderr: Option<String>,
}

impl Told {
    fn of(rules: &[RedactRule], reported: &ReportedAttempt) -> Told {
        let hidden = |text: &Option<String>| text.as_deref().map(|text| redact_text(rules, text));
        let report = &reported.report;
        let status = report.status.map(|status| format!("status {status}"));
        // An answer that is JSON is hidden by places, too; a text knows only names.
        let response = report.response.as_deref().map(|text| match serde_json::from_str(text) {
            Ok(value) => match Shown::of(rules, value) {
                shown if shown.hidden => shown.text(),
                _ => text.to_owned(),
            },
            Err(_) => redact_text(rules, text),
        });
        Told {
            request: hidden(&report.request),
            answer: status.or_else(|| report.exit_code.map(|code| format!("exit code {code}"))),
            error: hidden(&reported.error),
            response,
            stderr: hidden(&report.stderr),
        }
    }
}

impl Told {
    /// Beyond what stands in its heading.
    pub(super) fn says_no_more(&self) -> bool {
        self.error.is_none() && self.response.is_none() && self.stderr.is_none()
    }
}

/// In the order in which they were made. The trail of the run must be in the order in which it was written.
pub(super) fn of_run(rules: &[RedactRule], run: &RunDetail, now: Timestamp) -> Vec<Attempt> {
    let mut attempts = by_trail(&run.audit, now);
    for reported in &run.reports {
        if let Some(attempt) = attempts.iter_mut().find(|attempt| attempt.token == reported.token) {
            attempt.told = Some(Told::of(rules, reported));
        }
    }
    attempts
}

fn by_trail(trail: &[AuditRecord], now: Timestamp) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for record in trail {
        if record.change == Change::Claimed {
            attempts.push(Attempt {
                number: record.attempt,
                token: record.token,
                worker: record.worker.clone().unwrap_or_default(),
                from: record.at,
                took: None,
                end: format!("running for {}", span(now, record.at)),
                state: RunState::Running.as_str(),
                told: None,
            });
        } else if record.from == Some(RunState::Running)
            && record.to != Some(RunState::Running)
            && let Some(open) = attempts.last_mut().filter(|attempt| attempt.took.is_none())
        {
            open.took = Some(span(record.at, open.from));
            open.end = record.change.as_str().replace('_', " ");
            open.state = record.to.map_or("", RunState::as_str);
        }
    }
    attempts
}

/// Runs as listings show them: with their errors as far as they may be shown.
pub(super) fn hide_errors<'a>(rules: &[RedactRule], rows: impl IntoIterator<Item = &'a mut RunRow>) {
    for row in rows {
        row.error = row.error.take().map(|text| redact_text(rules, &text));
    }
}

#[cfg(test)]
mod tests {
    use quell::quell_core::attempt::AttemptReport;

    use super::super::samples::{audit_record, run_row};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn record(seconds: i64, token: u64, change: Change, to: RunState) -> AuditRecord {
        let from = if change == Change::Claimed { RunState::Pending } else { RunState::Running };
        let id = u64::try_from(seconds).unwrap();
        AuditRecord { id, token, ..audit_record(at(seconds), change, from, to) }
    }

    fn reported(token: u64, error: Option<&str>, report: AttemptReport) -> ReportedAttempt {
        ReportedAttempt { token, at: at(0), error: error.map(str::to_owned), report }
    }

    fn tried() -> RunDetail {
        let audit = vec![
            record(1, 5, Change::Claimed, RunState::Running),
            record(3, 5, Change::Retried, RunState::Retryable),
            record(4, 9, Change::Claimed, RunState::Running),
            record(5, 9, Change::Held, RunState::Running),
        ];
        let web = AttemptReport {
            request: Some("POST https://example.org/hook?…".to_owned()),
            status: Some(503),
            response: Some(r#"{"card":{"number":"4111"}, "token": "t"}"#.to_owned()),
            ..AttemptReport::default()
        };
        let reports = vec![
            reported(5, Some("the service answered 503: token=t"), web),
            reported(77, None, AttemptReport::default()),
        ];
        let row = run_row("q", RunState::Running, at(0));
        let usage = std::collections::BTreeMap::new();
        RunDetail { row, result: None, usage, list: Vec::new(), steps: Vec::new(), reports, audit }
    }

    #[test]
    fn an_attempt_has_the_report_of_its_own_token() {
        let attempts = of_run(&[], &tried(), at(10));
        let ends: Vec<_> =
            attempts.iter().map(|a| (a.end.as_str(), a.took.as_deref(), a.told.is_some())).collect();
        assert_eq!(ends, [("retried", Some("2.0s"), true), ("running for 6.0s", None, false)]);
        let told = attempts[0].told.as_ref().unwrap();
        assert_eq!(told.answer.as_deref(), Some("status 503"));
        assert_eq!(told.response.as_deref(), Some(r#"{"card":{"number":"4111"}, "token": "t"}"#));
        let ended = reported(1, None, AttemptReport { exit_code: Some(3), ..AttemptReport::default() });
        assert_eq!(Told::of(&[], &ended).answer.as_deref(), Some("exit code 3"));
    }

    #[test]
    fn what_is_hidden_in_payloads_is_hidden_in_what_attempts_told() {
        let rules: Vec<_> = ["*token*", "/card/number"].map(|rule| RedactRule::parse(rule).unwrap()).into();
        let attempts = of_run(&rules, &tried(), at(10));
        let told = attempts[0].told.as_ref().unwrap();
        assert_eq!(told.error.as_deref(), Some("the service answered 503: token=[redacted]"));
        assert_eq!(
            told.response.as_deref(),
            Some(r#"{"card":{"number":"[redacted]"},"token":"[redacted]"}"#)
        );
        let mut row = RunRow {
            error: Some("password: x token: y".to_owned()),
            ..run_row("q", RunState::Failed, at(0))
        };
        hide_errors(&rules, [&mut row]);
        assert_eq!(row.error.as_deref(), Some("password: x token:[redacted]"));
    }
}
