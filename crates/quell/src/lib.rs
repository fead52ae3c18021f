//! Quell turns bursts of events into one orderly run per key.
//!
//! Events for the same key are stored durably the moment they arrive, wait until the burst is over, and are then handed
//! to exactly one worker as one ordered batch, under a lease, with retries and an audit trail.
//!
//! ```no_run
//! use quell::{ProgramError, Quell, Queue, Run, from_fn};
//! use serde_json::json;
//! use std::time::Duration;
//!
//! # async fn program() -> Result<(), ProgramError> {
//! let answer = from_fn(|run: Run| async move {
//!     println!("{} sent {} messages", run.key(), run.events().len());
//! });
//! let chat = Queue::quiet(Duration::from_millis(300)).handler(answer);
//! let quell = Quell::open("sqlite:quell.db").queue("chat", chat).start().await?;
//! quell.send("chat", "customer-7", json!({ "text": "hi" })).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Quell`] is the short way: a store, queues with Rust handlers, and a worker in this process (`examples/hello.rs`).
//! - [`Engine`] appends and inspects; [`Worker`] claims, runs handlers and settles. Programs with a configuration file
//!   (see [`config`]) put these together themselves.
//! - [`handler`] is the interface of code that handles batches.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `sqlite` (default) | the store in a file, bundled |
//! | `postgres`, `redis` | the stores for many machines |
//! | `http` | outgoing HTTP: the handler `http`, notices to a URL, the client of [`fetch`] that sources govern |
//! | `schema` | shapes for OpenAPI documents |
//! | `testing` | unit tests of handlers and settings under a virtual clock: `quell::testing`; for `[dev-dependencies]` |
//!
//! Without a store of its own (`default-features = false`) a program can still bring one: [`Quell::with_store`]. A URL whose store is
//! not built in is refused with the name of the feature ([`OpenError::NotBuiltIn`]).

#![warn(missing_docs)]

mod access;
pub mod clock;
pub mod config;
pub mod copy;
pub mod deliveries;
pub mod endpoints;
pub mod engine;
#[cfg(feature = "http")]
mod fetching;
pub mod handler;
pub mod handlers;
mod heartbeat;
mod incoming;
mod maintenance;
#[allow(missing_docs, reason = "each function is the record of the event that it is named after")]
pub mod observe;
pub mod open;
mod operate;
pub mod outbound;
pub mod pointer;
mod presence;
pub mod program;
mod pull;
pub mod rates;
pub mod redact;
mod running;
mod schedules;
pub mod secrets;
mod shelves;
mod sources;
pub mod spans;
pub mod steps;
pub mod template;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tokens;
mod trace;
mod trail;
mod wait;
pub mod worker;

pub use access::TokenWish;
pub use engine::{Engine, EngineError};
pub use handler::{Handler, Run, from_fn};
pub use incoming::{Incoming, Prepared};
pub use open::OpenError;
pub use operate::RedriveWish;
pub use presence::Presence;
pub use program::{ProgramError, Quell, QuellBuilder, Queue};
pub use pull::PullWish;
pub use quell_core;
pub use quell_core::event::Overflow;
pub use quell_core::lane::{DuringRun, OnFailed, RetryWith};
pub use quell_core::outcome::Outcome;
/// Outgoing HTTP: the guard against forbidden addresses and the client that a source governs.
pub use quell_fetch as fetch;
/// Webhooks: proofs of providers, and how ours are signed.
pub use quell_webhook as webhook;
pub use schedules::{AppliedSchedules, CONFIGURED};
pub use sources::AppliedSources;
pub use steps::{Hold, RunError, StepOnce};
pub use tokens::{ApiToken, NewToken, Presented, Scope};
pub use wait::Waited;
pub use worker::{Shutdown, Worker, WorkerOptions, WorkerReport};
