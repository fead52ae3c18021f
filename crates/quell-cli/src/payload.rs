//! A payload as it was typed: JSON in an argument, JSON on stdin, or plain text.

use std::io::Read;

use quell::quell_core::event::{Invalid, Payload};
use quell::quell_core::limits;

use crate::failure::{self, Failure};
use crate::output;

/// `-` is stdin.
pub(crate) fn json(given: &str) -> Result<Payload, Failure> {
    let bytes = bytes_of(given)?;
    Payload::from_json(&bytes).map_err(|invalid| explain(&invalid, given))
}

/// Plain text, stored as a JSON string.
pub(crate) fn text(given: &str) -> Result<Payload, Failure> {
    let text = String::from_utf8(bytes_of(given)?)
        .map_err(|_| Failure::new(failure::USAGE, "the text on stdin is not UTF-8"))?;
    Ok(Payload::of(&serde_json::Value::String(text)))
}

/// What stands for nothing: an empty object.
pub(crate) fn empty() -> Payload {
    Payload::of(&serde_json::json!({}))
}

fn bytes_of(given: &str) -> Result<Vec<u8>, Failure> {
    if given != "-" {
        return Ok(given.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that too much is noticed without reading all of it.
    let most = u64::try_from(limits::PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The usual mistake is a text without quotes, or quotes that the shell has eaten.
fn explain(invalid: &Invalid, given: &str) -> Failure {
    let refused = Failure::new(failure::USAGE, invalid.to_string());
    if given == "-" {
        return refused;
    }
    let as_string = serde_json::Value::String(given.to_owned()).to_string();
    refused.help(format!(
        "JSON goes in single quotes, like '{{\"text\":\"hi\"}}'; for plain text add --text, or write {}",
        output::quoted(&as_string)
    ))
}
