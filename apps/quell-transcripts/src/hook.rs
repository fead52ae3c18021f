//! What happens at every hook event, in milliseconds: read, redact, store, and see that somebody works.
//!
//! The agent waits for this, so nothing here may fail it: every problem goes to a small log beside the database
//! (`journal.rs`), never to the agent. An event is stored in the database in one transaction; when another process holds
//! that for too long, or it is not there yet, the event is written to a file beside it (`spool.rs`) and brought in by the
//! next worker. Both are durable before the hook returns.

use std::fmt;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quell::clock::{Chance, Ids, RealTime};
use quell::open::append_briefly;
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::quell_core::event::{
    AppendPolicy, EventId, Invalid, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName,
};
use quell::{Engine, EngineError, Incoming};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::handle::QUEUE;
use crate::redact::Redactor;
use crate::shape::{HookEvent, INPUT_MAX, NotAnEvent, NotRead, read_stdin};
use crate::spool::Spool;

/// How long the hook waits for another writer. With this, a locked database costs an agent less than 200 ms.
const DATABASE_PATIENCE: Duration = Duration::from_millis(100);
/// How long the agent may take to say what happened.
pub const STDIN_PATIENCE: Duration = Duration::from_secs(2);
/// Events that are brought in together.
const SPOOL_STEP: usize = 200;

/// Why an event is not kept. Never says what was in it.
#[derive(Debug, thiserror::Error)]
pub enum NotKept {
    #[error("stdin: {0}")]
    Read(#[from] NotRead),
    #[error("not a hook event: {0}")]
    Event(#[from] NotAnEvent),
    #[error("not storable: {0}")]
    Invalid(#[from] Invalid),
    #[error("neither the database ({database}) nor the spool ({spool}) took the event")]
    Nowhere { database: String, spool: std::io::Error },
}

/// Where an event is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    InDatabase,
    /// With the reason why the database did not take it.
    InSpool(String),
}

/// An event that was kept.
#[derive(Debug, Clone)]
pub struct Captured {
    pub event: String,
    pub kept: Kept,
}

/// What a hook needs to know.
pub struct Hook {
    pub database: PathBuf,
    /// The queue's: above all its window.
    pub policy: Arc<AppendPolicy>,
    pub redactor: Redactor,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("database", &self.database).finish_non_exhaustive()
    }
}

/// An event as it lies in the spool.
#[derive(Debug, Serialize, Deserialize)]
struct Spooled {
    session_id: String,
    payload: Map<String, Value>,
}

impl Hook {
    /// Reads one event and keeps it.
    pub fn capture(&self, input: impl AsFd + Read) -> Result<Captured, NotKept> {
        let bytes = read_stdin(input, INPUT_MAX, STDIN_PATIENCE)?;
        let mut event = HookEvent::read(&bytes)?;
        let mut payload = Value::Object(std::mem::take(&mut event.payload));
        self.redactor.redact_json(&mut payload);
        let id = new_id();
        let stored = self.store(&event, &id, &payload)?;
        let kept = match stored {
            Ok(()) => Kept::InDatabase,
            Err(database) => {
                let Value::Object(payload) = payload else { unreachable!("it was an object above") };
                let body = Spooled { session_id: event.session_id.clone(), payload };
                let body = serde_json::to_vec(&body).expect("JSON can be written as JSON");
                match Spool::beside(&self.database).put(&id, &body) {
                    Ok(()) => Kept::InSpool(database),
                    Err(spool) => return Err(NotKept::Nowhere { database, spool }),
                }
            }
        };
        Ok(Captured { event: event.event, kept })
    }

    /// Tries the database; what it says if it does not take the event.
    fn store(&self, event: &HookEvent, id: &str, payload: &Value) -> Result<Result<(), String>, Invalid> {
        let lane = LaneKey::new(QueueName::new(QUEUE)?, Key::new(&event.session_id)?);
        // Given, so that an event that is stored although the database said otherwise is not stored twice.
        let id = NewEventId::Given(EventId::new(id)?);
        let new = NewEvent::new(lane, id, Payload::of(payload), self.policy.clone());
        Ok(append_briefly(&self.database, &new, DATABASE_PATIENCE).map(|_| ()).map_err(|e| e.to_string()))
    }
}

/// Unique by chance and sorted by time; also a file name.
fn new_id() -> String {
    let ids = Ids::new(Arc::new(RealTime::new()), Arc::new(Chance::from_system()));
    ids.event_id().as_str().replace('_', "-")
}

/// Brings in what hooks have left in the spool. Says how many events.
pub async fn bring_in(engine: &Engine, database: &Path) -> Result<usize, EngineError> {
    let spool = Spool::beside(database);
    let mut brought = 0;
    loop {
        let from = spool.clone();
        let taken = tokio::task::spawn_blocking(move || from.take(SPOOL_STEP)).await;
        let taken = match taken {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) => {
                tracing::warn!(%error, folder = %spool.folder().display(), "the spool of hooks cannot be read");
                return Ok(brought);
            }
            Err(_) => return Ok(brought),
        };
        for bad in &taken.bad {
            tracing::warn!(file = %bad.name, why = %bad.why, "an event of a hook cannot be read and was put aside");
        }
        if taken.events.is_empty() {
            return Ok(brought);
        }
        for spooled in &taken.events {
            if let Ok(incoming) = incoming(&spooled.id, &spooled.body) {
                match engine.append(vec![incoming]).await {
                    Ok(_) => brought += 1,
                    // The same id with another payload: it is there already.
                    Err(EngineError::Store(error)) if error.kind == ErrorKind::Conflict => {}
                    Err(error) => return Err(error),
                }
            }
            if let Err(error) = spool.done(spooled) {
                // Whoever brings it in again and again would have nothing else to do.
                let text =
                    format!("an event of a hook was brought in and its file cannot be removed: {error}");
                return Err(StoreError::unavailable(text).into());
            }
        }
    }
}

fn incoming(id: &str, body: &[u8]) -> Result<Incoming, Box<dyn std::error::Error + Send + Sync>> {
    let Spooled { session_id, payload } = serde_json::from_slice(body)?;
    let mut incoming = Incoming::new(QUEUE, &session_id, Payload::of(&Value::Object(payload)))?;
    incoming.id = Some(EventId::new(id)?);
    Ok(incoming)
}
