//! What a worker does beside its runs: telling what sweeps found, removing old history in small steps, and bringing the
//! configured schedules into the store.
//!
//! Taking expired leases back is asked for by the worker's loop; here is how it is told. The retention runs in a task of
//! its own, one small step at a time with room for others between, so it never stalls a claim.

use std::sync::Arc;

use quell_core::batch::WorkerId;
use quell_core::step::{Sweeper, SweeperEffect, SweeperInput};
use quell_core::store::{Reclaimed, Swept};

use crate::clock::{self, Alarm};
use crate::engine::Engine;
use crate::observe;

/// Tells what sweeps found; the first one of a worker in one piece, also when it found nothing.
#[derive(Debug, Default)]
pub(crate) struct SweepLog {
    first: Vec<Reclaimed>,
    started: bool,
}

impl SweepLog {
    pub(crate) fn swept(&mut self, worker: &WorkerId, swept: &Swept) {
        swept.reclaimed.iter().for_each(observe::lease_reclaimed);
        if self.started {
            return;
        }
        self.first.extend_from_slice(&swept.reclaimed);
        if !swept.more {
            self.started = true;
            observe::startup_swept(worker, &std::mem::take(&mut self.first));
        }
    }
}

/// All of it, until it is dropped. Changed settings begin each anew: the sources and schedules of the new ones are brought into
/// the store, too.
pub(crate) async fn all(engine: Engine) {
    let mut changes = engine.changes();
    loop {
        let upkeep = async {
            tokio::join!(retention(engine.clone()), sources(engine.clone()), schedules(engine.clone()));
        };
        tokio::select! {
            biased;
            () = upkeep => {}
            () = changes.next() => {}
        }
    }
}

/// Removes what is older than the retention, until it is dropped.
async fn retention(engine: Engine) {
    let time = Arc::clone(engine.time());
    let settings = engine.settings();
    let worker = &settings.worker;
    let mut sweeper = Sweeper::new(time.tick(), settings.retention, worker.sweep_every, worker.error_wait);
    let mut alarm = Alarm::new(time.clone());
    let mut input = SweeperInput::Timer;
    let mut effects = Vec::new();
    loop {
        sweeper.step(time.tick(), input, &mut effects);
        input = match effects.pop() {
            Some(SweeperEffect::Sweep(request)) => {
                let answer = engine.store().sweep(request).await;
                match &answer {
                    Ok(swept) => observe::retention_step(swept),
                    Err(error) => tracing::warn!(%error, "a retention step failed"),
                }
                SweeperInput::Swept(answer)
            }
            Some(SweeperEffect::WakeAt(at)) => {
                alarm.set(at);
                alarm.rung().await;
                SweeperInput::Timer
            }
            None => SweeperInput::Timer,
        };
    }
}

/// Brings the sources of the configuration into the store, as soon as the store takes them.
async fn sources(engine: Engine) {
    if engine.settings().sources.is_empty() {
        return;
    }
    loop {
        match engine.apply_sources().await {
            Ok(applied) => return observe::sources_applied(&applied),
            Err(error) => {
                tracing::warn!(%error, "the sources could not be put into the store, trying again")
            }
        }
        clock::sleep(engine.settings().worker.error_wait).await;
    }
}

/// Brings the schedules of the configuration into the store, as soon as the store takes them.
async fn schedules(engine: Engine) {
    if engine.settings().schedules.is_none() {
        return;
    }
    loop {
        match engine.apply_schedules().await {
            Ok(applied) => return observe::schedules_applied(&applied),
            Err(error) => {
                tracing::warn!(%error, "the schedules could not be put into the store, trying again")
            }
        }
        clock::sleep(engine.settings().worker.error_wait).await;
    }
}
