//! The HTTP server beside the workers of a process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quell::Engine;
use quell::endpoints;
use quell_chat::pages as chat;
use quell_collectors::pages as prices;
use quell_server::{AppPage, LiveServer, Reload, ServeError, Server, ServerOptions};
use quell_transcripts::lazily::LazyArchive;
use quell_transcripts::pages as transcripts;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::context::Loaded;
use crate::failure::{self, Failure};
use crate::signals::Signals;

/// Listens, and answers when it is started.
pub(super) struct Http(Server);

impl Http {
    pub(super) async fn bind(
        engine: &Engine,
        loaded: &Loaded,
        reload: Option<Arc<dyn Reload>>,
    ) -> Result<Self, Failure> {
        let settings = engine.settings();
        let (endpoints, warnings) = endpoints::ready(&settings, &loaded.env)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let options = ServerOptions {
            listen: settings.listen.clone(),
            admin_listen: settings.admin_listen.clone(),
            hosts: settings.server.hosts.clone(),
            connections: settings.server.connections,
            endpoints,
            pages: applications(engine),
            reload,
        };
        // What is counted before anybody asks for it is counted, too.
        quell_server::recorder().map_err(|e| Failure::new(failure::FAILED, format!("metrics: {e}")))?;
        quell::observe::describe(quell_chat::METRICS);
        Server::bind(engine.clone(), options).await.map(Http).map_err(refused)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub(super) fn admin_address(&self) -> Option<SocketAddr> {
        self.0.admin_address()
    }

    /// For changes while it runs.
    pub(super) fn live(&self) -> LiveServer {
        self.0.live()
    }

    pub(super) fn start(self, grace: Duration) -> Serving {
        let stop = CancellationToken::new();
        let task = tokio::spawn(self.0.run(stop.clone(), grace));
        Serving { task, stop }
    }
}

/// The pages of applications, on stores where they can keep something. They are made when somebody looks at them.
fn applications(engine: &Engine) -> Vec<AppPage> {
    let (store, settings) = (engine.store().clone(), engine.settings());
    let store_has_tables = store.clone().tables().is_some();
    let mut pages = Vec::new();
    if store_has_tables {
        pages.push(AppPage::of(Arc::new(transcripts::Pages::new(LazyArchive::new(store)))));
    }
    if settings.chat.is_some() {
        pages.push(AppPage::of(Arc::new(chat::Pages::new(engine.clone()))));
    }
    if settings.prices.is_some() && store_has_tables {
        pages.push(AppPage::of(Arc::new(prices::Pages::new(engine.clone()))));
    }
    pages
}

fn refused(error: ServeError) -> Failure {
    match error {
        ServeError::Store(error) => error.into(),
        ServeError::NoTokens { .. } | ServeError::Unsigned { .. } | ServeError::Listen { .. } => {
            Failure::new(failure::USAGE, error.to_string())
        }
    }
}

/// A server at work.
pub(super) struct Serving {
    task: JoinHandle<bool>,
    stop: CancellationToken,
}

impl Serving {
    /// Nothing new is accepted, and what is under way is finished.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for its end; another signal ends it at once. The answer is how many came.
    pub(super) async fn join(mut self, signals: &mut Signals, asked: u32) -> u32 {
        self.stop.cancel();
        if asked > 1 {
            self.task.abort();
            return 0;
        }
        tokio::select! {
            _ = &mut self.task => 0,
            _ = signals.next_stop() => {
                self.task.abort();
                1
            }
        }
    }
}
