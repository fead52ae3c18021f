//! Words the result: one line per part as it ends, a table when all have ended, and the closing line.
//!
//! The closing line `N passed, M failed` stands alone so that a program can find it, and it is printed only when a
//! part that runs tests was among those asked for. It counts tests; whether the run is good also depends on the
//! other parts, so those that failed are named above it, with what their failed tests said.

use std::fmt::Write as _;
use std::time::Duration;

use crate::failures::Failures;
use crate::parts::seconds;
use crate::tally::Tally;

/// How a part ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    /// With the reason, short enough for a table cell.
    Failed(String),
}

/// One row of the table.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) took: Duration,
    pub(crate) verdict: Verdict,
    /// Present for the parts that run tests.
    pub(crate) tally: Option<Tally>,
    pub(crate) failures: Failures,
}

impl Line {
    /// What is said the moment the part ends.
    pub(crate) fn summary(&self) -> String {
        format!("{}: {} after {} s", self.name, self.result(), seconds(self.took))
    }

    fn result(&self) -> String {
        let mut text = match &self.verdict {
            Verdict::Ok => "ok".to_owned(),
            Verdict::Failed(reason) => format!("FAILED ({reason})"),
        };
        if let Some(tally) = self.tally {
            let _ = write!(text, ", {} passed, {} failed", tally.passed, tally.failed);
            if tally.ignored > 0 {
                let _ = write!(text, ", {} ignored", tally.ignored);
            }
        }
        text
    }
}

/// The table and what follows it.
pub(crate) fn closing(lines: &[Line]) -> String {
    let mut text = format!("\n{:<8} {:>8}  verdict\n", "part", "seconds");
    for line in lines {
        let _ = writeln!(text, "{:<8} {:>8}  {}", line.name, seconds(line.took), line.result());
    }
    let total = lines.iter().map(|line| line.took).sum();
    let _ = writeln!(text, "{:<8} {:>8}", "all", seconds(total));

    let failed: Vec<_> =
        lines.iter().filter(|line| line.verdict != Verdict::Ok).map(|line| line.name).collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "\nfailed parts: {}", failed.join(", "));
    }
    for said in lines.iter().flat_map(|line| line.failures.lines()) {
        let _ = writeln!(text, "  {said}");
    }

    let mut tests = None;
    for tally in lines.iter().filter_map(|line| line.tally) {
        *tests.get_or_insert_with(Tally::default) += tally;
    }
    if let Some(tally) = tests {
        let _ = writeln!(text, "\n{} passed, {} failed", tally.passed, tally.failed);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, verdict: Verdict, tally: Option<Tally>) -> Line {
        Line { name, took: Duration::from_millis(1250), verdict, tally, failures: Failures::default() }
    }

    #[test]
    fn the_last_line_adds_up_the_tests_and_stands_alone() {
        let text = closing(&[
            line("fmt", Verdict::Ok, None),
            line("tests", Verdict::Ok, Some(Tally { passed: 40, failed: 0, ignored: 1 })),
            line("doc", Verdict::Ok, Some(Tally { passed: 2, failed: 0, ignored: 0 })),
            line("docs", Verdict::Ok, None),
        ]);
        assert_eq!(text.lines().last(), Some("42 passed, 0 failed"));
        assert!(text.contains("tests         1.2  ok, 40 passed, 0 failed, 1 ignored\n"), "{text}");
        assert!(!text.contains("failed parts"), "{text}");
    }

    #[test]
    fn failed_parts_are_named_even_when_every_test_passed() {
        let text = closing(&[
            line("clippy", Verdict::Failed("exit code 101".to_owned()), None),
            line("tests", Verdict::Ok, Some(Tally { passed: 3, failed: 0, ignored: 0 })),
        ]);
        assert!(text.ends_with("failed parts: clippy\n\n3 passed, 0 failed\n"), "{text}");
        assert!(text.contains("FAILED (exit code 101)"), "{text}");
    }

    #[test]
    fn what_a_failed_test_said_is_repeated_above_the_last_line() {
        let mut tests = line("tests", Verdict::Failed("exit code 101".to_owned()), Some(Tally::default()));
        for said in ["failures:", "---- lease stdout ----", "two workers at once"] {
            tests.failures.read(said);
        }
        let text = closing(&[tests]);
        let end =
            "failed parts: tests\n  ---- lease stdout ----\n  two workers at once\n\n0 passed, 0 failed\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_run_without_tests_claims_no_tests() {
        assert!(!closing(&[line("fmt", Verdict::Ok, None)]).contains("passed"));
    }
}
