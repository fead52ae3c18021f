//! Single values as they stand in the file: a duration, a size, and any value with its place.
//!
//! Durations and sizes are checked while the file is parsed, so their errors carry line and column like a missing
//! bracket does. [`Written`] keeps the place for the checks that need more than one value (`resolve.rs`, `queue.rs`).

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

/// A value of the file and where it stands there, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    /// What was written.
    pub value: T,
    /// Where, in bytes of the file.
    pub span: Range<usize>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        Ok(Written { span: spanned.span(), value: spanned.into_inner() })
    }
}

impl<T: JsonSchema> JsonSchema for Written<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// A value that is either one word or a table of settings.
#[derive(Debug, Clone, PartialEq)]
pub enum WordOr<T> {
    /// One word, such as `"none"`.
    Word(String),
    /// A table with the particulars.
    Table(T),
}

/// Hand-written, because serde's `untagged` forgets the places inside the table.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = WordOr<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word in quotes or a table { … }")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<WordOr<T>, E> {
                Ok(WordOr::Word(word.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WordOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(WordOr::Table)
            }
        }
        deserializer.deserialize_any(Either(std::marker::PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for WordOr<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("WordOr{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, generator.subschema_for::<T>()] })
    }
}

/// One text, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany(pub Vec<String>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes or a list of them")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![text.to_owned()]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<OneOrMany, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(OneOrMany)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// As it would be written.
impl fmt::Display for OneOrMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "{one:?}"),
            many => write!(f, "{many:?}"),
        }
    }
}

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OneOrMany".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
        })
    }
}

/// A duration such as `"250ms"` or `"1m30s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationText(pub Duration);

impl DurationText {
    /// Reads units from ms to years. Milliseconds are the finest step that every store keeps.
    pub fn parse(text: &str) -> Result<Duration, String> {
        let example = "write for example \"250ms\", \"30s\" or \"1m30s\"";
        let duration = humantime::parse_duration(text.trim())
            .map_err(|e| format!("{text:?} is not a duration ({e}); {example}"))?;
        if !duration.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(format!("{text:?} is finer than a millisecond; {example}"));
        }
        Ok(duration)
    }

    /// As it would be written in the file.
    pub fn show(duration: Duration) -> String {
        let mut left = duration.as_millis();
        let mut text = String::new();
        for (unit, millis) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if left >= millis {
                text.push_str(&format!("{}{unit}", left / millis));
                left %= millis;
            }
        }
        if text.is_empty() { "0s".to_owned() } else { text }
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = DurationText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, in quotes, such as \"30s\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationText, E> {
                DurationText::parse(text).map(DurationText).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "duration text", "examples": ["250ms", "1m30s"] })
    }
}

/// A number of bytes: `"256KiB"`, `"1MiB"`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeText(pub u64);

/// The units, largest first, so that a value is shown in the largest one that divides it.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl SizeText {
    /// Hand-written: four units. Decimal units (`kB`, `MB`) are refused, because readers disagree about them.
    pub fn parse(text: &str) -> Result<u64, String> {
        let problem = |why: &str| {
            Err(format!("{text:?} is not a size ({why}); write for example \"256KiB\", \"1MiB\" or 65536"))
        };
        let trimmed = text.trim();
        let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = (&trimmed[..digits], trimmed[digits..].trim_start());
        let factor = match unit {
            "" => 1,
            _ => match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
                Some((_, factor)) => *factor,
                None => return problem("the units are B, KiB, MiB and GiB"),
            },
        };
        match number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)) {
            Some(bytes) => Ok(bytes),
            None if number.is_empty() => problem("it does not start with a whole number"),
            None => problem("it is too large"),
        }
    }

    /// As it would be written in the file.
    pub fn show(bytes: u64) -> String {
        let whole = UNITS.iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
        let (unit, factor) = whole.unwrap_or(&("B", 1));
        format!("{}{unit}", bytes / factor)
    }
}

impl<'de> Deserialize<'de> for SizeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = SizeText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"256KiB\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<SizeText, E> {
                SizeText::parse(text).map(SizeText).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<SizeText, E> {
                u64::try_from(bytes).map(SizeText).map_err(|_| E::custom("a size cannot be negative"))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for SizeText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "integer"], "format": "size text", "examples": ["256KiB", 65536] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_whole_milliseconds() {
        let ms = |text| DurationText::parse(text).map(|d| d.as_millis());
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("1m30s"), Ok(90_000));
        assert_eq!(ms("1m 30s"), Ok(90_000));
        assert_eq!(ms("7d"), Ok(604_800_000));
        assert_eq!(ms("0s"), Ok(0));
        assert_eq!(ms("1.5s"), Ok(1_500));
        for bad in ["", "10", "10 lightyears", "-1s", "10us", "1s!"] {
            let problem = ms(bad).unwrap_err();
            assert!(problem.contains("write for example"), "{bad:?}: {problem}");
        }
    }

    #[test]
    fn sizes_are_binary_and_exact() {
        assert_eq!(SizeText::parse("1MiB"), Ok(1 << 20));
        assert_eq!(SizeText::parse("256 kib"), Ok(256 << 10));
        assert_eq!(SizeText::parse("17"), Ok(17));
        assert_eq!(SizeText::parse("17B"), Ok(17));
        for bad in ["", "MiB", "1MB", "1.5MiB", "-1KiB", "99999999999GiB", "99999999999999999999"] {
            assert!(SizeText::parse(bad).unwrap_err().contains("write for example"), "{bad:?}");
        }
    }

    #[test]
    fn shown_values_read_back_as_the_same() {
        for bytes in [0, 1, 1000, 1024, 1536, 4 << 20, 3 << 30] {
            assert_eq!(SizeText::parse(&SizeText::show(bytes)), Ok(bytes));
        }
        for text in ["250ms", "1m30s", "0s", "7d", "1d2h3m4s5ms"] {
            assert_eq!(DurationText::show(DurationText::parse(text).unwrap()), text);
        }
    }
}
