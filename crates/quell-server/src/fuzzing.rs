//! Two parsers of this crate for `quell-fuzz`, which sends them what nobody would write.

use http::HeaderMap;

use crate::error::Problem;
use crate::{body, cloudevents, dashboard};

/// What is read of a CloudEvent.
#[derive(Debug, PartialEq, Eq)]
pub struct CloudEvent {
    pub id: String,
    pub key: String,
    /// In its structured form.
    pub payload: String,
}

/// The events of a request, or why it is refused.
pub fn cloud_events(headers: &HeaderMap, bytes: &[u8]) -> Result<Vec<CloudEvent>, String> {
    let read = || cloudevents::read(&body::media_type(headers)?, headers, bytes);
    let events = read().map_err(|problem: Problem| problem.detail().to_owned())?;
    let told = events.into_iter().map(|event| {
        let payload = event.payload.as_str().to_owned();
        CloudEvent { id: event.id, key: event.key, payload }
    });
    Ok(told.collect())
}

/// What a filter of lanes asks for, or why it cannot be read.
pub fn lane_query(text: &str) -> Result<String, String> {
    dashboard::told_lane_query(text)
}

/// Writes a filter for a key that begins so and reads it.
///
/// # Panics
///
/// When it does not ask for what was written.
pub fn lane_words(key: &str) {
    dashboard::reread_lane_words(key);
}
