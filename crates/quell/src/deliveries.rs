//! The inspector's memory: the last deliveries of webhooks, taken or refused, with the reason in full.
//!
//! They stand on a shelf of the store, so that every server, the command line and the dashboard see the same. The number of
//! places is fixed: a new one replaces the oldest, and what was taken has places of its own, which refusals cannot fill. It is
//! a window and no record: the events themselves are in their lanes, and the audit trail is elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{EventId, Key, LaneKey, QueueName, Tenant};
use quell_core::limits;
use quell_core::shelf::{Document, Shelf};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// Places for what was taken, and as many for what was refused. Read whole, they are 16 MiB at the very most.
const PLACES: usize = 128;
/// What a record may have of a body; with the rest of it and the escapes of JSON it stays within a document of the shelf.
const BODY_BYTES_MAX: usize = 36 * 1024;
/// Headers as a whole: the head of almost any request.
const HEADERS_BYTES_MAX: usize = 15 * 1024;
const TARGET_BYTES_MAX: usize = 1024;
/// Longer than any endpoint's name, so that what a stranger asked for never becomes one.
const ENDPOINT_BYTES_MAX: usize = 128;
/// Events that are named in a record, as a whole: one of any key and id always is.
const EVENTS_BYTES_MAX: usize = 6 * 1024;

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeliveryVerdict {
    /// Stored.
    Accepted,
    /// All of it was known already.
    Duplicate,
    /// Proven and understood, and nothing to do.
    Ignored,
    /// Not taken.
    Refused,
}

impl DeliveryVerdict {
    /// All of them, in the order of the documentation.
    pub const ALL: [DeliveryVerdict; 4] = [
        DeliveryVerdict::Accepted,
        DeliveryVerdict::Duplicate,
        DeliveryVerdict::Ignored,
        DeliveryVerdict::Refused,
    ];

    /// The word in JSON and in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryVerdict::Accepted => "accepted",
            DeliveryVerdict::Duplicate => "duplicate",
            DeliveryVerdict::Ignored => "ignored",
            DeliveryVerdict::Refused => "refused",
        }
    }
}

/// One delivery. Secrets are not in it: what a scheme calls confidential was replaced before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeliveryRecord {
    /// `dlv_…`
    pub id: String,
    /// The name in its address, also of one that is no endpoint.
    pub endpoint: String,
    /// How its sender proved itself, or should have.
    pub scheme: String,
    /// When it came, by the clock of the server that took it.
    pub received_at: Timestamp,
    /// When it first came, of one that was sent in again: its signature is judged by that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_at: Option<Timestamp>,
    /// The address that sent it.
    pub from: Option<String>,
    /// The method of the request, `POST` as a rule.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names and values, confidential ones replaced by `[redacted]`.
    pub headers: Vec<(String, String)>,
    /// Whether there were more than are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headers_are_cut: bool,
    /// As it came; base64 if it is not UTF-8.
    pub body: String,
    /// Whether `body` is base64, because the bytes are no text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub body_is_base64: bool,
    /// How many bytes came.
    pub body_bytes: usize,
    /// Whether only the beginning was kept, or nothing of a body that was too large to be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub body_is_cut: bool,
    /// What became of it.
    pub verdict: DeliveryVerdict,
    /// What was wrong, as programs compare it: `bad_signature`, `stale`, `no_key` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was wrong or why it was ignored, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The status that was answered.
    pub status: u16,
    /// Whether the sender has proven itself.
    pub proven: bool,
    /// Which of the endpoint's secrets it was, from 1; the first is the one to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<usize>,
    /// What became of it.
    pub events: Vec<DeliveredEvent>,
    /// The delivery that was sent in again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<String>,
    /// Who sent it in again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<String>,
}

/// An event that a delivery has brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeliveredEvent {
    /// The queue it went to.
    pub queue: QueueName,
    /// The key that was found in it.
    pub key: Key,
    /// Whose event it is.
    pub tenant: Tenant,
    /// The id it is stored under.
    pub event_id: EventId,
    /// The id was known already: nothing was stored.
    pub duplicate: bool,
    /// It was known with another payload, which stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
}

impl DeliveryRecord {
    /// Whether it can be sent in again from here: all of it is kept, and what is kept proves it.
    pub fn is_whole(&self) -> bool {
        !self.body_is_cut && !self.headers_are_cut
    }

    /// Within the bounds of a record.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        // A header is kept whole or not at all: with a part of it, a replay would find another key or a wrong signature.
        self.headers_are_cut |= keep_within(&mut self.headers, HEADERS_BYTES_MAX);
        keep_within(&mut self.events, EVENTS_BYTES_MAX);
        shorten(&mut self.endpoint, ENDPOINT_BYTES_MAX);
        shorten(&mut self.target, TARGET_BYTES_MAX);
        if let Some(detail) = &mut self.detail {
            shorten(detail, limits::ERROR_BYTES_MAX);
        }
        self.body_is_cut |= shorten(&mut self.body, BODY_BYTES_MAX);
        self
    }
}

/// Keeps the first ones that have so many bytes in JSON together; true when some were left out.
fn keep_within<T: Serialize>(list: &mut Vec<T>, most: usize) -> bool {
    let (all, mut taken) = (list.len(), 0);
    list.retain(|one| {
        taken += serde_json::to_string(one).map_or(0, |text| text.len() + 1);
        taken <= most
    });
    list.len() < all
}

/// Cuts by the length that the text has in JSON, where escapes make it longer; true when something was cut off.
fn shorten(text: &mut String, most: usize) -> bool {
    let mut length = 0;
    for (at, letter) in text.char_indices() {
        length += match letter {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            letter if letter.is_control() => 6,
            letter => letter.len_utf8(),
        };
        if length > most {
            text.truncate(at);
            return true;
        }
    }
    false
}

/// Which places come next: the oldest ones, in an order that two servers hardly share.
#[derive(Debug, Default)]
pub struct Places {
    taken: VecDeque<String>,
    refused: VecDeque<String>,
}

impl Places {
    fn of(&mut self, verdict: DeliveryVerdict) -> &mut VecDeque<String> {
        if verdict == DeliveryVerdict::Refused { &mut self.refused } else { &mut self.taken }
    }

    /// The older half of the places, in any order: whoever else writes at this moment rarely takes the same.
    fn order(letter: char, documents: &[Document], chance: impl Fn() -> u64) -> VecDeque<String> {
        let at = |name: &str| documents.iter().find(|found| found.name == name).map(|found| found.put_at);
        let mut places: Vec<String> = (0..PLACES).map(|n| format!("{letter}{n:03}")).collect();
        places.sort_by_key(|name| at(name));
        places.truncate(PLACES / 2);
        let mut mixed: Vec<(u64, String)> = places.into_iter().map(|name| (chance(), name)).collect();
        mixed.sort();
        mixed.into_iter().map(|(_, name)| name).collect()
    }
}

impl Engine {
    /// A name for a delivery that has just come.
    pub fn delivery_id(&self) -> String {
        let id = self.ids().event_id();
        format!("dlv_{}", id.as_str().trim_start_matches("evt_"))
    }

    /// The host's wall clock, for what is not the store's business.
    pub fn wall(&self) -> Timestamp {
        self.time().wall()
    }

    /// The last deliveries, newest first.
    pub async fn deliveries(&self) -> StoreResult<Vec<DeliveryRecord>> {
        let documents = self.documents(Shelf::Deliveries).await?;
        // One that a newer program wrote may be unreadable; it is not worth an error.
        let read = documents.into_iter().filter_map(|document| serde_json::from_value(document.body).ok());
        let mut records: Vec<DeliveryRecord> = read.collect();
        records.sort_by(|a, b| (b.received_at, &b.id).cmp(&(a.received_at, &a.id)));
        Ok(records)
    }

    /// One delivery by its id, if it is still remembered.
    pub async fn delivery(&self, id: &str) -> StoreResult<Option<DeliveryRecord>> {
        Ok(self.deliveries().await?.into_iter().find(|record| record.id == id))
    }

    /// Forgets the deliveries that brought events of this lane, or this one: their bodies are what is to be erased. Before the
    /// erase itself, which clears what a store has deleted from its files.
    pub(crate) async fn forget_deliveries(&self, lane: &LaneKey, id: Option<&EventId>) -> StoreResult<()> {
        let meant = |event: &DeliveredEvent| {
            let same = (&event.queue, &event.key, &event.tenant) == (&lane.queue, &lane.key, &lane.tenant);
            same && id.is_none_or(|id| event.event_id == *id)
        };
        for document in self.documents(Shelf::Deliveries).await? {
            let record: Option<DeliveryRecord> = serde_json::from_value(document.body).ok();
            if record.is_some_and(|record| record.events.iter().any(meant)) {
                self.remove_document(Shelf::Deliveries, &document.name).await?;
            }
        }
        Ok(())
    }

    /// Keeps a delivery in the next place; the oldest one goes.
    pub async fn keep_delivery(&self, places: &mut Places, record: DeliveryRecord) -> StoreResult<()> {
        if places.of(record.verdict).is_empty() {
            let documents = self.documents(Shelf::Deliveries).await?;
            let letter = if record.verdict == DeliveryVerdict::Refused { 'r' } else { 't' };
            *places.of(record.verdict) = Places::order(letter, &documents, || self.chance().number());
        }
        let Some(place) = places.of(record.verdict).pop_front() else { return Ok(()) };
        let Ok(body) = serde_json::to_value(record.bounded()) else { return Ok(()) };
        let ttl: Duration = self.settings().retention.min(limits::SHELF_TTL_MAX);
        self.put_document(Shelf::Deliveries, &place, body, Some(ttl), false).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body: String) -> DeliveryRecord {
        DeliveryRecord {
            id: "dlv_1".into(),
            endpoint: "github".into(),
            scheme: "github".into(),
            received_at: Timestamp::from_millis(0),
            first_at: None,
            from: None,
            method: "POST".into(),
            target: "/hooks/github".into(),
            headers: vec![("x-header".into(), "a value".into()); 64],
            headers_are_cut: false,
            body_bytes: body.len(),
            body,
            body_is_base64: false,
            body_is_cut: false,
            verdict: DeliveryVerdict::Accepted,
            reason: None,
            detail: Some("x".repeat(100_000)),
            status: 202,
            proven: true,
            secret: Some(1),
            events: Vec::new(),
            replay_of: None,
            replayed_by: None,
        }
    }

    #[test]
    fn a_record_of_anything_fits_on_its_shelf() {
        for body in ["x".repeat(9_000_000), "\"\u{1}".repeat(100_000), "🐌".repeat(50_000), "ab".to_owned()]
        {
            let kept = record(body.clone()).bounded();
            assert_eq!(kept.is_whole(), body.len() == 2);
            assert!(body.starts_with(&kept.body));
            let size = serde_json::to_string(&kept).unwrap().len();
            assert!(size <= Shelf::Deliveries.body_bytes_max(), "{size}");
        }
        let text = |n| "\u{1}".repeat(n);
        let event = DeliveredEvent {
            queue: QueueName::new("q".repeat(64)).unwrap(),
            key: Key::new(text(limits::KEY_BYTES_MAX)).unwrap(),
            tenant: Tenant::new(text(limits::TENANT_BYTES_MAX)).unwrap(),
            event_id: EventId::new(text(limits::EVENT_ID_BYTES_MAX)).unwrap(),
            duplicate: true,
            differs: true,
        };
        let largest = DeliveryRecord {
            endpoint: text(4_000),
            target: text(4_000),
            headers: vec![("x".repeat(30), "\"".repeat(200)); 64],
            events: vec![event; 3],
            ..record(text(100_000))
        };
        let kept = largest.bounded();
        assert!(kept.headers_are_cut && kept.headers.len() > 30, "{}", kept.headers.len());
        assert_eq!((kept.events.len(), kept.clone().bounded()), (1, kept.clone()));
        let size = serde_json::to_string(&kept).unwrap().len();
        assert!(size <= Shelf::Deliveries.body_bytes_max(), "{size}");
    }

    #[test]
    fn one_that_was_not_kept_whole_is_not_sent_in_again() {
        let whole = record("{}".to_owned());
        assert!(whole.clone().bounded().is_whole());
        let (body_is_cut, headers_are_cut) = (true, true);
        assert!(!DeliveryRecord { body_is_cut, ..whole.clone() }.bounded().is_whole());
        assert!(!DeliveryRecord { headers_are_cut, ..whole }.bounded().is_whole());
    }

    #[test]
    fn the_oldest_places_come_next_and_those_that_were_never_used_first() {
        let put = |n: usize| Document {
            name: format!("t{n:03}"),
            body: serde_json::Value::Null,
            put_at: Timestamp::from_millis(i64::try_from(n).unwrap()),
            expires_at: None,
        };
        let documents: Vec<Document> = (0..100).map(put).collect();
        let next = Places::order('t', &documents, || 4);
        assert_eq!(next.len(), PLACES / 2);
        let number = |name: &String| name[1..].parse::<usize>().unwrap();
        assert!(next.iter().map(number).all(|n| !(36..100).contains(&n)), "{next:?}");
        assert!((100..PLACES).all(|n| next.contains(&format!("t{n:03}"))));
    }
}
