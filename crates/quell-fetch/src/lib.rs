//! Outgoing HTTP: a client that a stranger may give the URL to, governed by the run's source.
//!
//! - `guard.rs` decides what may be connected to, for this client and for every other that sends what others wrote.
//! - `call.rs` makes one bounded request: no redirects, no proxies, a cap on what is read, time limits.
//! - `cache.rs` decides by the rules of HTTP which answers may be used again.
//! - `client.rs` puts them in order for a handler: cache, limiter, request, breaker.
//!
//! A handler makes one [`Http`] for its whole life and a [`Fetcher`] for each run:
//!
//! ```
//! use std::sync::Arc;
//! use quell_core::{batch::Batch, outcome::Outcome, store::Store};
//! use quell_fetch::{Fetcher, Http};
//!
//! async fn price(http: &Http, store: Arc<dyn Store>, batch: &Batch) -> Outcome {
//!     let fetcher = Fetcher::new(http.clone(), store, batch);
//!     match fetcher.get("https://shop.example/price/7").await {
//!         Ok(page) if page.status.is_success() => fetcher.finish(Outcome::succeeded()),
//!         Ok(page) => fetcher.finish(Outcome::failed(format!("the shop answered {}", page.status))),
//!         Err(error) => fetcher.outcome(&error),
//!     }
//! }
//! ```
//!
//! What is kept, limited and counted lives in the store, so all workers share it; nothing here remembers anything
//! between two runs but open connections.

mod cache;
mod call;
mod client;
mod clock;
mod guard;

pub use call::{
    BODY_BYTES_DEFAULT, BODY_BYTES_MAX, Call, CallError, Excess, Http, HttpSettings, Opened, Reply,
    USER_AGENT,
};
pub use client::{FetchError, Fetched, Fetcher, Origin, Streamed, retry_after};
pub use guard::{
    Admitted, Allow, BadAllow, Forbidden, Guard, GuardedNames, Refused, SystemNames, URL_BYTES_MAX, verdict,
};
/// The words of a [`Call`].
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
