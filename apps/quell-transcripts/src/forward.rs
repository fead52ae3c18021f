//! Sessions of other hosts: what a pass reads there is sent to a server and stored here.
//!
//! The other host keeps nothing but how far it has read: its hooks append to a queue of its own, and its pass sends
//! parcels (a few lines each, secrets already replaced) as events of the server's queue `transcripts`. A parcel has an id
//! made of the file and the place where it begins, so one that is sent again is the same event. While the server is away
//! the run is retried, and everything waits in the local queue.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell::fetch::{Call, Http};
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::archive::{Archive, Chunk, Current, FileRow, Told};
use crate::handle::QUEUE;
use crate::ingest::{Read, Sink};
use crate::line::Entry;
use crate::shape::HookEvent;

/// Of one parcel as JSON; below what a queue takes by default.
const PARCEL_BYTES: usize = 160 << 10;
/// What one text of a line may have in a parcel; what is longer is cut.
const TEXT_BYTES: usize = 96 << 10;
const TIMEOUT: Duration = Duration::from_secs(30);
/// In every parcel and in no hook event.
const MARK: &str = "\"quell_parcel\"";

/// What one host tells another.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Parcel {
    /// The version of this format.
    quell_parcel: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    told: Vec<Tell>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<(u64, Entry)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tell {
    id: String,
    at: i64,
    payload: Map<String, Value>,
}

impl Parcel {
    /// Reads a payload that is a parcel; nothing when it is something else.
    pub fn read(payload: &str) -> Option<Result<Parcel, serde_json::Error>> {
        payload.contains(MARK).then(|| serde_json::from_str(payload))
    }

    /// Stores what came.
    pub async fn unpack(&self, sink: &dyn Sink, session: &str) -> StoreResult<()> {
        let mut told = Vec::new();
        for Tell { id, at, payload } in &self.told {
            let bytes = Value::Object(payload.clone()).to_string();
            if let Ok(event) = HookEvent::read(bytes.as_bytes()) {
                told.push(Told { id: id.clone(), at: *at, event });
            }
        }
        sink.tell(session, &told).await?;
        if !self.entries.is_empty() {
            let current = sink.current(session).await?;
            let chunk = Chunk { entries: self.entries.clone(), ..Chunk::default() };
            sink.take_lines(session, &chunk, &current).await?;
        }
        Ok(())
    }

    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// A server that takes parcels.
#[derive(Clone)]
pub struct Server {
    http: Http,
    url: String,
    token: Option<Arc<str>>,
}

impl Server {
    /// `url` is the server's own, such as `https://quell.example.com`.
    pub fn new(http: Http, url: &str, token: Option<String>) -> Self {
        let url = format!("{}/v1/queues/{QUEUE}/events", url.trim_end_matches('/'));
        Server { http, url, token: token.map(Arc::from) }
    }

    async fn post(&self, session: &str, id: &str, parcel: &Parcel) -> StoreResult<()> {
        let parcel = Parcel { quell_parcel: 1, ..parcel.clone() };
        let body = json!({ "key": session, "id": id, "payload": parcel }).to_string();
        let mut call = Call::new(http::Method::POST, &self.url).timeout(TIMEOUT).body(body);
        call = call.header(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            let value = http::HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| StoreError::new(ErrorKind::Invalid, "the token file holds no token"))?;
            call = call.header(http::header::AUTHORIZATION, value);
        }
        let reply = self.http.call(call).await;
        let reply = reply.map_err(|e| StoreError::unavailable(format!("{} is away: {e}", self.url)))?;
        match reply.status.as_u16() {
            200..=299 => Ok(()),
            // The same parcel with other bytes: somebody has its lines already.
            409 => Ok(()),
            401 | 403 => Err(StoreError::new(
                ErrorKind::Invalid,
                format!(
                    "{} refuses the token ({}); make one there: quell token create",
                    self.url, reply.status
                ),
            )),
            _ => Err(StoreError::unavailable(format!("{} answered {}", self.url, reply.status))),
        }
    }
}

/// Sends what is read to a server and keeps only how far it got.
pub struct Forward {
    local: Archive,
    server: Server,
}

impl Forward {
    pub fn new(local: Archive, server: Server) -> Self {
        Forward { local, server }
    }
}

#[async_trait]
impl Sink for Forward {
    async fn tell(&self, session: &str, told: &[Told]) -> StoreResult<()> {
        let Some(first) = told.first() else { return Ok(()) };
        self.local.tell(session, told).await?;
        let mut some = Vec::new();
        let (mut size, mut id) = (0, first.id.clone());
        for Told { id: own, at, event } in told {
            let payload = event.payload.clone();
            let bytes = Value::Object(payload.clone()).to_string().len();
            if size + bytes > PARCEL_BYTES && !some.is_empty() {
                let parcel = Parcel { told: std::mem::take(&mut some), ..Parcel::default() };
                self.server.post(session, &format!("told-{id}"), &parcel).await?;
                (size, id) = (0, own.clone());
            }
            size += bytes;
            some.push(Tell { id: own.clone(), at: *at, payload });
        }
        let parcel = Parcel { told: some, ..Parcel::default() };
        self.server.post(session, &format!("told-{id}"), &parcel).await
    }

    async fn current(&self, session: &str) -> StoreResult<Current> {
        self.local.current(session).await
    }

    async fn file(&self, path: &Path) -> StoreResult<Option<FileRow>> {
        self.local.file(path).await
    }

    async fn take(&self, read: Read<'_>) -> StoreResult<FileRow> {
        let mut some: Vec<(u64, Entry)> = Vec::new();
        let mut size = 0;
        for (at, entry) in &read.chunk.entries {
            if entry.message.is_none() && entry.title.is_none() {
                continue;
            }
            let entry = cut(entry);
            let bytes = serde_json::to_string(&entry).map_or(PARCEL_BYTES, |text| text.len());
            if size + bytes > PARCEL_BYTES && !some.is_empty() {
                self.send(&read, std::mem::take(&mut some)).await?;
                size = 0;
            }
            size += bytes;
            some.push((*at, entry));
        }
        if !some.is_empty() {
            self.send(&read, some).await?;
        }
        self.local.take(Read { chunk: &Chunk::default(), ..read }).await
    }

    async fn take_lines(&self, session: &str, chunk: &Chunk, _: &Current) -> StoreResult<()> {
        let parcel = Parcel { entries: chunk.entries.clone(), ..Parcel::default() };
        let id = format!("lines-{}", digest(&serde_json::to_string(&parcel.entries).unwrap_or_default()));
        self.server.post(session, &id, &parcel).await
    }

    async fn finish(&self, session: &str, problem: Option<&str>) -> StoreResult<()> {
        if let Some(problem) = problem {
            let parcel = Parcel { problem: Some(problem.to_owned()), ..Parcel::default() };
            self.server.post(session, &format!("problem-{}", digest(problem)), &parcel).await?;
        }
        self.local.finish(session, problem).await
    }
}

impl Forward {
    async fn send(&self, read: &Read<'_>, entries: Vec<(u64, Entry)>) -> StoreResult<()> {
        let from = entries.first().map_or(0, |(at, _)| *at);
        let uuids: String = entries.iter().filter_map(|(_, entry)| entry.uuid.as_deref()).collect();
        let id = format!("lines-{}-{from}", digest(&format!("{}\n{uuids}", read.path.display())));
        self.server.post(read.session, &id, &Parcel { entries, ..Parcel::default() }).await
    }
}

/// A line that fits into a parcel.
fn cut(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    if let Some(message) = &mut entry.message {
        for text in [&mut message.text, &mut message.thinking] {
            if text.len() > TEXT_BYTES / 2 {
                let end = text.floor_char_boundary(TEXT_BYTES / 2);
                let rest = text.len() - end;
                text.truncate(end);
                text.push_str(&format!("… [+{rest} bytes]"));
            }
        }
    }
    entry
}

/// Sixteen hexadecimal digits that stand for a text.
fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
