//! What happens at every hook event, in milliseconds: read, redact, keep, and tell whoever works.
//!
//! The agent waits for this, so nothing here may fail it: every problem goes to a small log beside the database
//! (`journal.rs`), never to the agent. The event is kept in the spool (`spool.rs`), durable before the hook returns, and
//! brought into the queue by the worker that is told of it. Its window counts from the moment the hook was called.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quell::clock::{Chance, Ids, RealTime};
use quell::quell_core::error::StoreError;
use quell::quell_core::event::{EventId, Payload, QueueName};
use quell::quell_core::window::WindowPolicy;
use quell::{Engine, EngineError, Incoming};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::handle::QUEUE;
use crate::redact::Redactor;
use crate::shape::{HookEvent, INPUT_MAX, NotAnEvent, NotRead, read_stdin};
use crate::spool::{Spool, Spooled};

/// How long the agent may take to say what happened.
pub const STDIN_PATIENCE: Duration = Duration::from_secs(2);
/// Events that are brought in together.
const APPEND_STEP: usize = 200;
/// What is left of a window that is over.
const SHORTEST: Duration = Duration::from_millis(1);

/// Why an event is not kept. Never says what was in it.
#[derive(Debug, thiserror::Error)]
pub enum NotKept {
    #[error("stdin: {0}")]
    Read(#[from] NotRead),
    #[error("not a hook event: {0}")]
    Event(#[from] NotAnEvent),
    #[error("the spool {folder} did not take the event: {error}", folder = .folder.display())]
    Spool { folder: PathBuf, error: std::io::Error },
}

/// An event as it lies in the spool.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    session_id: String,
    payload: Map<String, Value>,
}

/// Reads one event, keeps it beside the database and tells whoever works there. Says which event it was.
pub fn capture(input: impl AsFd + Read, database: &Path, redactor: &Redactor) -> Result<String, NotKept> {
    let bytes = read_stdin(input, INPUT_MAX, STDIN_PATIENCE)?;
    let mut event = HookEvent::read(&bytes)?;
    let mut payload = Value::Object(std::mem::take(&mut event.payload));
    redactor.redact_json(&mut payload);
    let Value::Object(payload) = payload else { unreachable!("it was an object above") };
    let kept = Kept { session_id: event.session_id, payload };
    let body = serde_json::to_string(&kept).expect("JSON can be written as JSON");
    let spool = Spool::beside(database);
    let put = spool.put(&new_id(), &body);
    put.map_err(|error| NotKept::Spool { folder: spool.folder().to_path_buf(), error })?;
    quell::open::wake(database);
    Ok(event.event)
}

/// Unique by chance and sorted by time.
fn new_id() -> String {
    Ids::new(Arc::new(RealTime::new()), Arc::new(Chance::from_system())).event_id().as_str().to_owned()
}

/// Brings in what hooks have left in the spool. Says how many events.
pub async fn bring_in(engine: &Engine, database: &Path) -> Result<usize, EngineError> {
    let spool = Spool::beside(database);
    let mut brought = 0;
    loop {
        let from = spool.clone();
        let segment = match tokio::task::spawn_blocking(move || from.take()).await {
            Ok(Ok(Some(segment))) => segment,
            Ok(Ok(None)) | Err(_) => return Ok(brought),
            Ok(Err(error)) => {
                tracing::warn!(%error, folder = %spool.folder().display(), "the spool of hooks cannot be read");
                return Ok(brought);
            }
        };
        if segment.bad > 0 {
            tracing::warn!(lines = segment.bad, "what a hook left cannot be read and was put aside");
        }
        let (now, wait) = (engine.wall().as_millis(), wait_of(engine));
        let events: Vec<Incoming> =
            segment.events.iter().filter_map(|spooled| incoming(spooled, now, wait).ok()).collect();
        for some in events.chunks(APPEND_STEP) {
            append(engine, some).await?;
            brought += some.len();
        }
        if let Err(error) = segment.done() {
            // Whoever brings it in again and again would have nothing else to do.
            let text = format!("what hooks left was brought in and cannot be removed: {error}");
            return Err(StoreError::unavailable(text).into());
        }
    }
}

/// All at once; one by one if one of them is refused, so that it keeps no other out.
async fn append(engine: &Engine, events: &[Incoming]) -> Result<(), EngineError> {
    let refused = |error: &EngineError| match error {
        EngineError::Store(error) => !error.is_temporary(),
        _ => true,
    };
    match engine.append(events.to_vec()).await {
        Ok(_) => return Ok(()),
        Err(error) if !refused(&error) => return Err(error),
        Err(_) => {}
    }
    for event in events {
        match engine.append(vec![event.clone()]).await {
            Ok(_) => {}
            // A known id with another payload cannot happen, a full lane can: its session is captured all the same,
            // because an event only says that there is something to read.
            Err(error) if refused(&error) => tracing::warn!(%error, "an event of a hook is left out"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long a burst is waited for.
fn wait_of(engine: &Engine) -> Option<Duration> {
    let queue = engine.settings().queue(&QueueName::new(QUEUE).ok()?)?;
    match queue.append.window.policy {
        WindowPolicy::Fixed { wait } => Some(wait),
        _ => None,
    }
}

fn incoming(
    spooled: &Spooled,
    now: i64,
    wait: Option<Duration>,
) -> Result<Incoming, Box<dyn std::error::Error>> {
    let Kept { session_id, payload } = serde_json::from_str(&spooled.body)?;
    let mut incoming = Incoming::new(QUEUE, &session_id, Payload::of(&Value::Object(payload)))?;
    incoming.id = Some(EventId::new(&spooled.id)?);
    // The window began when the agent called. A clock that was moved makes it no longer than it is.
    let age = u64::try_from(now).unwrap_or(0).saturating_sub(spooled.at);
    incoming.window = wait.map(|wait| {
        let left = wait.saturating_sub(Duration::from_millis(age));
        WindowPolicy::Fixed { wait: left.max(SHORTEST) }
    });
    Ok(incoming)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_counts_from_the_call_whatever_the_clock_does_meanwhile() {
        let body = r#"{"session_id":"s","payload":{"session_id":"s"}}"#.to_owned();
        let spooled = Spooled { id: "e".into(), at: 10_000, body };
        let wait = Some(Duration::from_secs(2));
        let left = |now| match incoming(&spooled, now, wait).unwrap().window {
            Some(WindowPolicy::Fixed { wait }) => wait.as_millis(),
            other => panic!("{other:?}"),
        };
        assert_eq!(left(10_000), 2_000);
        assert_eq!(left(10_300), 1_700);
        assert_eq!(left(60_000), 1, "it is over");
        assert_eq!(left(3_000), 2_000, "a clock that was moved back makes it no longer");
        assert_eq!(
            incoming(&spooled, 10_000, None).unwrap().window,
            None,
            "no window of its own without one"
        );
    }
}
