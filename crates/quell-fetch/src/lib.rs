//! Outgoing HTTP: a client that a stranger may give the URL to, governed by the run's source.
//!
//! Without the feature `client`, which is on by default, there is only the first of these:
//!
//! - `guard.rs` decides what may be connected to, for this client and for every other that sends what others wrote.
//! - `names.rs` has it judge what names resolve to.
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

#![warn(missing_docs)]

#[cfg(feature = "client")]
mod cache;
#[cfg(feature = "client")]
mod call;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod clock;
mod guard;
#[cfg(feature = "client")]
mod names;

#[cfg(feature = "client")]
pub use call::{
    BODY_BYTES_DEFAULT, BODY_BYTES_MAX, Call, CallError, Excess, Http, HttpSettings, Opened, Reply,
    USER_AGENT,
};
#[cfg(feature = "client")]
pub use client::{FetchError, Fetched, Fetcher, Origin, Streamed, retry_after};
pub use guard::{Admitted, Allow, BadAllow, Forbidden, Guard, Refused, URL_BYTES_MAX, verdict};
/// The words of a [`Call`].
#[cfg(feature = "client")]
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
#[cfg(feature = "client")]
pub use names::{GuardedNames, SystemNames};
