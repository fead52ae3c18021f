//! What is kept of each attempt of a run: what was asked, what was answered, and how it went wrong.
//!
//! A report is a row among the steps of its run, under a revision that no run reaches ([`REVISION`]). So every store keeps
//! it without a table or an index of its own, and it shares the fate of steps: it is written in the transaction that ends
//! the attempt, copied with its run, gone with the retention and with an erasure. The audit trail would have been the
//! other place, but its records never change, and what a service answered must be erasable.
//!
//! A run has room for [`limits::REPORTS_MAX`] reports. Each claim has a place, and later claims take the places of the
//! oldest, so a run that is tried a thousand times keeps the latest without anybody counting or deleting.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::limits;
use crate::outcome::keep_tail;
use crate::store::{SettleRequest, StepRow};

/// The revision under which reports stand: larger than any that a run gets by giving way, and a number that every store
/// has room for.
pub const REVISION: u32 = i32::MAX as u32;

/// What a handler tells of one attempt besides its verdict. Never a header: those carry secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttemptReport {
    /// What was asked: method and URL without a query, or the program and how many arguments it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The status of an HTTP answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The exit code of a program that ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The beginning of an HTTP answer, or the end of what a program printed; 2 KiB at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The end of what a program wrote to stderr; 2 KiB at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

impl AttemptReport {
    /// Cut to the limits, and without NUL, which no store keeps in a text.
    #[must_use]
    pub fn bounded(self) -> Self {
        AttemptReport {
            request: self.request.map(|text| head(&text, limits::REPORT_REQUEST_BYTES_MAX)),
            response: self.response.map(|text| head(&text, limits::REPORT_TEXT_BYTES_MAX)),
            stderr: self.stderr.map(|text| tail(&text, limits::REPORT_TEXT_BYTES_MAX)),
            ..self
        }
    }

    fn is_empty(&self) -> bool {
        *self == AttemptReport::default()
    }
}

/// A report as it is listed with its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReportedAttempt {
    /// Of the attempt: that of its claim in the trail.
    pub token: u64,
    /// When it ended, by the clock of the store.
    pub at: Timestamp,
    /// Why it did not succeed; the last 2 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the handler told.
    #[serde(flatten)]
    pub report: AttemptReport,
}

/// What a row holds beside token and time.
#[derive(Serialize, Deserialize)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "AttemptReport::is_empty")]
    report: AttemptReport,
}

/// The row that a settlement leaves of its attempt, which was claimed as the `claims`th of its run. Nothing when there is
/// nothing to tell: a run that just succeeds costs no row.
pub fn row(now: Timestamp, claims: u32, request: &SettleRequest) -> Option<StepRow> {
    let error = request.error.as_deref().map(|text| tail(text, limits::REPORT_TEXT_BYTES_MAX));
    let report = request.report.as_deref().cloned().unwrap_or_default().bounded();
    if error.is_none() && report.is_empty() {
        return None;
    }
    let place = claims.saturating_sub(1) % limits::REPORTS_MAX;
    let value = serde_json::to_value(Body { error, report }).ok();
    Some(StepRow { revision: REVISION, name: place.to_string(), at: now, token: request.token, value })
}

/// The rows of a run as its holders know them: steps, and reports in the order of their attempts.
pub fn apart(rows: Vec<StepRow>) -> (Vec<StepRow>, Vec<ReportedAttempt>) {
    let (reports, steps): (Vec<StepRow>, Vec<StepRow>) =
        rows.into_iter().partition(|row| row.revision == REVISION);
    let read = |row: StepRow| {
        let Body { error, report } = serde_json::from_value(row.value?).ok()?;
        Some(ReportedAttempt { token: row.token, at: row.at, error, report })
    };
    let mut reports: Vec<ReportedAttempt> = reports.into_iter().filter_map(read).collect();
    reports.sort_by_key(|report| report.token);
    (steps, reports)
}

fn tail(text: &str, max: usize) -> String {
    keep_tail(&plain(text), max)
}

fn head(text: &str, max: usize) -> String {
    let mut text = plain(text);
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::RunId;
    use crate::outcome::Verdict;

    fn asked(report: Option<AttemptReport>, error: Option<&str>) -> SettleRequest {
        let run = RunId { lane: 1, number: 2 };
        SettleRequest {
            error: error.map(str::to_owned),
            report: report.map(Box::new),
            ..SettleRequest::new(run, 7, Verdict::Failed)
        }
    }

    #[test]
    fn what_has_nothing_to_tell_leaves_nothing() {
        let now = Timestamp::from_millis(5);
        assert_eq!(row(now, 1, &asked(None, None)), None);
        assert_eq!(row(now, 1, &asked(Some(AttemptReport::default()), None)), None);
        assert!(row(now, 1, &asked(None, Some("no"))).is_some());
    }

    #[test]
    fn a_report_comes_back_as_it_was_told_beside_the_steps() {
        let report = AttemptReport {
            request: Some("POST https://example.org/hook".to_owned()),
            status: Some(503),
            response: Some("busy".to_owned()),
            ..AttemptReport::default()
        };
        let now = Timestamp::from_millis(5);
        let kept = row(now, 3, &asked(Some(report.clone()), Some("the service answered 503"))).unwrap();
        assert_eq!((kept.name.as_str(), kept.revision), ("2", REVISION));
        let step = StepRow { revision: 0, name: "2".to_owned(), at: now, token: 7, value: None };
        let (steps, reports) = apart(vec![kept, step.clone()]);
        assert_eq!(steps, [step]);
        let error = Some("the service answered 503".to_owned());
        assert_eq!(reports, [ReportedAttempt { token: 7, at: now, error, report }]);
    }

    #[test]
    fn later_attempts_take_the_places_of_the_oldest() {
        let now = Timestamp::from_millis(5);
        let place = |claims| row(now, claims, &asked(None, Some("no"))).unwrap().name;
        assert_eq!(place(1), place(1 + limits::REPORTS_MAX));
        let places: std::collections::BTreeSet<String> = (1..=limits::REPORTS_MAX).map(place).collect();
        assert_eq!(places.len(), limits::REPORTS_MAX as usize);
    }

    #[test]
    fn texts_are_cut_at_the_end_that_says_less() {
        let long = format!("begin{}end\0", "é".repeat(5_000));
        let report = AttemptReport {
            request: Some(long.clone()),
            response: Some(long.clone()),
            stderr: Some(long),
            ..AttemptReport::default()
        };
        let cut = report.bounded();
        let texts = [cut.request.unwrap(), cut.response.unwrap(), cut.stderr.unwrap()];
        assert!(texts[0].len() <= limits::REPORT_REQUEST_BYTES_MAX && texts[0].starts_with("begin"));
        assert!(texts[1].len() <= limits::REPORT_TEXT_BYTES_MAX && texts[1].ends_with("é…"));
        assert!(texts[2].len() <= limits::REPORT_TEXT_BYTES_MAX && texts[2].ends_with("end\u{fffd}"));
    }
}
