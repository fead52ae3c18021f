//! Picks the winner of each setting, remembers where it came from and writes its line of `quell check`.
//!
//! The order is the same for all: flag, environment (names in the order given), file, default. What is out of bounds
//! is refused at the place of the winner, so a message never points at a value that is not in force.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use super::error::{ConfigError, SourceText};
use super::value::{DurationText, Written};
use super::{Explained, Origin};

/// A value with where it came from, for the checks that follow.
#[derive(Debug, Clone)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
    pub(super) span: Range<usize>,
}

/// Picks winners and keeps account of them.
pub(super) struct Resolver<'a> {
    pub(super) source: Option<SourceText>,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) explained: Vec<Explained>,
}

impl Resolver<'_> {
    /// A variable; an empty one counts as not set, as compose files and shells produce them unasked.
    pub(super) fn env(&self, name: &'static str) -> Option<Found<&str>> {
        let value = self.env.get(name).map(|v| v.trim()).filter(|v| !v.is_empty())?;
        Some(Found { value, origin: Origin::Env(name), span: 0..0 })
    }

    pub(super) fn file_origin(&self, span: &Range<usize>) -> Origin {
        Origin::File { line: self.source.as_ref().map_or(0, |s| s.line(span.start)) }
    }

    pub(super) fn placed<T>(&self, written: Written<T>) -> Found<T> {
        Found { origin: self.file_origin(&written.span), value: written.value, span: written.span }
    }

    /// The name of a section.
    pub(super) fn named(&self, key: toml::Spanned<String>) -> Found<String> {
        let span = key.span();
        Found { origin: self.file_origin(&span), value: key.into_inner(), span }
    }

    pub(super) fn error<T>(&self, found: &Found<T>, problem: impl AsRef<str>) -> ConfigError {
        ConfigError::at(&found.origin, self.source.as_ref(), found.span.clone(), problem)
    }

    /// Writes the line of `quell check`.
    pub(super) fn note(&mut self, setting: impl Into<String>, value: impl Into<String>, origin: &Origin) {
        let explained = Explained { setting: setting.into(), value: value.into(), origin: origin.clone() };
        self.explained.push(explained);
    }

    /// The winner among the environment (in the order given) and the file.
    pub(super) fn given<T>(
        &self,
        names: &[&'static str],
        parse: impl Fn(&str) -> Result<T, String>,
        file: Option<Written<T>>,
    ) -> Result<Option<Found<T>>, ConfigError> {
        match names.iter().find_map(|name| self.env(name)) {
            Some(found) => {
                let value = parse(found.value).map_err(|problem| self.error(&found, problem))?;
                Ok(Some(Found { value, origin: found.origin, span: 0..0 }))
            }
            None => Ok(file.map(|written| self.placed(written))),
        }
    }

    pub(super) fn duration(
        &mut self,
        setting: &str,
        flag: Option<(&'static str, Duration)>,
        names: &[&'static str],
        file: Option<Written<DurationText>>,
        default: Duration,
        bounds: RangeInclusive<Duration>,
    ) -> Result<Duration, ConfigError> {
        let found = match flag {
            Some((name, value)) => Found { value, origin: Origin::Flag(name), span: 0..0 },
            None => {
                let file = file.map(|w| Written { value: w.value.0, span: w.span });
                let default = Found { value: default, origin: Origin::Default, span: 0..0 };
                self.given(names, DurationText::parse, file)?.unwrap_or(default)
            }
        };
        self.within(setting, found, bounds, DurationText::show)
    }

    /// A whole number. `flag` and the environment only where a setting has them.
    pub(super) fn integer(
        &mut self,
        setting: &str,
        flag: Option<(&'static str, i64)>,
        names: &[&'static str],
        file: Option<Written<i64>>,
        default: i64,
        bounds: RangeInclusive<i64>,
    ) -> Result<i64, ConfigError> {
        let found = match flag {
            Some((name, value)) => Found { value, origin: Origin::Flag(name), span: 0..0 },
            None => {
                let parse = |t: &str| t.parse::<i64>().map_err(|_| format!("{t:?} is not a whole number"));
                let default = Found { value: default, origin: Origin::Default, span: 0..0 };
                self.given(names, parse, file)?.unwrap_or(default)
            }
        };
        self.within(setting, found, bounds, |n| n.to_string())
    }

    /// Checks the bounds and writes the line of `quell check`.
    pub(super) fn within<T: PartialOrd + Copy, S: Display>(
        &mut self,
        setting: &str,
        found: Found<T>,
        bounds: RangeInclusive<T>,
        show: impl Fn(T) -> S,
    ) -> Result<T, ConfigError> {
        if !bounds.contains(&found.value) {
            let name = setting.rsplit('.').next().unwrap_or(setting);
            let (value, low, high) = (show(found.value), show(*bounds.start()), show(*bounds.end()));
            return Err(self.error(&found, format!("{name} = {value} is not between {low} and {high}")));
        }
        self.note(setting, show(found.value).to_string(), &found.origin);
        Ok(found.value)
    }
}

/// A setting that its section cannot do without; `kind` is what the section describes.
pub(super) fn required<T>(
    r: &Resolver<'_>,
    kind: &str,
    section: &Found<String>,
    file: Option<Written<T>>,
    setting: &str,
    example: &str,
) -> Result<Found<T>, ConfigError> {
    file.map(|written| r.placed(written)).ok_or_else(|| {
        let problem = format!("the {kind} {:?} has no {setting}", section.value);
        r.error(section, problem).help(format!("write for example {example}"))
    })
}

pub(super) fn text_or(r: &Resolver<'_>, file: Option<Written<String>>, default: &str) -> Found<String> {
    match file {
        Some(written) => r.placed(written),
        None => Found { value: default.to_owned(), origin: Origin::Default, span: 0..0 },
    }
}
