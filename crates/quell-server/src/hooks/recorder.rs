//! Remembers deliveries beside the answers: a sender never waits for the inspector, and a flood of strangers costs the store a
//! bounded number of writes, in which what was taken has its own share.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use quell::Engine;
use quell::clock;
use quell::deliveries::{DeliveryRecord, DeliveryVerdict, Places};
use tokio::sync::Notify;

use crate::limits;

#[derive(Default)]
pub(crate) struct Recorder {
    waiting: Mutex<Waiting>,
    told: Notify,
}

#[derive(Default)]
struct Waiting {
    taken: VecDeque<DeliveryRecord>,
    refused: VecDeque<DeliveryRecord>,
}

impl Recorder {
    /// Beyond what is written in one round the oldest are forgotten.
    pub(super) fn keep(&self, record: DeliveryRecord) {
        let mut waiting = self.locked();
        let list = match record.verdict {
            DeliveryVerdict::Refused => &mut waiting.refused,
            _ => &mut waiting.taken,
        };
        if list.len() == limits::DELIVERIES_A_ROUND {
            list.pop_front();
            metrics::counter!("quell_hooks_unrecorded_total").increment(1);
        }
        list.push_back(record);
        drop(waiting);
        self.told.notify_one();
    }

    /// Writes until it is dropped. A store that is away loses records, never events.
    pub(crate) async fn run(&self, engine: &Engine) {
        let mut places = Places::default();
        loop {
            self.told.notified().await;
            self.round(engine, &mut places).await;
            clock::sleep(limits::DELIVERIES_EVERY).await;
        }
    }

    async fn round(&self, engine: &Engine, places: &mut Places) {
        let Waiting { taken, refused } = std::mem::take(&mut *self.locked());
        for record in taken.into_iter().chain(refused) {
            if let Err(error) = engine.keep_delivery(places, record).await {
                tracing::debug!(%error, "a delivery could not be remembered");
                metrics::counter!("quell_hooks_unrecorded_total").increment(1);
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no panic happens while it is locked")
    }
}
