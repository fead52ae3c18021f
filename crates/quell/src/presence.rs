//! Who works here: each worker tells of itself, and all that share a store can be listed.
//!
//! A word on the shelf `workers`, renewed well before it expires; a worker that died is gone from the list a minute
//! later. It decides nothing: leases do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::WorkerId;
use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::event::{QueueName, Tenant};
use quell_core::shelf::Shelf;
use quell_core::step::WorkerState;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock;
use crate::engine::Engine;

/// How often a worker tells of itself.
const EVERY: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(1);
/// How long that is believed.
const BELIEVED: Duration = Duration::from_secs(60);
/// How long an end waits for the store.
const FAREWELL: Duration = Duration::from_millis(500);

/// What a worker tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Presence {
    /// `WORKER_ID` or the host name.
    pub worker: String,
    /// Its process id, on its own machine.
    pub pid: u32,
    /// The id of this start of it, as in listings of runs.
    pub id: String,
    /// The version of Quell it was built from.
    pub version: String,
    /// What its loop does.
    pub state: String,
    /// Keys that it works on at once, at the most.
    pub concurrency: usize,
    /// Only these; missing means every queue there is.
    pub queues: Option<Vec<QueueName>>,
    /// Only keys of this tenant.
    pub tenant: Option<Tenant>,
    /// When it started, by the clock of its machine.
    pub started_at: Timestamp,
    /// What the settings of its queues come to, by queue: `quell doctor` compares them between processes.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

impl Engine {
    /// The workers of this store that were heard of lately, and when.
    pub async fn workers(&self) -> StoreResult<Vec<(Presence, Timestamp)>> {
        let documents = self.documents(Shelf::Workers).await?;
        // One that a newer program wrote may be unreadable; it is not worth an error.
        let read = documents.into_iter().filter_map(|document| {
            let presence = serde_json::from_value(document.body).ok()?;
            Some((presence, document.put_at))
        });
        Ok(read.collect())
    }
}

/// Takes a worker off the list that has ended. One that cannot be taken off is gone from it in a minute.
pub(crate) async fn gone(engine: &Engine, id: &WorkerId) {
    let name = id.to_string();
    let removed = engine.remove_document(Shelf::Workers, &name);
    if !matches!(tokio::time::timeout(FAREWELL, removed).await, Ok(Ok(_))) {
        tracing::debug!(worker = name, "a worker could not take itself off the list");
    }
}

/// Tells of a worker until it is dropped. A store that is away is told later.
pub(crate) async fn tell(
    engine: Engine,
    mut told: watch::Receiver<Presence>,
    id: Arc<WorkerId>,
    state: watch::Receiver<WorkerState>,
) {
    let name = id.to_string();
    // Soon for the first time, when it knows what it does.
    let mut pause = SOON;
    loop {
        let mut about = told.borrow_and_update().clone();
        about.state = state.borrow().as_str().to_owned();
        if let Ok(body) = serde_json::to_value(&about)
            && let Err(error) = engine.put_document(Shelf::Workers, &name, body, Some(BELIEVED), false).await
        {
            tracing::debug!(%error, "a worker could not tell of itself");
        }
        tokio::select! {
            biased;
            () = clock::sleep(pause) => {}
            Ok(()) = told.changed() => {}
        }
        pause = EVERY;
    }
}
