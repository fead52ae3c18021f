//! Shelves: small documents beside the lanes, such as the tokens of an API or the presence of workers.
//!
//! A shelf is a short list that every process of a store sees: whoever wants to know something of all others reads it
//! whole. So it is bounded, in number and in size, and it is no place for work: what has to be done is an event in a lane.
//!
//! A document that is over ([`Document::is_live`] says no) is as good as gone from that very millisecond on, by the clock
//! of the store. When its row goes is nobody's concern.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::error::{ErrorKind, StoreError, StoreResult};
use crate::limits;

/// Which shelf; each has its own bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shelf {
    /// Who may call the API.
    Tokens,
    /// Which workers there are.
    Workers,
    /// What webhooks have brought lately.
    Deliveries,
    /// Which databases make up the store, and which of them has which lanes; empty where there is one (`quell-store-many`).
    Map,
}

impl Shelf {
    /// All of them.
    pub const ALL: [Shelf; 4] = [Shelf::Tokens, Shelf::Workers, Shelf::Deliveries, Shelf::Map];

    /// The name by which stores know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Shelf::Tokens => "tokens",
            Shelf::Workers => "workers",
            Shelf::Deliveries => "deliveries",
            Shelf::Map => "map",
        }
    }

    /// How large a document of this shelf may be, as JSON.
    pub fn body_bytes_max(self) -> usize {
        match self {
            Shelf::Tokens | Shelf::Workers | Shelf::Map => limits::SHELF_BODY_BYTES_MAX,
            Shelf::Deliveries => limits::SHELF_DELIVERY_BYTES_MAX,
        }
    }

    /// The shelf of this name; a store that names another was written by a newer program.
    pub fn parse(name: &str) -> StoreResult<Self> {
        Shelf::ALL.into_iter().find(|shelf| shelf.as_str() == name).ok_or_else(|| {
            let detail = format!("there is no shelf {name:?}; was it written by a newer version of Quell?");
            StoreError::new(ErrorKind::Corrupt, detail)
        })
    }
}

/// What stands on a shelf under a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its name on the shelf.
    pub name: String,
    /// What it says.
    pub body: Value,
    /// When it was put there, by the clock of the store.
    pub put_at: Timestamp,
    /// Gone from this moment on; nothing when it stays until it is removed.
    pub expires_at: Option<Timestamp>,
}

impl Document {
    /// Whether it is there for anybody who looks now.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

/// One thing to do on a shelf.
#[derive(Debug, Clone)]
pub struct ShelfRequest {
    /// Which one.
    pub shelf: Shelf,
    /// What to do there.
    pub action: ShelfAction,
}

/// What can be done on a shelf.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum ShelfAction {
    /// Makes or replaces the document of this name. With `ttl` it is gone after that time, by the store's clock.
    Put {
        name: String,
        body: Value,
        ttl: Option<Duration>,
        /// Refuse with [`ErrorKind::Conflict`] when a live one of that name exists.
        only_new: bool,
    },
    /// Takes a document away.
    Remove { name: String },
    /// All live documents, by name (byte order).
    List,
}

impl ShelfAction {
    /// The name of the document that it changes.
    pub fn name(&self) -> Option<&str> {
        match self {
            ShelfAction::Put { name, .. } | ShelfAction::Remove { name } => Some(name),
            ShelfAction::List => None,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum ShelfAnswer {
    /// It is there now.
    Put,
    /// False when there was no live document of that name.
    Removed(bool),
    /// Those that were asked for.
    Documents(Vec<Document>),
}

impl ShelfRequest {
    /// The checks that need no store.
    pub fn check(&self) -> StoreResult<()> {
        let Some(name) = self.action.name() else { return Ok(()) };
        if name.is_empty() || name.len() > limits::SHELF_NAME_BYTES_MAX || name.contains('\0') {
            let max = limits::SHELF_NAME_BYTES_MAX;
            let text = format!("the name of a document has 1 to {max} bytes and no NUL");
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        match &self.action {
            ShelfAction::Put { body, ttl, .. } => check_document(self.shelf, name, body, *ttl),
            ShelfAction::Remove { .. } | ShelfAction::List => Ok(()),
        }
    }
}

fn check_document(shelf: Shelf, name: &str, body: &Value, ttl: Option<Duration>) -> StoreResult<()> {
    if is_deeper(body, limits::SHELF_BODY_DEPTH_MAX) {
        let max = limits::SHELF_BODY_DEPTH_MAX;
        let text = format!("document {name:?} is nested deeper than {max} levels");
        return Err(StoreError::new(ErrorKind::Invalid, text));
    }
    let (size, max) = (body.to_string().len(), shelf.body_bytes_max());
    if size > max {
        let text = format!("document {name:?} has {size} bytes; at most {max} are kept");
        return Err(StoreError::new(ErrorKind::Limit, text));
    }
    if ttl.is_some_and(|ttl| ttl > limits::SHELF_TTL_MAX) {
        let text = format!("document {name:?} is to be kept for more than 366 days: leave the time out");
        return Err(StoreError::new(ErrorKind::Limit, text));
    }
    Ok(())
}

/// Whether it has more levels than these; it stops where they end.
fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(values) => values.iter().any(|value| is_deeper(value, levels - 1)),
        Value::Object(fields) => fields.values().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

/// The answer to a document that was to be new.
pub fn document_exists(shelf: Shelf, name: &str) -> StoreError {
    let detail = format!("there is a document {name:?} among the {} already; it stays", shelf.as_str());
    StoreError::new(ErrorKind::Conflict, detail)
}

/// The answer to one document too many.
pub fn shelf_full(shelf: Shelf) -> StoreError {
    let (max, shelf) = (limits::SHELF_DOCUMENTS_MAX, shelf.as_str());
    let detail = format!("there are {max} {shelf} already; nothing was stored, remove one that nobody needs");
    StoreError::new(ErrorKind::Limit, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(name: &str, body: Value, ttl: Option<Duration>) -> ShelfRequest {
        let action = ShelfAction::Put { name: name.to_owned(), body, ttl, only_new: false };
        ShelfRequest { shelf: Shelf::Tokens, action }
    }

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!([]), |inner, _| json!([inner]))
    }

    #[test]
    fn shelves_are_known_by_the_same_name_everywhere() {
        for shelf in Shelf::ALL {
            assert_eq!(Shelf::parse(shelf.as_str()), Ok(shelf));
            assert_eq!(serde_json::to_value(shelf).unwrap(), json!(shelf.as_str()));
        }
        assert_eq!(Shelf::parse("books").unwrap_err().kind, ErrorKind::Corrupt);
    }

    #[test]
    fn a_document_is_over_at_the_very_millisecond_and_not_before() {
        let at = Timestamp::from_millis;
        let document =
            Document { name: "a".into(), body: json!(1), put_at: at(0), expires_at: Some(at(1_000)) };
        assert!(document.is_live(at(999)) && !document.is_live(at(1_000)));
        assert!(Document { expires_at: None, ..document }.is_live(at(i64::MAX)));
    }

    #[test]
    fn what_a_document_may_be_is_checked_to_the_byte() {
        let kind = |request: ShelfRequest| request.check().map_err(|error| error.kind);
        assert_eq!(kind(put("a", json!(null), None)), Ok(()));
        for name in ["", "a\0b", &"x".repeat(limits::SHELF_NAME_BYTES_MAX + 1)] {
            assert_eq!(kind(put(name, json!(1), None)), Err(ErrorKind::Invalid), "{name:?}");
            let action = ShelfAction::Remove { name: name.to_owned() };
            let remove = ShelfRequest { shelf: Shelf::Workers, action };
            assert_eq!(kind(remove), Err(ErrorKind::Invalid), "{name:?}");
        }
        assert_eq!(kind(put(&"x".repeat(limits::SHELF_NAME_BYTES_MAX), json!(1), None)), Ok(()));
        let body = |bytes: usize| json!("x".repeat(bytes - 2));
        assert_eq!(kind(put("a", body(limits::SHELF_BODY_BYTES_MAX), None)), Ok(()));
        assert_eq!(kind(put("a", body(limits::SHELF_BODY_BYTES_MAX + 1), None)), Err(ErrorKind::Limit));
        let delivery =
            |bytes: usize| ShelfRequest { shelf: Shelf::Deliveries, ..put("a", body(bytes), None) };
        assert_eq!(kind(delivery(limits::SHELF_DELIVERY_BYTES_MAX)), Ok(()));
        assert_eq!(kind(delivery(limits::SHELF_DELIVERY_BYTES_MAX + 1)), Err(ErrorKind::Limit));
        assert_eq!(kind(put("a", nested(limits::SHELF_BODY_DEPTH_MAX), None)), Ok(()));
        assert_eq!(kind(put("a", nested(limits::SHELF_BODY_DEPTH_MAX + 1), None)), Err(ErrorKind::Invalid));
        assert_eq!(kind(put("a", json!(1), Some(limits::SHELF_TTL_MAX))), Ok(()));
        let longer = limits::SHELF_TTL_MAX + Duration::from_millis(1);
        assert_eq!(kind(put("a", json!(1), Some(longer))), Err(ErrorKind::Limit));
    }
}
