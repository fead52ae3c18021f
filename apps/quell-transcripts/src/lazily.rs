//! The application where it may never be needed: nothing is made in a store until the first hook event is there.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use quell::config::TranscriptsSettings;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::store::Store;
use quell::{Handler, Outcome, Run};
use tokio::sync::OnceCell;

use crate::archive::Archive;
use crate::handle::Transcripts;
use crate::ingest::Ingest;
use crate::reading::SessionFilter;
use crate::redact::Redactor;
use crate::roots::Roots;

/// How often it is looked for sessions that are older than the retention.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// How transcripts are read here: the settings with everything filled in and checked.
#[derive(Clone)]
pub struct Wishes {
    settings: TranscriptsSettings,
    roots: Arc<Roots>,
    redactor: Redactor,
}

impl Wishes {
    /// Checks what `[transcripts]` says; `env` is where the folder of the agent is found.
    pub fn new(
        settings: &TranscriptsSettings,
        env: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> StoreResult<Wishes> {
        let redactor = Redactor::new(&settings.redact)
            .map_err(|e| StoreError::new(ErrorKind::Invalid, format!("[transcripts] redact: {e}")))?;
        let home = env("HOME").map(PathBuf::from);
        let at_home = |root: &PathBuf| match (root.strip_prefix("~"), &home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => root.clone(),
        };
        let roots = match settings.roots.is_empty() {
            true => Roots::default_for(env),
            false => Roots::new(settings.roots.iter().map(at_home).collect()),
        };
        Ok(Wishes { settings: settings.clone(), roots: Arc::new(roots), redactor })
    }

    /// Reads only below these folders.
    #[must_use]
    pub fn below(self, roots: Vec<PathBuf>) -> Self {
        Wishes { roots: Arc::new(Roots::new(roots)), ..self }
    }

    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Forgets sessions that are older than the retention, if there is one.
    pub async fn forget_old(&self, archive: &Archive, now: Timestamp) -> StoreResult<()> {
        let Some(kept) = self.settings.retention else { return Ok(()) };
        let before = now.before(kept).as_millis();
        let filter = SessionFilter { before: Some(before), ..SessionFilter::default() };
        let old = archive.session_ids(&filter).await?;
        if !old.is_empty() {
            let gone = archive.forget(&old, before).await?;
            tracing::info!(sessions = gone, "transcripts.forgotten");
        }
        Ok(())
    }

    pub fn ingest(&self, archive: Archive) -> Ingest {
        Ingest::new(Arc::new(archive), self.roots.clone(), self.redactor.clone())
    }

    /// The same for what is sent elsewhere.
    pub fn ingest_into(&self, sink: Arc<dyn crate::ingest::Sink>) -> Ingest {
        Ingest::new(sink, self.roots.clone(), self.redactor.clone())
    }
}

/// An archive that is opened when somebody asks for it.
#[derive(Clone)]
pub struct LazyArchive {
    store: Arc<dyn Store>,
    archive: Arc<OnceCell<Archive>>,
}

impl LazyArchive {
    pub fn new(store: Arc<dyn Store>) -> Self {
        LazyArchive { store, archive: Arc::default() }
    }

    pub async fn open(&self) -> StoreResult<&Archive> {
        self.archive.get_or_try_init(|| Archive::open(self.store.clone())).await
    }
}

/// The handler of `transcripts`, which opens the archive when it has something to keep.
pub struct Lazily {
    archive: LazyArchive,
    wishes: Wishes,
    handler: OnceCell<Transcripts>,
    /// When old sessions were last looked for.
    looked: Mutex<Option<Timestamp>>,
}

impl Lazily {
    pub fn new(archive: LazyArchive, wishes: Wishes) -> Self {
        Lazily { archive, wishes, handler: OnceCell::new(), looked: Mutex::new(None) }
    }

    /// Every now and then; what fails is tried again then.
    async fn forget_old(&self, archive: &Archive, now: Timestamp) {
        {
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            if looked.is_some_and(|looked| now.since(looked) < FORGET_EVERY) {
                return;
            }
            *looked = Some(now);
        }
        if let Err(error) = self.wishes.forget_old(archive, now).await {
            tracing::warn!(%error, "old sessions cannot be forgotten now");
        }
    }
}

#[async_trait]
impl Handler for Lazily {
    async fn handle(&self, run: &Run) -> Outcome {
        let archive = match self.archive.open().await {
            Ok(archive) => archive,
            Err(error) if error.is_temporary() => return Outcome::retry(error.to_string()),
            Err(error) => return Outcome::failed(error.to_string()),
        };
        self.forget_old(archive, run.batch().claimed_at).await;
        let make = async || Transcripts::new(self.wishes.ingest(archive.clone()));
        self.handler.get_or_init(make).await.handle(run).await
    }
}
