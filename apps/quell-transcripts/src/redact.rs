//! Secrets are taken out before anything is stored.
//!
//! A transcript holds what people paste and what tools print: keys, passwords, whole configuration files. What looks
//! like one becomes `[redacted:NAME]`. This is a net and not a wall: it knows secrets by their usual beginnings and by
//! the names that they are assigned to, and a password in the middle of a sentence stays.
//!
//! The hook redacts too and has only milliseconds, so nothing is compiled before it is needed: every rule has literal
//! markers, and its expression is compiled, once in a process, when one of them is in a text. Markers of keys that have
//! a fixed spelling are looked for as they are; names such as `password` are looked for in a copy of the text in small
//! ASCII letters. The expressions run in linear time.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use memchr::memmem;
use regex::{Captures, Regex};
use serde_json::Value;
use thiserror::Error;

const OPEN: &str = "[redacted:";
/// What is taken out can make something else look like a secret, so it is looked again, but not forever.
const ROUNDS_MAX: usize = 4;
/// The name of what the user's own patterns find.
const CUSTOM: &str = "custom";
/// The shortest value that is taken for a secret because of the name that it is assigned to.
const VALUE_CHARS_MIN: usize = 8;

/// How much of a value is looked at to tell whether it is a secret.
const VALUE_BYTES_JUDGED: usize = 512;

/// A pattern of the user's that cannot be used.
#[derive(Debug, Error)]
pub enum BadPattern {
    #[error("the pattern `{pattern}` cannot be read: {error}")]
    Syntax { pattern: String, error: Box<regex::Error> },
    #[error("the pattern `{0}` matches the empty text, so it would be found everywhere")]
    Empty(String),
}

/// Takes secrets out of texts.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    extra: Vec<Regex>,
}

struct Rule {
    name: &'static str,
    /// One of these is in every text that the expression matches.
    markers: &'static [&'static str],
    /// The markers are in small letters, and the text may have others.
    any_case: bool,
    pattern: &'static str,
    /// Where the secret is in what the expression has found, if it is one: not everything can be told by expressions.
    secret: fn(&str, &Captures<'_>) -> Option<Range<usize>>,
}

impl Rule {
    /// The secret is the group `s`.
    const fn new(name: &'static str, markers: &'static [&'static str], pattern: &'static str) -> Rule {
        Rule { name, markers, any_case: false, pattern, secret: |_, found| Some(found.name("s")?.range()) }
    }

    const fn any_case(self) -> Rule {
        Rule { any_case: true, ..self }
    }

    const fn secret(self, secret: fn(&str, &Captures<'_>) -> Option<Range<usize>>) -> Rule {
        Rule { secret, ..self }
    }
}

/// The expressions of the rules, once they were needed. That each can be compiled is tested.
static COMPILED: [OnceLock<Option<Regex>>; RULES.len()] = [const { OnceLock::new() }; RULES.len()];

/// The more telling first: where two find the same, the first gives its name.
static RULES: [Rule; 16] = [
    Rule::new(
        "private-key",
        &["PRIVATE KEY"],
        r"(?s)(?P<s>-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----|\z))",
    ),
    Rule::new(
        "api-key",
        &["sk-"],
        r"(?-u)(?P<s>sk-(?P<vendor>(?:ant|proj|svcacct|admin|or-v1)-)?[A-Za-z0-9_-]{20,})",
    )
    .secret(|text, found| {
        let key = found.name("s")?;
        let begins = !text[..key.start()].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_'));
        let is_key = found.name("vendor").is_some() || has_long_run(key.as_str());
        (begins && is_key).then(|| key.range())
    }),
    Rule::new(
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        r"(?-u)\b(?P<s>gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    ),
    Rule::new("gitlab-token", &["glpat-"], r"(?-u)\b(?P<s>glpat-[A-Za-z0-9_-]{16,})"),
    Rule::new("aws-key-id", &["AKIA", "ASIA"], r"(?-u)\b(?P<s>(?:AKIA|ASIA)[A-Z0-9]{16})\b"),
    Rule::new(
        "aws-secret",
        &["secret"],
        r#"(?i-u)secret_?access_?key\\{0,3}["']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}["']?(?P<s>[A-Za-z0-9/+=]{40})"#,
    )
    .any_case(),
    Rule::new("google-key", &["AIza"], r"(?-u)\b(?P<s>AIza[A-Za-z0-9_-]{35,})"),
    Rule::new(
        "slack-token",
        &["xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-"],
        r"(?-u)\b(?P<s>xox[abeprs]-[A-Za-z0-9-]{10,})",
    ),
    Rule::new(
        "slack-webhook",
        &["hooks.slack.com/"],
        r"(?-u)hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9/_-]{16,})",
    ),
    Rule::new(
        "stripe-key",
        &["sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"],
        r"(?-u)\b(?P<s>(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{16,}))",
    ),
    Rule::new("npm-token", &["npm_"], r"(?-u)\b(?P<s>npm_[A-Za-z0-9]{30,})"),
    Rule::new(
        "jwt",
        &["eyJ"],
        r"(?-u)\b(?P<s>eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*)",
    ),
    Rule::new(
        "authorization",
        &["authorization"],
        r#"(?i-u)authorization\\{0,3}["']?[ \t]{0,4}[:=,][ \t]{0,4}\\{0,3}["']?(?:bearer|basic|token|apikey)[ \t]{1,4}(?P<s>[A-Za-z0-9._~+/=:%-]{8,})"#,
    )
    .any_case()
    .secret(|_, found| found.name("s").filter(|s| !is_placeholder(s.as_str())).map(|s| s.range())),
    Rule::new("bearer", &["bearer"], r"(?i-u)\bbearer[ \t]{1,4}(?P<s>[A-Za-z0-9._~+/-]{16,}=*)").any_case().secret(
        |_, found| {
            let token = found.name("s")?;
            (has_digit(token.as_str()) && !is_placeholder(token.as_str())).then(|| token.range())
        },
    ),
    Rule::new("url-password", &["://"], "://").secret(url_password),
    Rule::new(
        "secret",
        &[
            "passw", "passphrase", "pwd", "secret", "token", "credential", "_key", "-key", "apikey", "accesskey",
            "privatekey", "encryptionkey", "signingkey", "authkey",
        ],
        // A name that ends in such a word, and an assignment. In JSON within JSON the quotes have backslashes before
        // them.
        r#"(?i-u)(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|(?:access|secret|private|encryption|signing|auth)[_-]?key|credential)(?:[_-]?(?:key|value|prod|production|staging|dev|test|[0-9]{1,3}))?\\{0,3}["']?(?P<to>[ \t]{0,4}(?:=>|:=|[:=])[ \t]{0,4})(?P<quote>\\{0,3}["'])?"#,
    )
    .any_case()
    .secret(assigned_secret),
];

impl Redactor {
    /// With patterns of the user's own. The group `secret` of a pattern is what is taken out, or else all of it.
    pub fn new(extra: &[String]) -> Result<Redactor, BadPattern> {
        let compile = |pattern: &String| {
            let regex = Regex::new(pattern)
                .map_err(|error| BadPattern::Syntax { pattern: pattern.clone(), error: Box::new(error) })?;
            if regex.is_match("") { Err(BadPattern::Empty(pattern.clone())) } else { Ok(regex) }
        };
        Ok(Redactor { extra: extra.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// The text with `[redacted:NAME]` in the place of every secret.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.redact_counted(text).0
    }

    /// The same, and how many there were.
    pub fn redact_counted<'a>(&self, text: &'a str) -> (Cow<'a, str>, usize) {
        let mut text = Cow::Borrowed(text);
        let mut count = 0;
        for _ in 0..ROUNDS_MAX {
            let found = self.find(&text);
            if found.is_empty() {
                break;
            }
            count += found.len();
            let mut clean = String::with_capacity(text.len());
            let mut end = 0;
            for secret in found {
                clean.push_str(&text[end..secret.at.start]);
                clean.push_str(OPEN);
                clean.push_str(secret.name);
                clean.push(']');
                end = secret.at.end;
            }
            clean.push_str(&text[end..]);
            text = Cow::Owned(clean);
        }
        (text, count)
    }

    /// All strings of a value; the names of its fields stay, and tell what their strings are. How many there were.
    pub fn redact_json(&self, value: &mut Value) -> usize {
        let mut count = 0;
        // Not by recursion: a value may be as deep as it likes.
        let mut left = vec![(value, false)];
        while let Some((value, named_secret)) = left.pop() {
            match value {
                Value::String(text) => {
                    let bare = named_secret
                        && text.chars().count() >= VALUE_CHARS_MIN
                        && !is_placeholder(text)
                        && !is_marker(text);
                    if bare {
                        *text = format!("{OPEN}secret]");
                        count += 1;
                    } else if let (Cow::Owned(clean), found) = self.redact_counted(text) {
                        *text = clean;
                        count += found;
                    }
                }
                Value::Array(values) => left.extend(values.iter_mut().map(|value| (value, named_secret))),
                Value::Object(fields) => {
                    left.extend(fields.iter_mut().map(|(name, value)| (value, names_a_secret(name))));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        count
    }

    /// What there is to take out, in order and apart from one another.
    fn find(&self, text: &str) -> Vec<Found> {
        let mut found = Vec::new();
        let mut small: Option<String> = None;
        for (rule, compiled) in RULES.iter().zip(&COMPILED) {
            let text_for_markers = if rule.any_case {
                small.get_or_insert_with(|| text.to_ascii_lowercase()).as_bytes()
            } else {
                text.as_bytes()
            };
            if rule.markers.iter().any(|marker| memmem::find(text_for_markers, marker.as_bytes()).is_some())
                && let Some(regex) = compiled.get_or_init(|| Regex::new(rule.pattern).ok())
            {
                search(rule, regex, text, &mut found);
            }
        }
        for regex in &self.extra {
            let names_it = regex.capture_names().flatten().any(|name| name == "secret");
            for captures in regex.captures_iter(text) {
                let secret = if names_it { captures.name("secret") } else { captures.get(0) };
                found.extend(secret.map(|secret| Found { at: secret.range(), name: CUSTOM }));
            }
        }
        apart(found, &markers_in(text))
    }
}

struct Found {
    at: Range<usize>,
    name: &'static str,
}

fn search(rule: &Rule, regex: &Regex, text: &str, found: &mut Vec<Found>) {
    let mut from = 0;
    while let Some(captures) = regex.captures_at(text, from) {
        let Some(all) = captures.get(0) else { return };
        from = all.end();
        if let Some(at) = (rule.secret)(text, &captures) {
            from = from.max(at.end);
            found.push(Found { at, name: rule.name });
        }
    }
}

/// The password before the host of a URL, whose beginning was found.
fn url_password(text: &str, found: &Captures<'_>) -> Option<Range<usize>> {
    let start = found.get(0)?.end();
    let rest = &text[start..text.floor_char_boundary(start + VALUE_BYTES_JUDGED)];
    let stop =
        |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>' | '\\' | '`');
    let authority = &rest[..rest.find(stop).unwrap_or(rest.len())];
    // A password may have been written with an `@` of its own.
    let (user, host) = authority.rsplit_once('@')?;
    let (name, password) = user.split_once(':')?;
    let is_host = host.starts_with(|c: char| c.is_alphanumeric() || c == '[');
    let is_password =
        !password.is_empty() && !password.starts_with(['$', '{', '%', '*']) && !name.contains('@');
    let at = start + name.len() + 1;
    (is_host && is_password && !is_marker(password)).then(|| at..at + password.len())
}

/// How far a value goes that stands in quotes. In JSON within JSON they have backslashes before them.
fn quoted_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, bytes.get(at + 1)) {
            (b'"' | b'\'' | b'\r' | b'\n', _) | (b'\\', Some(b'"' | b'\'' | b'\r' | b'\n')) => return at,
            (b'\\', Some(next)) if next.is_ascii() => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// How far a value goes that stands in none.
fn bare_length(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || "\"'\\,;&<>(){}[]|`".contains(c)).unwrap_or(text.len())
}

/// The markers that stand in a text already.
fn markers_in(text: &str) -> Vec<Range<usize>> {
    let starts = memmem::find_iter(text.as_bytes(), OPEN);
    starts.filter_map(|start| Some(start..start + marker_length(&text[start..])?)).collect()
}

/// How long the marker is that the text begins with.
fn marker_length(text: &str) -> Option<usize> {
    let name = text.strip_prefix(OPEN)?;
    let length = name.bytes().take_while(|byte| byte.is_ascii_lowercase() || *byte == b'-').count();
    (length > 0 && name.as_bytes().get(length) == Some(&b']')).then_some(OPEN.len() + length + 1)
}

fn is_marker(text: &str) -> bool {
    marker_length(text) == Some(text.len())
}

/// Secrets that overlap become one, under the name of the rule that comes first. A marker is no secret, and none is cut.
fn apart(mut found: Vec<Found>, markers: &[Range<usize>]) -> Vec<Found> {
    found.retain_mut(|one| {
        let first = markers.partition_point(|marker| marker.end <= one.at.start);
        let after = markers.partition_point(|marker| marker.start < one.at.end);
        let touched = markers.get(first..after).unwrap_or_default();
        if let [marker] = touched
            && marker.start <= one.at.start
            && one.at.end <= marker.end
        {
            return false;
        }
        if let (Some(first), Some(last)) = (touched.first(), touched.last()) {
            one.at = one.at.start.min(first.start)..one.at.end.max(last.end);
        }
        !one.at.is_empty()
    });
    let rank = |name: &str| RULES.iter().position(|rule| rule.name == name).unwrap_or(RULES.len());
    found.sort_by_key(|one| (one.at.start, one.at.end));
    let mut merged: Vec<Found> = Vec::with_capacity(found.len());
    for one in found {
        match merged.last_mut() {
            Some(last) if one.at.start < last.at.end => {
                last.at.end = last.at.end.max(one.at.end);
                if rank(one.name) < rank(last.name) {
                    last.name = one.name;
                }
            }
            _ => merged.push(one),
        }
    }
    merged
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Keys have long runs of letters and digits; names of things have words with dashes between them.
fn has_long_run(text: &str) -> bool {
    text.split(['-', '_']).any(|run| run.len() >= 16 && has_digit(run))
}

/// Whether a field with this name holds a secret.
fn names_a_secret(name: &str) -> bool {
    const ENDS: [&str; 14] = [
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "encryptionkey",
        "signingkey",
        "authkey",
        "credential",
    ];
    let plain: String =
        name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect();
    ENDS.iter().any(|end| plain.ends_with(end))
}

/// What stands in the place of a value in examples and templates.
fn is_placeholder(value: &str) -> bool {
    const BEGINS: [&str; 18] = [
        "$",
        "{",
        "<",
        "%",
        "your",
        "my_",
        "my-",
        "env.",
        "env:",
        "process.",
        "os.",
        "secrets.",
        "config.",
        "none",
        "null",
        "undefined",
        "true",
        "false",
    ];
    const HOLDS: [&str; 8] =
        ["example", "placeholder", "changeme", "change_me", "change-me", "redacted", "xxxx", "${"];
    let plain = value.trim().to_ascii_lowercase();
    let first = plain.chars().next();
    let same = plain.chars().all(|c| Some(c) == first)
        || plain.chars().all(|c| matches!(c, '.' | '*' | '…' | '-' | '_'));
    same || BEGINS.iter().any(|begin| plain.starts_with(begin))
        || HOLDS.iter().any(|held| plain.contains(held))
}

/// The value of an assignment in a configuration, but not in a program or a sentence.
fn assigned_secret(text: &str, found: &Captures<'_>) -> Option<Range<usize>> {
    let start = found.get(0)?.end();
    let quoted = found.name("quote").is_some();
    let length = if quoted { quoted_length } else { bare_length };
    // The beginning tells enough, and a text of nothing but assignments is not read to its end for each.
    let value = &text[start..text.floor_char_boundary(start + VALUE_BYTES_JUDGED)];
    let value = &value[..length(value)];
    if value.chars().count() < VALUE_CHARS_MIN || is_placeholder(value) || is_marker(value) {
        return None;
    }
    let is_secret = if quoted {
        // Not a sentence, a message, a format: `"token: {} expired"`.
        let words = value.split_whitespace().count();
        words == 1 || words <= 6 && has_digit(value)
    } else {
        let after = text[start + value.len()..].chars().next();
        // A call, a generic type, a path of a module.
        let is_code = matches!(after, Some('(' | '<' | '[' | '{')) || value.contains("::");
        let has_letter = value.bytes().any(|byte| byte.is_ascii_alphabetic());
        let looks_made = has_digit(value) && has_letter;
        // With spaces or a colon it may be prose or a type; `token=self.token` and `password=password_from_file` pass
        // something on.
        let plain = value.to_ascii_lowercase();
        let named = ["password", "passwd", "secret", "token", "key"].iter().any(|word| plain.contains(word));
        let is_set = &found["to"] == "=" && (has_digit(value) || !named && !value.contains('.'));
        !is_code && (looks_made || is_set)
    };
    is_secret.then(|| start..start + length(&text[start..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn redacted(text: &str) -> String {
        Redactor::default().redact(text).into_owned()
    }

    const A40: &str = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7d";

    #[test]
    fn every_rule_can_be_compiled_and_its_markers_are_as_they_are_looked_for() {
        for rule in &RULES {
            Regex::new(rule.pattern).unwrap_or_else(|error| panic!("{}: {error}", rule.name));
            for marker in rule.markers {
                assert!(!rule.any_case || !marker.bytes().any(|byte| byte.is_ascii_uppercase()), "{marker}");
            }
            let name = format!("[redacted:{}]", rule.name);
            assert!(is_marker(&name), "{name}");
        }
    }

    #[test]
    fn secrets_are_replaced_and_the_rest_stays() {
        for (text, expected) in [
            (format!("key sk-ant-api03-{A40}-x."), "key [redacted:api-key]."),
            (format!("sk-proj-{A40}"), "[redacted:api-key]"),
            (format!("OPENAI_API_KEY=sk-{A40}"), "OPENAI_API_KEY=[redacted:api-key]"),
            (format!("(ghp_{A40})"), "([redacted:github-token])"),
            (format!("a ghs_{A40}, b"), "a [redacted:github-token], b"),
            (format!("github_pat_11ABC_{A40}"), "[redacted:github-token]"),
            ("glpat-abcDEF123_456-789xyz".to_owned(), "[redacted:gitlab-token]"),
            ("id AKIAABCDEFGHIJKLMNOP here".to_owned(), "id [redacted:aws-key-id] here"),
            ("ASIAABCDEFGHIJKLMN12".to_owned(), "[redacted:aws-key-id]"),
            (format!("aws_secret_access_key = {A40}"), "aws_secret_access_key = [redacted:aws-secret]"),
            (format!("\"SecretAccessKey\": \"{A40}\""), "\"SecretAccessKey\": \"[redacted:aws-secret]\""),
            (format!("AIza{}", &A40[..35]), "[redacted:google-key]"),
            ("xoxb-123456789012-abcdefABCDEF".to_owned(), "[redacted:slack-token]"),
            (
                "https://hooks.slack.com/services/T0000/B0000/abcdefgh12345678 ok".to_owned(),
                "https://hooks.slack.com/services/[redacted:slack-webhook] ok",
            ),
            (format!("sk_live_{A40}"), "[redacted:stripe-key]"),
            (format!("rk_live_{A40}"), "[redacted:stripe-key]"),
            (format!("whsec_{A40}"), "[redacted:stripe-key]"),
            (format!("//registry/:_authToken=npm_{A40}"), "//registry/:_authToken=[redacted:npm-token]"),
            (
                "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123 end".to_owned(),
                "jwt [redacted:jwt] end",
            ),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb".to_owned(),
                "a\n[redacted:private-key]\nb",
            ),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl".to_owned(), "[redacted:private-key]"),
            ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nx".to_owned(), "[redacted:private-key]"),
            (
                "curl -H 'Authorization: Bearer abcdef-ghijkl' x".to_owned(),
                "curl -H 'Authorization: Bearer [redacted:authorization]' x",
            ),
            ("AUTHORIZATION: basic dXNlcjpwYXNz".to_owned(), "AUTHORIZATION: basic [redacted:authorization]"),
            ("send bearer 0123456789abcdef".to_owned(), "send bearer [redacted:bearer]"),
            (
                "postgres://me:s3cr%40t@db.example.com/x".to_owned(),
                "postgres://me:[redacted:url-password]@db.example.com/x",
            ),
            ("redis://:hunter2@[::1]:6379".to_owned(), "redis://:[redacted:url-password]@[::1]:6379"),
            ("amqp://u:p@ss@host/".to_owned(), "amqp://u:[redacted:url-password]@host/"),
            ("password=correcthorse next".to_owned(), "password=[redacted:secret] next"),
            ("DB_PASSWORD=hunter2hunter2\nX=1".to_owned(), "DB_PASSWORD=[redacted:secret]\nX=1"),
            ("api_key: \"abcdefgh\"".to_owned(), "api_key: \"[redacted:secret]\""),
            ("SECRET_TOKEN=abcdefgh".to_owned(), "SECRET_TOKEN=[redacted:secret]"),
            ("x-Api-Key: abcdefg1".to_owned(), "x-Api-Key: [redacted:secret]"),
            (
                "accessKey='abcdefgh' authkey=abcdefgh".to_owned(),
                "accessKey='[redacted:secret]' authkey=[redacted:secret]",
            ),
            ("client_secret: 'pass word 1'".to_owned(), "client_secret: '[redacted:secret]'"),
            ("password: hunter2hunter2".to_owned(), "password: [redacted:secret]"),
            ("Password = hunter2hunter2;".to_owned(), "Password = [redacted:secret];"),
            ("?token=abcdefgh&x=1".to_owned(), "?token=[redacted:secret]&x=1"),
            (r#"{"password":"hunter22"}"#.to_owned(), r#"{"password":"[redacted:secret]"}"#),
            (
                r#"{\"apiKey\":\"hunter22\",\"b\":1}"#.to_owned(),
                r#"{\"apiKey\":\"[redacted:secret]\",\"b\":1}"#,
            ),
            (r#"{"secret":"tab\there12","b":"x"}"#.to_owned(), r#"{"secret":"[redacted:secret]","b":"x"}"#),
            (format!("token=\"{}\"", "x1".repeat(5000)), "token=\"[redacted:secret]\""),
            (format!("token={} y", "x1".repeat(5000)), "token=[redacted:secret] y"),
            ("é password=ünïcödé-123 ü".to_owned(), "é password=[redacted:secret] ü"),
            // The first is none, but hides none.
            ("token: password=hunter22 x".to_owned(), "token: [redacted:secret] x"),
            (
                "secret: tokenizer password=abcdefgh".to_owned(),
                "secret: tokenizer password=[redacted:secret]",
            ),
            // Two rules at one place are one secret, and nothing of it stays.
            (format!("password=sk-{A40}!rest"), "password=[redacted:api-key]"),
        ] {
            assert_eq!(redacted(&text), expected, "{text}");
        }
    }

    #[test]
    fn code_and_prose_stay_as_they_are() {
        for text in [
            "",
            "the task-list and the risk-based-approach-to-everything-2024",
            "class sk-estimator-doc-link-fitted-2 and sk-toggleable__content",
            "Please enter your password: it must have eight characters.",
            "The password is checked, the token: expired, the secret: nobody knows",
            "123e4567-e89b-12d3-a456-426614174000",
            "commit 9f74a1ffb0c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6",
            "let token = self.next_token()?;",
            "let password = get_password_from_env();",
            "fn check(token: &str, secret: SecretString, key: Vec<u8>) -> Result<Token>",
            "password: Option<String>, token: crate::auth::Token12",
            "connect(password=self.password, token=next_token)",
            "password=$PASSWORD token=${TOKEN} secret=<your-secret-1> api_key=YOUR_API_KEY1",
            "password=******** token=xxxxxxxx api_key=changeme123",
            "api_key: process.env.OPENAI_API_KEY1",
            "Authorization: Bearer $TOKEN",
            "Authorization: Bearer <token12345>",
            "the bearer of this letter, bearer authentication-is-required",
            "\"input_tokens\": 12345678, \"max_tokens\": 10000000, token_count=12345678",
            "\"token\": \"the token {} has expired\"",
            "https://example.com:8080/path?user=me@example.com",
            "https://example.com:8080?mail=me@example.com",
            "ssh://git@example.com:22/x and git@example.com:org/repo.git",
            "postgres://me:${PASSWORD}@db/x",
            "eyJ is how they begin; eyJhbGciOiJIUzI1NiJ9 alone is a header",
            "AKIA and AKIASHORT, NAKIAABCDEFGHIJKLMNOP",
            "npm_config_registry, npm_lifecycle_event, ghp_short",
            "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
            "-----BEGIN PUBLIC KEY-----\nMIID\n-----END PUBLIC KEY-----",
            "keyboard: mechanical12 monkey=12345678 keys: abcdefgh1",
        ] {
            let (clean, count) = Redactor::default().redact_counted(text);
            assert_eq!((clean.as_ref(), count), (text, 0));
            assert!(matches!(clean, Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn they_are_counted() {
        let text = format!("a sk-{A40} b password=hunter22 c sk-{A40}");
        assert_eq!(Redactor::default().redact_counted(&text).1, 3);
    }

    #[test]
    fn the_users_own_patterns_are_taken_whole_or_by_their_group() {
        let own = |pattern: &str| Redactor::new(&[pattern.to_owned()]);
        assert_eq!(own("ACME-[0-9]+").unwrap().redact("x ACME-12 y"), "x [redacted:custom] y");
        assert_eq!(own("pin (?P<secret>[0-9]+)").unwrap().redact("pin 1234"), "pin [redacted:custom]");
        assert_eq!(own("(?s).+").unwrap().redact("all\nof it"), "[redacted:custom]");
        assert_eq!(own("redacted").unwrap().redact("password=abcdefgh"), "password=[redacted:secret]");
        assert!(matches!(own("("), Err(BadPattern::Syntax { .. })));
        assert!(matches!(own("a*"), Err(BadPattern::Empty(_))));
        assert!(own("(").unwrap_err().to_string().contains("`(`"));
    }

    #[test]
    fn strings_of_json_are_redacted_and_the_names_of_fields_tell_what_they_are() {
        let mut value = json!({
            "command": "curl -H \"Authorization: Bearer abcdef-123456\"",
            "env": {"DB_PASSWORD": "hunter22 x", "apiKey": ["abcdefgh", "short"], "token": "$TOKEN_OF_MINE"},
            "password=abcdefgh": 1,
            "tokens": "abcdefgh",
            "secret": {"note": "a plain note"},
            "n": [null, true, 1.5],
        });
        let count = Redactor::default().redact_json(&mut value);
        let expected = json!({
            "command": "curl -H \"Authorization: Bearer [redacted:authorization]\"",
            "env": {
                "DB_PASSWORD": "[redacted:secret]",
                "apiKey": ["[redacted:secret]", "short"],
                "token": "$TOKEN_OF_MINE",
            },
            "password=abcdefgh": 1,
            "tokens": "abcdefgh",
            "secret": {"note": "a plain note"},
            "n": [null, true, 1.5],
        });
        assert_eq!((&value, count), (&expected, 3));
        assert_eq!(Redactor::default().redact_json(&mut value), 0);
        assert_eq!(value, expected);
    }

    #[test]
    fn a_text_made_to_be_slow_is_not() {
        for text in
            ["token=", "token: ", "password=\"a", "eyJ", "-----BEGIN PRIVATE KEY", "://a:", "[redacted:a"]
        {
            redacted(&text.repeat((1 << 20) / text.len()));
        }
        // Many markers and many secrets.
        redacted(&"password=abcdefgh [redacted:secret] ".repeat(20_000));
    }

    fn secret() -> impl Strategy<Value = (String, String)> {
        prop_oneof![
            "[A-Za-z0-9]{24}[0-9]".prop_map(|s| (format!("sk-ant-{s}"), s)),
            "[A-Za-z0-9]{36}".prop_map(|s| (format!("ghp_{s}"), s)),
            "[A-Z0-9]{16}".prop_map(|s| (format!("AKIA{s}"), s)),
            "[A-Za-z0-9]{16}".prop_map(|s| (format!("glpat-{s}"), s)),
            "[A-Za-z0-9-]{24}".prop_map(|s| (format!("xoxb-{s}"), s)),
            "[A-Za-z0-9+=]{24}[0-9]".prop_map(|s| (format!("Authorization: Bearer {s}"), s)),
            "[A-Za-z0-9!$%^*]{12}[A-Z][0-9]".prop_map(|s| (format!("https://me:p{s}@host"), s)),
            "[a-z]{9}[A-Z0-9]{6}[0-9]".prop_map(|s| (format!("DB_PASSWORD={s}"), s)),
            "[a-z]{9}[A-Z0-9]{6}[0-9]".prop_map(|s| (format!("{{\\\"api_key\\\": \\\"{s}\\\"}}"), s)),
            "[A-Za-z0-9+/\n]{60}".prop_map(|s| (format!("-----BEGIN EC PRIVATE KEY-----\n{s}"), s)),
        ]
    }

    const PIECES: &str = r#"(password|token=|api_key: |"|'|\\|=|:|sk-|://|@|eyJ|\.|AKIA|Bearer |authorization: |\[redacted:|\[redacted:jwt\]|\]|-----BEGIN PRIVATE KEY-----|é| |
|[a-z0-9]{1,12}){0,25}"#;

    proptest! {
        #[test]
        fn what_is_planted_is_gone(before in "([a-zé]{1,6}[ \n]){0,5}", planted in secret(), after in "([ \n][a-zé]{1,6}){0,5}") {
            let (text, secret) = planted;
            let clean = redacted(&format!("{before}{text}{after}"));
            prop_assert!(!clean.contains(&secret), "{clean}");
            prop_assert!(clean.starts_with(&before), "{clean}");
        }

        #[test]
        fn a_second_time_changes_nothing(text in PIECES) {
            let once = redacted(&text);
            prop_assert_eq!(redacted(&once), once);
        }
    }
}
