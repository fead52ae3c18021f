//! The application where it may never be needed: nothing is made in a store until the first hook event is there.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use quell::config::TranscriptsSettings;
use quell::quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell::quell_core::store::Store;
use quell::{Handler, Outcome, Run};
use tokio::sync::OnceCell;

use crate::archive::Archive;
use crate::handle::Transcripts;
use crate::ingest::Ingest;
use crate::redact::Redactor;
use crate::roots::Roots;

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

    pub fn retention(&self) -> Option<std::time::Duration> {
        self.settings.retention
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
}

impl Lazily {
    pub fn new(archive: LazyArchive, wishes: Wishes) -> Self {
        Lazily { archive, wishes, handler: OnceCell::new() }
    }
}

#[async_trait]
impl Handler for Lazily {
    async fn handle(&self, run: &Run) -> Outcome {
        let open = async || {
            let archive = self.archive.open().await?.clone();
            Ok::<_, StoreError>(Transcripts::new(self.wishes.ingest(archive)))
        };
        match self.handler.get_or_try_init(open).await {
            Ok(handler) => handler.handle(run).await,
            Err(error) if error.is_temporary() => Outcome::retry(error.to_string()),
            Err(error) => Outcome::failed(error.to_string()),
        }
    }
}
