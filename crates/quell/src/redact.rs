//! What the dashboard does not show of payloads: members of JSON by their place or by their name. Texts that are no JSON,
//! such as errors, are gone through for the same names.
//!
//! `/card/number` is that place, with `*` for any one step: `/items/*/price`. Anything that does not begin with `/` is the name
//! of a member wherever it stands, in any case of letters, with `*` for any letters: `*token*`. What is found is replaced as a
//! whole, whatever is below it. It is a matter of looking only: stores, handlers and the API have everything.

use serde_json::Value;

/// What stands in the place of what is not shown.
pub const REDACTED: &str = "[redacted]";

/// One rule as it is written in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedactRule {
    /// The steps of a JSON pointer; nothing means any one step.
    Place(Vec<Option<String>>),
    /// The parts of a name between its stars, in small letters.
    Name(Vec<String>),
}

impl RedactRule {
    /// Reads one rule, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<RedactRule, String> {
        let trimmed = text.trim();
        if trimmed.trim_matches(['*', '/']).is_empty() {
            return Err(format!("{text:?} would hide everything or nothing"));
        }
        Ok(match trimmed.strip_prefix('/') {
            Some(steps) => RedactRule::Place(steps.split('/').map(step).collect()),
            None => RedactRule::Name(trimmed.to_lowercase().split('*').map(str::to_owned).collect()),
        })
    }

    fn is_named(&self, name: &str) -> bool {
        let RedactRule::Name(parts) = self else { return false };
        let name = name.to_lowercase();
        let [first, middle @ .., last] = parts.as_slice() else {
            return parts.first().is_some_and(|whole| *whole == name);
        };
        let Some(mut rest) = name.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            let Some(found) = rest.find(part.as_str()) else { return false };
            rest = &rest[found + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

/// In a pointer `~1` is a slash and `~0` a tilde.
fn step(text: &str) -> Option<String> {
    (text != "*").then(|| text.replace("~1", "/").replace("~0", "~"))
}

/// Whether a header or another text of this name is hidden.
pub fn hides_name(rules: &[RedactRule], name: &str) -> bool {
    rules.iter().any(|rule| rule.is_named(name))
}

/// Replaces what the rules name; whether there was anything.
pub fn redact(rules: &[RedactRule], value: &mut Value) -> bool {
    let places = rules.iter().filter_map(|rule| match rule {
        RedactRule::Place(steps) => Some(steps.as_slice()),
        RedactRule::Name(_) => None,
    });
    hide(rules, &places.collect::<Vec<_>>(), value)
}

/// `places` are what is left of those whose steps so far have led here.
fn hide(rules: &[RedactRule], places: &[&[Option<String>]], value: &mut Value) -> bool {
    if places.iter().any(|left| left.is_empty()) {
        *value = Value::from(REDACTED);
        return true;
    }
    let below = |step: &str| -> Vec<&[Option<String>]> {
        let fits = |left: &&[Option<String>]| left[0].as_deref().is_none_or(|wanted| wanted == step);
        places.iter().copied().filter(fits).map(|left| &left[1..]).collect()
    };
    let mut found = false;
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if hides_name(rules, name) {
                    *member = Value::from(REDACTED);
                    found = true;
                } else {
                    found |= hide(rules, &below(name), member);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                found |= hide(rules, &below(&index.to_string()), item);
            }
        }
        _ => {}
    }
    found
}

/// The same for a text that is no JSON, such as an error or what a program printed: what stands behind a hidden name and a
/// `=` or `:` is replaced. Of a place its last name counts. Rather too much is hidden than too little: after a colon, up to
/// the end of the line.
pub fn redact_text(rules: &[RedactRule], text: &str) -> String {
    if rules.is_empty() {
        return text.to_owned();
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(['=', ':']) {
        let (before, behind) = (&rest[..at], &rest[at + 1..]);
        shown.push_str(&rest[..=at]);
        let taken = if hides_word(rules, last_word(before)) { value_len(&rest[at..=at], behind) } else { 0 };
        if taken > 0 {
            shown.push_str(REDACTED);
        }
        rest = &behind[taken..];
    }
    shown.push_str(rest);
    shown
}

/// The name at the end of a text, without its quotes.
fn last_word(before: &str) -> &str {
    let end = before.trim_end_matches([' ', '\t', '"', '\'', '\\']);
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    end.rsplit(|c| !part(c)).next().unwrap_or_default()
}

fn hides_word(rules: &[RedactRule], word: &str) -> bool {
    let last = word.rsplit('.').next().unwrap_or_default();
    let is_place = |rule: &RedactRule| match rule {
        RedactRule::Place(steps) => steps.iter().flatten().next_back().is_some_and(|name| name == last),
        RedactRule::Name(_) => false,
    };
    !word.is_empty() && (hides_name(rules, word) || hides_name(rules, last) || rules.iter().any(is_place))
}

/// How long the value is that stands behind a name: a quotation, all within brackets, or up to what ends it.
fn value_len(separator: &str, text: &str) -> usize {
    let start = text.len() - text.trim_start_matches([' ', '\t', '\\']).len();
    let value = &text[start..];
    let Some(first) = value.chars().next() else { return 0 };
    let end = match first {
        '"' | '\'' => quotation_len(value, first, text[..start].ends_with('\\')),
        '{' | '[' => brackets_len(value),
        _ if separator == "=" => value.find(|c: char| c.is_whitespace() || ",;&\"')}]".contains(c)),
        _ => value.find(['\n', '\r', ',', ';', '"', '\'', '}', ']']),
    };
    start + end.unwrap_or(value.len())
}

/// With both quotes. A quotation within a quotation has a backslash before each of its quotes.
fn quotation_len(value: &str, quote: char, inner: bool) -> Option<usize> {
    let mut before = quote;
    for (at, c) in value.char_indices().skip(1) {
        if c == quote && (before == '\\') == inner {
            return Some(at + 1);
        }
        before = c;
    }
    None
}

fn brackets_len(value: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in value.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(rules: &[&str], mut value: Value) -> Value {
        let rules: Vec<_> = rules.iter().map(|rule| RedactRule::parse(rule).unwrap()).collect();
        redact(&rules, &mut value);
        value
    }

    #[test]
    fn a_place_is_hidden_and_nothing_else() {
        let card = json!({ "card": { "number": "4111", "name": "Ada" }, "number": 7 });
        assert_eq!(
            hidden(&["/card/number"], card.clone()),
            json!({ "card": { "number": REDACTED, "name": "Ada" }, "number": 7 })
        );
        assert_eq!(hidden(&["/card"], card), json!({ "card": REDACTED, "number": 7 }));
        let items = json!({ "items": [{ "price": 1 }, { "price": 2, "sku": "a" }] });
        assert_eq!(
            hidden(&["/items/*/price"], items.clone()),
            json!({ "items": [{ "price": REDACTED }, { "price": REDACTED, "sku": "a" }] })
        );
        assert_eq!(
            hidden(&["/items/1/sku"], items),
            json!({ "items": [{ "price": 1 }, { "price": 2, "sku": REDACTED }] })
        );
        assert_eq!(
            hidden(&["/a~1b/c~0d"], json!({ "a/b": { "c~d": 1 } })),
            json!({ "a/b": { "c~d": REDACTED } })
        );
    }

    #[test]
    fn a_name_is_hidden_wherever_it_stands() {
        let value = json!({ "accessToken": 1, "list": [{ "TOKEN": { "deep": 2 } }], "toke": 3 });
        assert_eq!(
            hidden(&["*token*"], value),
            json!({ "accessToken": REDACTED, "list": [{ "TOKEN": REDACTED }], "toke": 3 })
        );
        let value = json!({ "email": 1, "email_home": 2, "my_email": 3 });
        assert_eq!(hidden(&["email"], value.clone())["email_home"], 2);
        assert_eq!(
            hidden(&["email*"], value.clone()),
            json!({ "email": REDACTED, "email_home": REDACTED, "my_email": 3 })
        );
        assert_eq!(
            hidden(&["*email"], value),
            json!({ "email": REDACTED, "email_home": 2, "my_email": REDACTED })
        );
        let rule = RedactRule::parse("a*b*a").unwrap();
        assert!(hides_name(std::slice::from_ref(&rule), "aXbYa") && !hides_name(&[rule], "aba2"));
    }

    #[test]
    fn one_letter_does_not_stand_for_two_parts() {
        let rule = [RedactRule::parse("ab*b").unwrap()];
        assert!(!hides_name(&rule, "ab") && hides_name(&rule, "abb"));
    }

    #[test]
    fn in_a_text_what_stands_behind_a_hidden_name_is_hidden() {
        let rules: Vec<_> = ["*token*", "/card/number", "password", "authorization", "/who/*"]
            .map(|r| RedactRule::parse(r).unwrap())
            .into();
        for (text, shown) in [
            ("exit code 3: no such file", "exit code 3: no such file"),
            ("GET /x?access_token=abc&page=2 failed", "GET /x?access_token=[redacted]&page=2 failed"),
            ("password = hunter2, user=ada", "password =[redacted], user=ada"),
            ("Authorization: Bearer abc.def\nnext: line", "Authorization:[redacted]\nnext: line"),
            (r#"{"token":"a\"b","n":1}"#, r#"{"token":[redacted],"n":1}"#),
            (r#"{"card":{"number":"4111"},"n":1}"#, r#"{"card":{"number":[redacted]},"n":1}"#),
            (r#"said "{\"token\":\"abc\",\"n\":1}""#, r#"said "{\"token\":[redacted],\"n\":1}""#),
            ("{'token': {'a': [1, 2]}, 'b': 2}", "{'token':[redacted], 'b': 2}"),
            ("config.api_token=x y", "config.api_token=[redacted] y"),
            (r#"token: "cut in the mid"#, "token:[redacted]"),
            ("who: ada\n", "who:[redacted]\n"),
            ("token:", "token:"),
            ("ß=1 token=ü", "ß=1 token=[redacted]"),
        ] {
            assert_eq!(redact_text(&rules, text), shown, "{text}");
            assert_eq!(redact_text(&[], text), text);
        }
    }

    #[test]
    fn a_rule_that_hides_everything_or_nothing_is_refused() {
        for text in ["", " ", "*", "/", "**", "/*", "//"] {
            assert!(RedactRule::parse(text).is_err(), "{text:?}");
        }
    }
}
