//! Places in a JSON document (RFC 6901), checked when a configuration is read: `/items/0/price`, with `~1` for a slash in a
//! name and `~0` for a tilde. The empty one is the whole document.

use std::fmt;

/// Deeper pointers are a mistake; each step reads its part of the document once.
const STEPS_MAX: usize = 32;

/// A text that names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no JSON pointer: write a slash before each name, as in \"/price/value\"")]
pub struct BadPointer {
    /// What is no pointer.
    pub text: String,
}

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
}

impl Pointer {
    /// Reads a pointer: empty, or `/` before each name.
    pub fn parse(text: &str) -> Result<Pointer, BadPointer> {
        let bad = || BadPointer { text: text.chars().take(80).collect() };
        let steps: Vec<String> = match text.strip_prefix('/') {
            None if text.is_empty() => Vec::new(),
            None => return Err(bad()),
            Some(rest) => {
                rest.split('/').map(|step| unescaped(step).ok_or_else(bad)).collect::<Result<_, _>>()?
            }
        };
        if steps.len() > STEPS_MAX {
            return Err(bad());
        }
        Ok(Pointer { text: text.to_owned(), steps })
    }

    /// The names, and the numbers in lists, from the outside to the inside.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }
}

/// As it was written.
impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescaped(step: &str) -> Option<String> {
    let mut parts = step.split('~');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = match (part.strip_prefix('0'), part.strip_prefix('1')) {
            (Some(rest), _) => ('~', rest),
            (_, Some(rest)) => ('/', rest),
            _ => return None,
        };
        plain.push(escaped);
        plain.push_str(rest);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_read_as_the_standard_says() {
        for (text, steps) in [
            ("", &[][..]),
            ("/", &[""]),
            ("/a/0/b", &["a", "0", "b"]),
            ("/a~1b/c~0d/~01", &["a/b", "c~d", "~1"]),
            ("/a b/ä", &["a b", "ä"]),
        ] {
            let pointer = Pointer::parse(text).unwrap();
            assert_eq!(pointer.steps(), steps, "{text}");
            assert_eq!(pointer.to_string(), text);
        }
        for text in ["a", "price/value", "/a~", "/a~2", "$.items", &"/a".repeat(33)] {
            assert!(Pointer::parse(text).unwrap_err().to_string().contains("is no JSON pointer"), "{text}");
        }
    }
}
