//! Answers of the server taken apart.

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use redis::Value;

use crate::error::strange;

pub(crate) fn list(value: Value) -> StoreResult<Vec<Value>> {
    match value {
        Value::Array(items) | Value::Set(items) => Ok(items),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()),
        Value::Nil => Ok(Vec::new()),
        other => Err(strange(&format!("{other:?} in place of a list"))),
    }
}

/// Nothing for a missing value.
pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        Value::Double(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

pub(crate) fn text(value: Value) -> Option<String> {
    bytes(value).and_then(|bytes| String::from_utf8(bytes).ok())
}

pub(crate) fn number(value: Value) -> StoreResult<i64> {
    match value {
        Value::Int(number) => Ok(number),
        other => {
            let parsed = text(other).and_then(|text| whole(&text));
            parsed.ok_or_else(|| strange("something in place of a number"))
        }
    }
}

/// A number without sign.
pub(crate) fn count(value: Value) -> StoreResult<u64> {
    u64::try_from(number(value)?).map_err(|_| strange("a negative count"))
}

/// Scores are told as text, and whole numbers of ours are exact in them.
fn whole(text: &str) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "scores of ours are whole numbers below 2^53")]
    text.parse::<i64>().ok().or_else(|| text.parse::<f64>().ok().map(|score| score as i64))
}

pub(crate) fn time(value: Value) -> StoreResult<Timestamp> {
    number(value).map(Timestamp::from_millis)
}
