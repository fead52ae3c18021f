//! Why a configuration is refused: the place, the offending line with a mark under it, and the fix.
//!
//! One error type for the file, the environment and the flags. Passwords in store URLs never reach a message: the
//! shown line and the text are cleaned here, whatever was written.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::Origin;
use super::store::redact;

/// The text of a configuration file with its name, for messages.
#[derive(Clone)]
pub struct SourceText {
    /// How errors name it: the path as the user knows it.
    pub name: String,
    /// All of it, for the line that an error shows.
    pub text: Arc<str>,
}

impl SourceText {
    /// The text of a file, with the name that errors call it by.
    pub fn new(name: impl Into<String>, text: impl AsRef<str>) -> Self {
        SourceText { name: name.into(), text: Arc::from(text.as_ref()) }
    }

    /// Reads a file; an unreadable one is an error that names it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(SourceText::new(name, text)),
            Err(e) => Err(ConfigError::new(Place::Nowhere, format!("cannot read {name}: {e}"))),
        }
    }

    /// The line of a byte offset, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.before(offset).matches('\n').count() + 1
    }

    fn before(&self, offset: usize) -> &str {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        &self.text[..end]
    }

    fn place(&self, span: Range<usize>) -> Place {
        let before = self.before(span.start);
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let line_text = self.text[start..].lines().next().unwrap_or("");
        // A span over several lines (a whole table) is marked to the end of its first line.
        let marked = span.end.min(start + line_text.len()).saturating_sub(before.len());
        let marked = self.text.get(before.len()..before.len() + marked).unwrap_or("");
        Place::File {
            name: self.name.clone(),
            line: self.line(span.start),
            column: before[start..].chars().count() + 1,
            text: redact(line_text),
            width: redact(marked).chars().count().max(1),
        }
    }
}

/// The text may hold a password.
impl fmt::Debug for SourceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceText({}, {} bytes)", self.name, self.text.len())
    }
}

/// A refused configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Where the mistake stands.
    pub place: Place,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// Where the refused value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum Place {
    /// Line and column count from 1, the column in characters.
    File { name: String, line: usize, column: usize, text: String, width: usize },
    /// In this environment variable.
    Env(&'static str),
    /// In this flag of the command line.
    Flag(&'static str),
    /// In what was not said anywhere: settings that do not go together, for example.
    Nowhere,
}

impl ConfigError {
    pub(super) fn new(place: Place, problem: impl AsRef<str>) -> Self {
        ConfigError { place, problem: redact(problem.as_ref()), help: None }
    }

    /// An error about a value of which only the origin and, for a file, the span are known.
    pub(super) fn at(
        origin: &Origin,
        source: Option<&SourceText>,
        span: Range<usize>,
        problem: impl AsRef<str>,
    ) -> Self {
        let place = match (origin, source) {
            (Origin::Flag(name), _) => Place::Flag(name),
            (Origin::Env(name), _) => Place::Env(name),
            (Origin::File { .. }, Some(source)) => source.place(span),
            _ => Place::Nowhere,
        };
        ConfigError::new(place, problem)
    }

    #[must_use]
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Translates the parser's error: its place is kept, its unknown names get a suggestion.
    pub(super) fn from_toml(error: &toml::de::Error, source: &SourceText) -> Self {
        let place = error.span().map_or(Place::Nowhere, |span| source.place(span));
        let message = error.message();
        let Some(unknown) = message.strip_prefix("unknown field `").and_then(|m| m.split('`').next()) else {
            return ConfigError::new(place, message);
        };
        let known: Vec<&str> = message.split('`').skip(1).step_by(2).skip(1).collect();
        let help = match nearest(unknown, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the settings known here are {}", known.join(", ")),
        };
        ConfigError::new(place, format!("unknown setting `{unknown}`")).help(help)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = &self.problem;
        match &self.place {
            Place::File { name, line, column, text, width } => {
                let gutter = " ".repeat(line.to_string().len());
                // Tabs stay tabs, so that the mark stands under its word whatever a tab is worth.
                let indent: String =
                    text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                writeln!(f, "{name}:{line}:{column}: {problem}")?;
                writeln!(f, " {line} | {text}")?;
                write!(f, " {gutter} | {indent}{}", "^".repeat(*width))?;
            }
            Place::Env(name) => write!(f, "environment variable {name}: {problem}")?,
            Place::Flag(name) => write!(f, "{name}: {problem}")?,
            Place::Nowhere => write!(f, "{problem}")?,
        }
        match &self.help {
            Some(help) => write!(f, "\n help: {help}"),
            None => Ok(()),
        }
    }
}

/// The known name that a misspelt one is closest to, if it is close at all.
pub(super) fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = 1 + unknown.chars().count() / 4;
    known
        .into_iter()
        .map(|name| (distance(unknown, name), name))
        .filter(|(far, _)| *far <= allowed)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// Single-character edits between two words, two swapped neighbours counting as one.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn refused(text: &str) -> String {
        Config::parse(text, "quell.toml").unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_setting_shows_its_line_and_the_nearest_name() {
        assert_eq!(
            refused("[queues.chat]\nwindwo = \"none\"\n"),
            "quell.toml:2:1: unknown setting `windwo`\n 2 | windwo = \"none\"\n   | ^^^^^^\n help: did you mean `window`?"
        );
        assert!(refused("colour = 1\n").contains("help: the settings known here are store, listen"));
        assert!(refused("[worker]\nconcurency = 3\n").contains("did you mean `concurrency`?"));
        assert!(refused("[queues.a]\nwindow = { quite = \"1s\" }\n").contains("did you mean `quiet`?"));
        assert!(refused("[queues.a]\nhandler = { exce = [\"x\"] }\n").contains("did you mean `exec`?"));
    }

    #[test]
    fn a_bad_value_is_marked_where_it_stands() {
        assert_eq!(
            refused("[queues.chat]\nlease = \"10 lightyears\""),
            "quell.toml:2:9: \"10 lightyears\" is not a duration (unknown time unit \"lightyears\", supported units: \
             ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations)); write for example \
             \"250ms\", \"30s\" or \"1m30s\"\n 2 | lease = \"10 lightyears\"\n   |         ^^^^^^^^^^^^^^^"
        );
        let inside = refused("[queues.chat]\nwindow = { quiet = \"2s\", max_wait = \"1 x\" }");
        assert!(inside.starts_with("quell.toml:2:37: \"1 x\" is not a duration"), "{inside}");
        assert!(refused("[queues.a]\nlease = 60").contains("expected a duration with its unit, in quotes"));
        assert!(refused("[queues.a]\nmax_bytes = \"1MB\"").contains("the units are B, KiB, MiB and GiB"));
        assert!(refused("[queues.a]\nwindow = 3").contains("expected a word in quotes or a table"));
    }

    #[test]
    fn duplicate_keys_and_broken_syntax_have_a_place() {
        assert!(refused("store = \"a\"\nstore = \"b\"\n").starts_with("quell.toml:2:1: duplicate key"));
        assert!(refused("[worker\n").starts_with("quell.toml:1:"));
        assert!(refused("listen = \n").starts_with("quell.toml:1:"));
    }

    #[test]
    fn the_mark_stands_under_its_word_after_tabs_and_wide_letters() {
        let text = refused("queues.\"ä\".\twindwo = 1");
        assert!(text.contains("1:13:"), "{text}");
        assert!(text.ends_with("\n   |            \t^^^^^^\n help: did you mean `window`?"), "{text:?}");
    }

    #[test]
    fn a_password_never_reaches_a_message() {
        let text = refused("store = \"postgres://me:hunter2@db/x\" oops");
        assert!(!text.contains("hunter2") && text.contains("***"), "{text}");
        let text = refused("[worker]\nconcurrency = \"postgres://me:hunter2@db/x\"");
        assert!(!text.contains("hunter2") && text.contains("***"), "{text}");
    }

    #[test]
    fn suggestions_are_near_or_absent() {
        let known = ["window", "lease", "retry"];
        assert_eq!(nearest("leese", known), Some("lease"));
        assert_eq!(nearest("rtery", known), Some("retry"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
