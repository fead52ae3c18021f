//! The way to ask a source: one page of items at a time, through the governed client of the run.
//!
//! - `json.rs` asks any service that answers with JSON, as its description says; `robots.rs` whether it wants to be asked.
//! - `ebay.rs` asks the Browse API of eBay, with a token that it gets by itself.
//! - `answer.rs` says what an answer means, `raw.rs` finds things in it, `page.rs` bounds what is taken from it.
//!
//! What becomes of a run is decided by the kind of its error. The governed client's own ([`AdapterError::Fetch`]) speak for
//! themselves: time-outs, lost connections, 429 and 5xx are faults of the source. An answer that is no JSON at all, or breaks off
//! in the middle, is transient: proxies and overloaded servers send such things, and nothing in it says that the description is
//! wrong; how often it is asked again, the queue says. Everything else is permanent: a refusal, a redirect, a value that a
//! template lacks, JSON that does not fit the description, a price that is no price, another currency than the declared one.
//!
//! The client is one that keeps no answers by itself ([`Fetcher::past_the_cache`]): the whole of all pages is kept by whoever
//! turns them, and each page is a step of the run. So an adapter just asks, and says what came of it.

mod answer;
mod ebay;
mod json;
mod page;
mod raw;
mod robots;
mod values;

use std::collections::BTreeMap;

use async_trait::async_trait;
use quell::fetch::{FetchError, Fetcher};
use serde::{Deserialize, Serialize};

pub use ebay::EbaySource;
pub use json::JsonSource;

use crate::found::Found;
use crate::intake::About;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub about: &'a About,
    /// `query_params` of the event: further values for the source's templates, which win over those of the intake.
    pub params: &'a BTreeMap<String, String>,
}

/// One page of an answer, as a step remembers it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    pub items: Vec<Found>,
    /// Items without what a point needs (a price, a title, something to tell them apart by).
    pub skipped: u32,
    /// Where the next page begins, for the adapter that wrote it; nothing at the end.
    pub next: Option<String>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The governed client says what becomes of the run.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Trying again does not help: a bad template, a refusal, an answer that does not fit the description.
    #[error("{0}")]
    Permanent(String),
    /// It may help: an answer that broke off.
    #[error("{0}")]
    Transient(String),
}

/// One source.
#[async_trait]
pub trait Adapter: Send + Sync {
    /// The address that the operator wrote down, and so meant, even if it is a private one.
    fn base_url(&self) -> &str;

    /// The page that begins at `cursor`, or the first one.
    async fn page(
        &self,
        fetcher: &Fetcher,
        query: Query<'_>,
        cursor: Option<&str>,
    ) -> Result<Page, AdapterError>;
}
