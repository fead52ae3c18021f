//! Hooks of coding agents, where a process works for good: it reads their transcripts, and they need to start nobody.
//!
//! A worker on an SQLite file holds the lock that hooks look at, beside other such workers, and brings in what hooks leave
//! in the spool. While a worker that a hook has started is still busy, it has the lock; this one takes it over when
//! that is done.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quell::config::{HandlerSettings, Settings, StoreKind};
use quell::quell_core::event::QueueName;
use quell::worker::OwnHandler;
use quell::{Engine, clock};
use quell_transcripts::hook::bring_in;
use quell_transcripts::keeper;
use quell_transcripts::lazily::{Lazily, LazyArchive};
use tokio::task::JoinHandle;

use crate::args::Global;
use crate::commands::hook::work::see_to_what_waits;
use crate::context::Loaded;
use crate::failure::{self, Failure};
use crate::transcripts::{self, Place};

/// How often the lock is looked at, and the spool should a hook's word be lost.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Between two looks at the spool.
const BREATH: Duration = Duration::from_millis(20);

/// Does both until it is dropped.
pub(super) struct Agents(JoinHandle<()>);

impl Agents {
    /// The handler of `transcripts`, if this process is to read them.
    pub(super) fn handler(
        engine: &Engine,
        loaded: &Loaded,
    ) -> Result<BTreeMap<QueueName, OwnHandler>, Failure> {
        if !reads(&loaded.settings) {
            return Ok(BTreeMap::new());
        }
        if engine.store().clone().tables().is_none() {
            let text = "transcripts need tables, and this store has none";
            return match loaded.settings.transcripts {
                Some(_) => Err(Failure::new(failure::USAGE, text)
                    .help("use sqlite:PATH or postgres://…, or remove [transcripts]")),
                None => Ok(BTreeMap::new()),
            };
        }
        let handler =
            Arc::new(Lazily::new(LazyArchive::new(engine.store().clone()), transcripts::wishes(loaded)?));
        Ok([(transcripts::queue(), OwnHandler { handler, time_limit: None })].into())
    }

    /// Holds the lock and empties the spool, on stores that are files.
    pub(super) fn look_after(engine: &Engine) -> Option<Agents> {
        let settings = engine.settings();
        let StoreKind::Sqlite(path) = settings.store.url.kind() else { return None };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        reads(&settings).then(|| Agents(tokio::spawn(look_after(engine.clone(), path))))
    }

    /// Gives the lock up. A hook that met it has started nobody, so what it left is left to a worker of its own.
    pub(super) async fn leave(mut self, engine: &Engine, loaded: &Loaded, global: &Global) {
        self.0.abort();
        // Its end lets go of the lock.
        let _ = (&mut self.0).await;
        let Ok(place) = Place::of(&loaded.settings, None, &loaded.env) else { return };
        see_to_what_waits(engine, &place, global).await;
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn reads(settings: &Settings) -> bool {
    let queue = settings.queue(&transcripts::queue());
    queue.is_some_and(|queue| queue.handler == HandlerSettings::App)
}

async fn look_after(engine: Engine, database: PathBuf) {
    let (mut lock, mut told) = (None, engine.store().wakeups());
    loop {
        if lock.is_none() {
            lock = keeper::beside_others(&database).unwrap_or_else(|error| {
                tracing::debug!(%error, "hooks will start workers of their own");
                None
            });
        }
        if let Err(error) = bring_in(&engine, &database).await {
            tracing::warn!(%error, "what hooks left in the spool cannot be stored now");
        }
        // A busy server is woken by its own work all the time.
        clock::sleep(BREATH).await;
        tokio::select! {
            () = told.woken() => {}
            () = clock::sleep(LOOK_EVERY) => {}
        }
    }
}
