//! What all requests of a server share.

use std::collections::BTreeSet;
use std::sync::Arc;

use quell::Engine;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::StoreResult;
use tokio_util::sync::CancellationToken;

use crate::auth::TokenBook;
use crate::claims::ClaimBook;
use crate::dashboard::{Operations, Watch};
use crate::depth::Depths;
use crate::hooks::Hooks;
use crate::polls::Polls;
use crate::reload::Reload;
use crate::stream::Stream;

/// What all requests of a server share.
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) tokens: TokenBook,
    pub(crate) claims: ClaimBook,
    pub(crate) depths: Depths,
    pub(crate) polls: Polls,
    pub(crate) stream: Arc<Stream>,
    pub(crate) hooks: Hooks,
    /// How things went lately, for the first page.
    pub(crate) watch: Watch,
    pub(crate) operations: Operations,
    /// Names under which a server on loopback may be asked for; nothing means any.
    pub(crate) hosts: Option<BTreeSet<String>>,
    /// How the configuration is read again, where there is one.
    pub(crate) reload: Option<Arc<dyn Reload>>,
    /// Rings when the server is to end: those who wait for something answer at once.
    pub(crate) stop: CancellationToken,
}

impl App {
    pub(crate) fn new(
        engine: Engine,
        tokens: TokenBook,
        hooks: Hooks,
        hosts: Option<BTreeSet<String>>,
        reload: Option<Arc<dyn Reload>>,
        stop: CancellationToken,
    ) -> Self {
        App {
            stream: Stream::new(engine.clone(), stop.clone()),
            engine,
            tokens,
            hooks,
            claims: ClaimBook::default(),
            depths: Depths::default(),
            polls: Polls::default(),
            watch: Watch::default(),
            operations: Operations::default(),
            hosts,
            reload,
            stop,
        }
    }

    /// The store's clock, for pages.
    pub(crate) async fn now(&self) -> StoreResult<Timestamp> {
        self.watch.now(&self.engine).await
    }

    /// The host's wall clock, for what is not the store's business: tokens and logins.
    pub(crate) fn wall(&self) -> Timestamp {
        self.engine.wall()
    }
}
