//! Keeps what failed tests said, to say it again at the end.
//!
//! A run prints some five thousand lines, and a record of it often keeps only the last of them. What one needs to
//! know of a bad run is why it was bad, so the report repeats it where it cannot be missed. `cargo test` prints it
//! between a line `failures:` and the closing line of the binary.

/// The lines kept of one run. A test that prints without end fills the log, but not the report.
const KEPT: usize = 400;

/// What the failed tests of one part said.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    lines: Vec<String>,
    inside: bool,
}

impl Failures {
    /// Reads one line of output.
    pub(crate) fn read(&mut self, line: &str) {
        let line = line.trim_end();
        match line {
            "failures:" => self.inside = true,
            _ if line.starts_with("test result: ") => self.inside = false,
            _ if self.inside && !line.is_empty() && self.lines.len() < KEPT => {
                self.lines.push(line.to_owned())
            }
            _ => {}
        }
    }

    /// Adds what another run of the same part has kept.
    pub(crate) fn append(&mut self, other: Failures) {
        self.lines.extend(other.lines);
        self.lines.truncate(KEPT);
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_test_said_is_kept_and_nothing_else() {
        let mut failures = Failures::default();
        for line in [
            "test a ... ok\n",
            "test b ... FAILED\n",
            "\n",
            "failures:\n",
            "\n",
            "---- b stdout ----\n",
            "two is not three\n",
            "\n",
            "failures:\n",
            "    b\n",
            "\n",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
            "running 1 test\n",
        ] {
            failures.read(line);
        }
        assert_eq!(failures.lines(), ["---- b stdout ----", "two is not three", "    b"]);
    }

    #[test]
    fn a_talkative_failure_is_cut() {
        let mut failures = Failures::default();
        failures.read("failures:");
        for _ in 0..10 * KEPT {
            failures.read("again");
        }
        assert_eq!(failures.lines().len(), KEPT);
        let mut both = Failures::default();
        both.read("failures:");
        both.read("mine");
        both.append(failures);
        assert_eq!((both.lines().len(), both.lines()[0].as_str()), (KEPT, "mine"));
    }
}
