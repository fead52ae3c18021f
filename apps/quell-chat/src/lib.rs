//! Chat: one answer per burst, per customer, in order.
//!
//! Follow one message: a webhook of WATI, Twilio or Meta is proven and read (`inbound.rs`) and becomes one event per message
//! (`message.rs`) in the lane of that customer, where it waits until the customer has finished typing. Then one run
//! (`handle.rs`) joins the messages (`join.rs`), asks the model with what was said before (`history.rs`, `model.rs`), waits as long
//! as typing takes (`delay.rs`), and sends one reply the way the messages came (`provider.rs`). Both sides are written into the
//! book of conversations (`book.rs`).
//!
//! What cannot be answered goes to a person (`escalate.rs`), who has a desk (`desk.rs`) and a page of the dashboard (`pages.rs`).
//! Tenants can be changed while all this runs (`live.rs`). `local.rs` has servers that speak the same protocols on this machine,
//! for tests and for `quell demo chat`.

pub mod book;
pub mod delay;
pub mod desk;
pub mod escalate;
pub mod handle;
pub mod history;
pub mod inbound;
pub mod join;
pub mod live;
pub mod local;
pub mod message;
pub mod model;
pub mod pages;
pub mod provider;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use quell::Engine;
use quell::clock::Chance;
use quell::config::{CHAT, CHAT_FAILED, Settings};
use quell::fetch::{CallError, Guard, Http};
use quell::observe::Metric;
use quell::quell_core::event::QueueName;
use quell::worker::OwnHandler;

use crate::book::Book;
use crate::escalate::Escalates;
use crate::handle::{Answers, RECONCILE_AFTER};
use crate::live::Live;

/// What the application counts.
pub const METRICS: &[Metric] = &[
    Metric::counter(
        "quell_chat_bursts_total",
        &["delivery"],
        "bursts of customers by what came of them: `sent`, `human` (a person answers there), `no_answer` (the model gave none), `unknown` (nobody knows whether it was sent)",
    ),
    Metric::counter(
        "quell_chat_escalated_total",
        &[],
        "conversations handed to a person because their run failed for good",
    ),
];

/// The client for models and providers, one for a whole process.
pub fn client(settings: &Settings) -> Result<Http, CallError> {
    Http::new(Guard::new(settings.outbound.clone()), &model::http_settings())
}

/// The handlers of both queues, for a worker that the configuration does not give to somebody else.
pub fn handlers(
    engine: &Engine,
    book: &Arc<dyn Book>,
    live: &Arc<Live>,
    http: &Http,
) -> BTreeMap<QueueName, OwnHandler> {
    let answers = Answers {
        engine: engine.clone(),
        book: book.clone(),
        live: live.clone(),
        http: http.clone(),
        chance: Chance::from_system(),
        reconcile_after: RECONCILE_AFTER,
    };
    let escalates =
        Escalates { engine: engine.clone(), book: book.clone(), live: live.clone(), http: http.clone() };
    let own = |handler| OwnHandler { handler, time_limit: None };
    let mut handlers = BTreeMap::new();
    handlers.insert(queue(CHAT), own(Arc::new(answers)));
    handlers.insert(queue(CHAT_FAILED), own(Arc::new(escalates)));
    handlers
}

/// A queue of this application.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("the names of the queues are valid ones")
}
