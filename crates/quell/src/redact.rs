//! What the dashboard does not show of payloads: members of JSON by their place or by their name.
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
    fn a_rule_that_hides_everything_or_nothing_is_refused() {
        for text in ["", " ", "*", "/", "**", "/*", "//"] {
            assert!(RedactRule::parse(text).is_err(), "{text:?}");
        }
    }
}
