//! The configuration, read again while the process runs: by SIGHUP, or by `POST /v1/reload`.
//!
//! Everything is made and checked before anything is changed, so a file that cannot be used changes nothing. Then queues,
//! sources, schedules, tenants and endpoints are in force at once: the engine stamps new events with the new policies, the
//! worker's next claim asks for the new queues, and handlers that run end as they began, with their leases. What a process
//! cannot change about itself (its store, its addresses) stays, and is told.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use quell::Engine;
use quell::config::{Flags, Settings};
use quell::endpoints;
use quell::worker::{Instructions, Plan};
use quell_server::{LiveServer, Reload, Reloaded};
use tokio::sync::Mutex;

use super::Hiring;
use super::processes::Reloads;
use crate::args::Global;
use crate::context::{self, Loaded};

/// What a process is started with and keeps.
const KEPT: [&str; 6] = ["store", "listen", "admin_listen", "server", "worker.id", "worker.start_timeout"];

/// Who is told of changes.
pub(super) struct Affected {
    pub(super) worker: Option<Instructions>,
    pub(super) server: Option<LiveServer>,
    pub(super) processes: Reloads,
}

/// Reads the configuration again and puts it in force.
#[derive(Clone)]
pub(super) struct Reloader(Arc<Inner>);

struct Inner {
    engine: Engine,
    /// The settings that the process was started with.
    started: Arc<Settings>,
    global: Global,
    flags: Flags,
    file: Option<PathBuf>,
    hiring: Arc<Hiring>,
    /// Set when all of them are there.
    affected: OnceLock<Affected>,
    /// One at a time.
    turn: Mutex<()>,
}

impl Reloader {
    pub(super) fn new(
        engine: &Engine,
        loaded: &Loaded,
        global: &Global,
        flags: Flags,
        hiring: Arc<Hiring>,
    ) -> Self {
        Reloader(Arc::new(Inner {
            engine: engine.clone(),
            started: engine.settings(),
            global: global.clone(),
            flags,
            file: loaded.file.clone(),
            hiring,
            affected: OnceLock::new(),
            turn: Mutex::new(()),
        }))
    }

    /// Whom to tell of changes, once they are there; before that nothing is read again.
    pub(super) fn introduce(&self, affected: Affected) {
        // This is done once.
        let _ = self.0.affected.set(affected);
    }

    /// For `POST /v1/reload`; nothing without a file.
    pub(super) fn for_http(&self) -> Option<Arc<dyn Reload>> {
        self.0.file.is_some().then(|| Arc::new(self.clone()) as Arc<dyn Reload>)
    }

    /// For SIGHUP: there is nobody to answer to but the log.
    pub(super) async fn by_signal(self) {
        if self.0.file.is_none() {
            tracing::warn!("there is no configuration file to read again");
            return;
        }
        // Both ways are told of in the log.
        let _ = self.reload().await;
    }
}

#[async_trait]
impl Reload for Reloader {
    async fn reload(&self) -> Result<Reloaded, String> {
        let _turn = self.0.turn.lock().await;
        match self.0.reload() {
            Ok(reloaded) => {
                let Reloaded { changed, restart } = &reloaded;
                tracing::info!(changed = changed.join(", "), "config.reloaded");
                if !restart.is_empty() {
                    let settings = restart.join(", ");
                    tracing::warn!(settings, "what the file says of these is in force after a restart");
                }
                Ok(reloaded)
            }
            Err(problem) => {
                tracing::error!(problem, "config.refused: the file cannot be used; what was in force stays");
                Err(problem)
            }
        }
    }
}

impl Inner {
    fn reload(&self) -> Result<Reloaded, String> {
        let mut loaded = context::load(&self.global, self.flags.clone()).map_err(|e| e.to_string())?;
        if loaded.file.is_none() {
            return Err("the configuration file is gone".to_owned());
        }
        let Affected { worker, server, processes } =
            self.affected.get().ok_or("the process is still starting; ask again")?;
        let before = self.engine.settings();
        let (restart, changed) = self.differences(&loaded.settings, &before);
        self.keep(&mut loaded.settings, &before);

        let mut given = None;
        if let Some(worker) = worker {
            let options = self.hiring.options(&self.engine, &loaded).map_err(|e| e.to_string())?;
            given = Some((worker, Plan::new(&loaded.settings, &options).map_err(|e| e.to_string())?));
        }
        let (ready, warnings) = endpoints::ready(&loaded.settings, &loaded.env).map_err(|e| e.to_string())?;
        if let Some(server) = server {
            server.allows(&ready).map_err(|e| e.to_string())?;
        }
        if let (Some(chats), Some(chat)) = (&self.hiring.chats, &loaded.settings.chat) {
            chats.change(chat, &loaded.env)?;
        }

        // From here on nothing can go wrong.
        for warning in warnings.iter().chain(&loaded.settings.warnings) {
            tracing::warn!("{warning}");
        }
        if let Some(server) = server {
            server.change(ready, &loaded.settings);
        }
        self.engine.change(loaded.settings);
        if let Some((worker, plan)) = given {
            worker.give(plan);
        }
        processes.ask();
        Ok(Reloaded { changed, restart })
    }

    /// What waits for a restart, and what is different now.
    fn differences(&self, next: &Settings, before: &Settings) -> (Vec<String>, Vec<String>) {
        let under = |name: &str, kept: &str| {
            name.strip_prefix(kept).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let is_kept = |name: &String| KEPT.iter().any(|kept| under(name, kept));
        let mut restart: Vec<String> =
            next.changed_since(&self.started).into_iter().filter(is_kept).collect();
        for (section, there, works) in [
            ("chat", next.chat.is_some(), self.started.chat.is_some()),
            ("prices", next.prices.is_some(), self.started.prices.is_some()),
        ] {
            if there != works {
                restart.push(section.to_owned());
            }
        }
        let changed = next.changed_since(before).into_iter().filter(|name| !is_kept(name)).collect();
        (restart, changed)
    }

    /// Settings that are in force say what is in force.
    fn keep(&self, next: &mut Settings, before: &Settings) {
        next.store = before.store.clone();
        next.listen = before.listen.clone();
        next.admin_listen = before.admin_listen.clone();
        next.server = before.server.clone();
        next.worker.id = before.worker.id.clone();
        next.worker.start_timeout = before.worker.start_timeout;
    }
}
