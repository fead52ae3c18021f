//! Counts tests by reading the lines that `cargo test` prints.
//!
//! Cargo gives no stable machine-readable result, but the closing line of each test binary has kept its shape for
//! years: `test result: ok. 3 passed; 0 failed; 1 ignored; …`. Several binaries mean several lines, which are added
//! up. A binary that dies prints no such line; its failure is seen in cargo's exit code instead, which is why the
//! count alone never decides a verdict.

use std::ops::AddAssign;

/// How many tests passed, failed and were ignored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Tally {
    /// Reads one line of output; anything but the closing line of a test binary is `None`.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let (verdict, counts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
        if verdict != "ok" && verdict != "FAILED" {
            return None;
        }
        let mut tally = Self::default();
        let mut seen = 0;
        for count in counts.split(';') {
            let Some((number, what)) = count.trim().split_once(' ') else { continue };
            let slot = match what {
                "passed" => &mut tally.passed,
                "failed" => &mut tally.failed,
                "ignored" => &mut tally.ignored,
                _ => continue,
            };
            *slot = number.parse().ok()?;
            seen += 1;
        }
        (seen == 3).then_some(tally)
    }

    /// Tests that were really executed.
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_good_binary_is_counted() {
        let line = "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.05s\n";
        assert_eq!(Tally::of_line(line), Some(Tally { passed: 12, failed: 0, ignored: 2 }));
    }

    #[test]
    fn the_closing_line_of_a_bad_binary_is_counted() {
        let line = "test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s";
        assert_eq!(Tally::of_line(line), Some(Tally { passed: 1, failed: 4, ignored: 0 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in [
            "",
            "running 3 tests",
            "test tally::tests::a_name ... ok",
            "we saw test result: ok. 1 passed; 0 failed; 0 ignored",
            "test result: maybe. 1 passed; 0 failed; 0 ignored",
            "test result: ok. many passed; 0 failed; 0 ignored",
            "test result: ok. 1 passed",
        ] {
            assert_eq!(Tally::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn ignored_tests_are_not_tests_that_ran() {
        let mut sum = Tally { passed: 1, failed: 2, ignored: 4 };
        sum += Tally { passed: 10, failed: 20, ignored: 40 };
        assert_eq!(sum, Tally { passed: 11, failed: 22, ignored: 44 });
        assert_eq!(sum.ran(), 33);
    }
}
