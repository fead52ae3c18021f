//! Texts with places for values, as a configuration writes them: `https://shop.example/search?q={query}&mint={mintmark?}`.
//!
//! Whoever checks a configuration and whoever fills the template in use the same code, so what was accepted can be filled. A
//! place without a value is an error, unless it ends with a question mark: then it is left empty. An empty value is none.
//!
//! A value in a URL is data and stays data: everything but letters, digits and `-._~` is percent-encoded, no value can stand
//! before the path, and none can become a `..` that leads out of it.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Longer templates are a mistake; a URL has at most 8 KiB, and values need room.
const TEMPLATE_BYTES_MAX: usize = 4 * 1024;
/// Longer names are a mistake.
const NAME_BYTES_MAX: usize = 64;

/// What is not unreserved (RFC 3986).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// More than a URL may have.
    #[error("it has more than {TEMPLATE_BYTES_MAX} bytes")]
    TooLong,
    /// A brace is opened and never closed.
    #[error("a {{ is not closed")]
    Open,
    /// A brace is closed that was not opened.
    #[error("a }} closes nothing")]
    Close,
    /// What stands in braces is no name.
    #[error("{0:?} is not the name of a value: write {{year}}, or {{year?}} if it may be missing")]
    Name(String),
    /// It does not begin with a scheme and a host.
    #[error("it does not begin with http:// or https:// and a host")]
    NoHost,
    /// A value would decide whom is asked.
    #[error(
        "the value of {{{0}}} would decide who is asked: a value can only stand after the host and a slash"
    )]
    ValueInHost(String),
    /// A character that no URL has.
    #[error("a URL has no {0:?}")]
    Character(char),
    /// A part of the path that is `.` or `..`.
    #[error("a path with . or .. leads elsewhere than it says")]
    Dots,
}

/// Why a template cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotFill {
    /// The template names a value that was not given.
    #[error("there is no value for {{{0}}}")]
    Missing(String),
    /// A value would be `.` or `..` in the path.
    #[error("a value of . or .. would lead out of the path")]
    Dots,
}

/// A text with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Value { name: String, optional: bool },
}

impl Template {
    /// Reads a text with values in braces: `{year}`, or `{year?}` if it may be missing.
    pub fn parse(text: &str) -> Result<Template, BadTemplate> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(BadTemplate::TooLong);
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (plain, brace) = rest.split_at(at);
            let inner = brace.strip_prefix('{').ok_or(BadTemplate::Close)?;
            let (inside, after) = inner.split_once('}').ok_or(BadTemplate::Open)?;
            if !plain.is_empty() {
                parts.push(Part::Text(plain.to_owned()));
            }
            let name = inside.strip_suffix('?').unwrap_or(inside);
            if !is_name(name) {
                return Err(BadTemplate::Name(inside.chars().take(NAME_BYTES_MAX).collect()));
            }
            parts.push(Part::Value { name: name.to_owned(), optional: name.len() < inside.len() });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template { parts })
    }

    /// The values that it has places for, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Value { name, .. } => Some(name.as_str()),
        })
    }

    /// With the values as they are.
    pub fn fill(&self, value: impl Fn(&str) -> Option<String>) -> Result<String, CannotFill> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Value { name, optional } => {
                    match value(name).filter(|value| !value.trim().is_empty()) {
                        Some(value) => filled.push_str(value.trim()),
                        None if *optional => {}
                        None => return Err(CannotFill::Missing(name.clone())),
                    }
                }
            }
        }
        Ok(filled)
    }
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(text)?,
                Part::Value { name, optional: false } => write!(f, "{{{name}}}")?,
                Part::Value { name, optional: true } => write!(f, "{{{name}?}}")?,
            }
        }
        Ok(())
    }
}

/// A template whose values become parts of a path or a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    template: Template,
    base: String,
}

impl UrlTemplate {
    /// Reads a URL with such values behind its host.
    pub fn parse(text: &str) -> Result<UrlTemplate, BadTemplate> {
        let template = Template::parse(text)?;
        let odd = |c: &char| c.is_whitespace() || c.is_control() || matches!(c, '\\' | '#');
        if let Some(odd) = text.chars().find(odd) {
            return Err(BadTemplate::Character(odd));
        }
        let scheme = ["http://", "https://"].into_iter().find(|scheme| text.starts_with(scheme));
        let scheme = scheme.ok_or(BadTemplate::NoHost)?.len();
        let host = text[scheme..].find(['/', '?']).unwrap_or(text.len() - scheme);
        let base = &text[..scheme + host];
        if let Some(name) = Template::parse(base)?.names().next() {
            return Err(BadTemplate::ValueInHost(name.to_owned()));
        }
        if host == 0 {
            return Err(BadTemplate::NoHost);
        }
        if has_dots(text) {
            return Err(BadTemplate::Dots);
        }
        Ok(UrlTemplate { template, base: base.to_owned() })
    }

    /// Scheme, host and port, which no value changes.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The names of the values that it needs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.template.names()
    }

    /// With the values percent-encoded.
    pub fn fill(&self, value: impl Fn(&str) -> Option<String>) -> Result<String, CannotFill> {
        let encoded = |name: &str| Some(utf8_percent_encode(value(name)?.trim(), ENCODED).to_string());
        let filled = self.template.fill(encoded)?;
        if has_dots(&filled) { Err(CannotFill::Dots) } else { Ok(filled) }
    }
}

impl fmt::Display for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.template.fmt(f)
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Whether the path has a segment that a reader of URLs takes for a step up or none at all.
fn has_dots(url: &str) -> bool {
    let path = url.split('?').next().unwrap_or_default();
    let dot = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    path.split('/').any(dot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str) -> Option<String> {
        match name {
            "year" => Some("1881".into()),
            "title" => Some(" Morgan & Söhne/50% ".into()),
            "blank" => Some("  ".into()),
            "up" => Some("..".into()),
            "dot" => Some(".".into()),
            _ => None,
        }
    }

    #[test]
    fn values_are_filled_in_and_never_more_than_values() {
        for (text, filled) in [
            ("https://a.example/{year}", Ok("https://a.example/1881")),
            ("http://a.example?q={title}", Ok("http://a.example?q=Morgan%20%26%20S%C3%B6hne%2F50%25")),
            ("https://a.example/x?y={year}&m={mint?}", Ok("https://a.example/x?y=1881&m=")),
            ("https://a.example/x?up={up}", Ok("https://a.example/x?up=..")),
            ("https://a.example/x-{up}", Ok("https://a.example/x-..")),
            ("https://a.example/x?m={mint}", Err(CannotFill::Missing("mint".into()))),
            ("https://a.example/x?m={blank}", Err(CannotFill::Missing("blank".into()))),
            ("https://a.example/{up}/x", Err(CannotFill::Dots)),
            ("https://a.example/{dot}{dot}", Err(CannotFill::Dots)),
            ("https://a.example/%2E{dot}/x", Err(CannotFill::Dots)),
        ] {
            let template = UrlTemplate::parse(text).unwrap();
            assert_eq!(template.fill(values), filled.map(str::to_owned), "{text}");
            assert_eq!(template.to_string(), text);
            assert!(text.starts_with(template.base()));
        }
        let plain = Template::parse("{year} {mint?} {title}!").unwrap();
        assert_eq!(plain.fill(values).unwrap(), "1881  Morgan & Söhne/50%!");
        assert_eq!(plain.names().collect::<Vec<_>>(), ["year", "mint", "title"]);
    }

    #[test]
    fn what_cannot_be_a_template_is_refused() {
        for (text, problem) in [
            ("https://a.example/{year", BadTemplate::Open),
            ("https://a.example/year}", BadTemplate::Close),
            ("https://a.example/{}", BadTemplate::Name("".into())),
            ("https://a.example/{?}", BadTemplate::Name("?".into())),
            ("https://a.example/{Year}", BadTemplate::Name("Year".into())),
            ("https://a.example/{{year}}", BadTemplate::Name("{year".into())),
            ("https://{host}/x", BadTemplate::ValueInHost("host".into())),
            ("https://a.example{year}/x", BadTemplate::ValueInHost("year".into())),
            ("https://a.example:{year}", BadTemplate::ValueInHost("year".into())),
            ("https:///{year}", BadTemplate::NoHost),
            ("ftp://a.example/", BadTemplate::NoHost),
            ("{url}", BadTemplate::NoHost),
            ("https://a.example/a b", BadTemplate::Character(' ')),
            ("https://a.example/a#{year}", BadTemplate::Character('#')),
            ("https://a.example\\@b/", BadTemplate::Character('\\')),
            ("https://a.example/../x", BadTemplate::Dots),
        ] {
            assert_eq!(UrlTemplate::parse(text), Err(problem), "{text}");
        }
        assert_eq!(Template::parse(&"x".repeat(5_000)), Err(BadTemplate::TooLong));
    }
}
