//! One pass over the transcripts of a session: from where the last one stopped to the last whole line.
//!
//! One thread reads and understands lines while another stores what came before, so a long transcript costs the slower of
//! the two and never more memory than two batches. Every batch is stored together with the position behind it: a pass that
//! dies goes on there, and one that lost its lease cannot overwrite what its successor has read (the position has a
//! version).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::limits;
use tokio::sync::mpsc;

use crate::archive::{Archive, Chunk, Current, FileRow, RAW_BYTES_MAX, Told};
use crate::line::{Kind, Line, Tally, read_line};
use crate::reader::{Position, Reader};
use crate::redact::Redactor;
use crate::roots::{Refused, Roots};

/// Bytes of a transcript that are read, understood and stored together. Larger ones are no faster: a batch of this size is
/// stored in a few hundred milliseconds, in which other writers wait.
const BATCH_BYTES: usize = 2 << 20;
/// Batches that have been read and not yet stored.
const AHEAD: usize = 1;

/// Where a pass brings what it has read.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    async fn tell(&self, session: &str, told: &[Told]) -> StoreResult<()>;
    async fn current(&self, session: &str) -> StoreResult<Current>;
    async fn file(&self, path: &Path) -> StoreResult<Option<FileRow>>;
    async fn take(&self, read: Read<'_>) -> StoreResult<FileRow>;
    /// Lines that came without their file, from another host.
    async fn take_lines(&self, session: &str, chunk: &Chunk, current: &Current) -> StoreResult<()>;
    async fn finish(&self, session: &str, problem: Option<&str>) -> StoreResult<()>;
}

/// Lines of a file and the position behind them.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a> {
    pub session: &'a str,
    pub path: &'a Path,
    /// What the sink said of the file before.
    pub known: Option<&'a FileRow>,
    pub position: &'a Position,
    pub chunk: &'a Chunk,
    pub current: &'a Current,
    pub now: i64,
}

#[async_trait]
impl Sink for Archive {
    async fn tell(&self, session: &str, told: &[Told]) -> StoreResult<()> {
        Archive::tell(self, session, told).await
    }

    async fn current(&self, session: &str) -> StoreResult<Current> {
        Archive::current(self, session).await
    }

    async fn file(&self, path: &Path) -> StoreResult<Option<FileRow>> {
        Archive::file(self, path).await
    }

    async fn take(&self, read: Read<'_>) -> StoreResult<FileRow> {
        Archive::take(self, read).await
    }

    async fn take_lines(&self, session: &str, chunk: &Chunk, current: &Current) -> StoreResult<()> {
        Archive::take_lines(self, session, chunk, current).await
    }

    async fn finish(&self, session: &str, problem: Option<&str>) -> StoreResult<()> {
        Archive::finish(self, session, problem).await
    }
}

/// What a pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    pub files: u64,
    pub bytes: u64,
    pub lines: u64,
    pub malformed: u64,
    pub unknown: u64,
    /// Why something was not read, for people.
    pub problem: Option<String>,
    /// The main transcript is not there (yet).
    pub missing: bool,
}

/// What became of one file of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    pub session: Option<String>,
    pub passed: Passed,
    /// Why it was not read.
    pub refused: Option<String>,
}

/// Reads transcripts into a sink.
#[derive(Clone)]
pub struct Ingest {
    sink: Arc<dyn Sink>,
    roots: Arc<Roots>,
    redactor: Arc<Redactor>,
}

impl Ingest {
    pub fn new(sink: Arc<dyn Sink>, roots: Arc<Roots>, redactor: Redactor) -> Self {
        Ingest { sink, roots, redactor: Arc::new(redactor) }
    }

    pub(crate) fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Reads what is new in the session's main transcript and in those of its subagents. `named` are further files that a
    /// hook named.
    pub async fn pass(&self, session: &str, named: &[PathBuf], now: i64) -> StoreResult<Passed> {
        let current = self.sink.current(session).await?;
        let mut passed = Passed::default();
        let Some(main) = current.transcript.as_deref().map(PathBuf::from) else {
            passed.problem = Some("no hook event named a transcript".into());
            return Ok(passed);
        };
        match self.file(session, &main, &current, now, Whose::Theirs, &mut passed).await? {
            Some(Refused::Missing) => {
                passed.missing = true;
                passed.problem = Some(format!("the transcript {} does not exist", main.display()));
                return Ok(passed);
            }
            Some(refused) => {
                passed.problem = Some(format!("the transcript {} is not read: {refused}", main.display()));
                return Ok(passed);
            }
            None => {}
        }
        let (roots, path, id) = (self.roots.clone(), main.clone(), session.to_owned());
        let found = blocking(move || Ok(roots.subagents(&path, &id))).await?;
        let named = named.iter().filter(|path| !found.own.contains(path) && **path != main);
        let theirs = found.own.iter().chain(named).map(|path| (path, Whose::Theirs));
        let perhaps = found.beside.iter().map(|path| (path, Whose::Perhaps));
        for (path, whose) in theirs.chain(perhaps) {
            // A file that is gone again, or was never there, is nobody's loss: its lines are in the main one, or lost.
            let refused = self.file(session, path, &current, now, whose, &mut passed).await?;
            if let Some(refused) = refused.filter(|refused| !matches!(refused, Refused::Missing)) {
                passed.problem = Some(format!("the transcript {} is not read: {refused}", path.display()));
            }
        }
        Ok(passed)
    }

    /// Reads a transcript that no hook told of, as the session that its name or its lines say. For imports.
    pub async fn import(&self, path: &Path, now: i64) -> StoreResult<Imported> {
        let (roots, wanted) = (self.roots.clone(), path.to_path_buf());
        let looked = blocking(move || match roots.open(&wanted) {
            Ok(opened) => first_session(opened.file).map(Ok),
            Err(refused) => Ok(Err(refused)),
        });
        let said = match looked.await? {
            Ok(said) => said,
            Err(refused) => {
                return Ok(Imported { refused: Some(refused.to_string()), ..Imported::default() });
            }
        };
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let Some(session) = said.or(stem).filter(|id| !id.is_empty() && id.len() <= limits::KEY_BYTES_MAX)
        else {
            let refused = Some("it does not say which session it is of".into());
            return Ok(Imported { refused, ..Imported::default() });
        };
        let current = self.sink.current(&session).await?;
        let mut passed = Passed::default();
        let refused = self.file(&session, path, &current, now, Whose::Theirs, &mut passed).await?;
        self.sink.finish(&session, None).await?;
        Ok(Imported { session: Some(session), passed, refused: refused.map(|refused| refused.to_string()) })
    }

    /// Reads what is new in one file; says why if it may not be read.
    async fn file(
        &self,
        session: &str,
        path: &Path,
        current: &Current,
        now: i64,
        whose: Whose,
        passed: &mut Passed,
    ) -> StoreResult<Option<Refused>> {
        let mut known = self.sink.file(path).await?;
        let position = known.as_ref().map(|known| known.position.clone()).unwrap_or_default();
        let (roots, wanted) = (self.roots.clone(), path.to_path_buf());
        let opened = blocking(move || match roots.open(&wanted) {
            Ok(opened) => Reader::open(opened.file, &position).map(Ok),
            Err(refused) => Ok(Err(refused)),
        });
        let (mut reader, _) = match opened.await? {
            Ok(opened) => opened,
            Err(refused) => return Ok(Some(refused)),
        };
        passed.files += 1;
        let (send, mut receive) = mpsc::channel::<std::io::Result<(Chunk, Position, u64)>>(AHEAD);
        let redactor = self.redactor.clone();
        let check = (whose == Whose::Perhaps && known.is_none()).then(|| session.to_owned());
        let reading = tokio::task::spawn_blocking(move || {
            let mut check = check;
            loop {
                let before = reader.safe_offset();
                let batch = match reader.read_batch(BATCH_BYTES) {
                    Ok(batch) => batch,
                    Err(error) => return drop(send.blocking_send(Err(error))),
                };
                let (end, oversized) = (batch.end, batch.oversized);
                let mut chunk = understand(&batch, &redactor);
                chunk.malformed += oversized;
                chunk.lines += oversized;
                if let Some(session) = check.take()
                    && !names(&chunk, &session)
                {
                    return;
                }
                let (position, read) = (reader.position(), reader.safe_offset() - before);
                if read > 0 && send.blocking_send(Ok((chunk, position, read))).is_err() {
                    return;
                }
                if end {
                    return;
                }
            }
        });
        while let Some(read) = receive.recv().await {
            let (chunk, position, bytes) = read.map_err(|error| unreadable(path, &error))?;
            let taken = Read {
                session,
                path,
                known: known.as_ref(),
                position: &position,
                chunk: &chunk,
                current,
                now,
            };
            known = Some(self.sink.take(taken).await?);
            passed.bytes += bytes;
            passed.lines += chunk.lines;
            passed.malformed += chunk.malformed;
            passed.unknown += chunk.unknown;
        }
        reading.await.map_err(|e| StoreError::unavailable(format!("a transcript was not read: {e}")))?;
        Ok(None)
    }
}

/// Whether a file belongs to the session by its name, or has to say so in its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Theirs,
    Perhaps,
}

/// The session that the first lines of a file name.
fn first_session(file: std::fs::File) -> std::io::Result<Option<String>> {
    const LOOK_BYTES: usize = 256 << 10;
    let (mut reader, _) = Reader::open(file, &Position::default())?;
    let batch = reader.read_batch(LOOK_BYTES)?;
    let said = batch.lines().find_map(|line| match read_line(line.bytes) {
        Line::Entry(entry) => entry.session_id,
        Line::Blank | Line::Malformed => None,
    });
    Ok(said)
}

fn names(chunk: &Chunk, session: &str) -> bool {
    let mut said = chunk.entries.iter().filter_map(|(_, entry)| entry.session_id.as_deref());
    said.next() == Some(session)
}

/// What a batch of lines says, with secrets replaced.
fn understand(batch: &crate::reader::Batch, redactor: &Redactor) -> Chunk {
    let (mut chunk, mut tally) = (Chunk::default(), Tally::default());
    for raw in batch.lines() {
        let line = read_line(raw.bytes);
        tally.line(&line);
        let Line::Entry(mut entry) = line else { continue };
        if entry.kind == Kind::Unknown {
            let mut text = String::from_utf8_lossy(raw.bytes).replace('\0', "\u{fffd}");
            if text.len() > RAW_BYTES_MAX {
                text.truncate(text.floor_char_boundary(RAW_BYTES_MAX));
                text.push('…');
            }
            let text = redactor.redact(text.trim_end_matches(['\n', '\r'])).into_owned();
            chunk.raw.push((raw.offset, entry.type_name.clone(), text));
        }
        if let Some(message) = &mut entry.message {
            redact(redactor, &mut message.text);
            redact(redactor, &mut message.thinking);
            for tool in &mut message.tools {
                redact(redactor, &mut tool.summary);
            }
        }
        if let Some(title) = &mut entry.title {
            redact(redactor, &mut title.text);
        }
        chunk.entries.push((raw.offset, *entry));
    }
    chunk.count(&tally);
    chunk
}

fn redact(redactor: &Redactor, text: &mut String) {
    if let std::borrow::Cow::Owned(changed) = redactor.redact(text) {
        *text = changed;
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the transcript {} cannot be read now: {error}", path.display()))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> StoreResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(StoreError::unavailable(format!("a transcript cannot be read now: {error}"))),
        Err(error) => Err(StoreError::new(ErrorKind::Unavailable, format!("reading was cut off: {error}"))),
    }
}
