//! What a driver answers: the last line of its standard output, one object of figures by name and of versions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits;

/// One run of one shape by one system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Rates in events per second, times in the unit that their names say, counts. What a system does not have is missing.
    pub figures: BTreeMap<String, Option<f64>>,
    /// Of the system and of what runs it.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
}

impl Answer {
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied().flatten().filter(|value| value.is_finite())
    }
}

/// Reads what a driver printed.
///
/// # Errors
///
/// When its last line is no answer; the text is for a row of the page.
pub fn read(printed: &str) -> Result<Answer, String> {
    let last = printed.lines().rev().find(|line| !line.trim().is_empty()).ok_or("it printed nothing")?;
    serde_json::from_str(last).map_err(|error| format!("its last line is no answer: {error}"))
}

/// The line of what a program said that tells most: the last one that speaks of an error, otherwise the last.
#[must_use]
pub fn reason(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let speaks = |line: &&&str| line.to_ascii_lowercase().contains("error");
    let line = lines.iter().rev().find(speaks).or(lines.last()).copied().unwrap_or("it said nothing");
    match line.char_indices().nth(limits::REASON) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_answer_and_what_is_null_is_missing() {
        let answer =
            read("starting\n{\"figures\":{\"one\":12.5,\"bulk\":null},\"versions\":{\"huey\":\"3\"}}\n\n")
                .unwrap();
        assert_eq!(answer.figure("one"), Some(12.5));
        assert_eq!((answer.figure("bulk"), answer.figure("drain")), (None, None));
        assert_eq!(answer.versions["huey"], "3");
    }

    #[test]
    fn what_is_no_answer_is_said() {
        assert_eq!(read("\n \n"), Err("it printed nothing".to_owned()));
        assert!(read("done").unwrap_err().starts_with("its last line is no answer"));
    }

    #[test]
    fn the_reason_is_the_line_with_the_error_and_no_longer_than_a_cell() {
        assert_eq!(reason("a\nTypeError: no\n    at x\n"), "TypeError: no");
        assert_eq!(reason("first\nlast\n"), "last");
        assert_eq!(reason(""), "it said nothing");
        assert_eq!(reason(&"é".repeat(500)).chars().count(), limits::REASON + 1);
    }
}
