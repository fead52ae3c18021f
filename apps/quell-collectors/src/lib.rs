//! Collectors: prices of things, gathered from governed sources, each kept once, and one value made of them.
//!
//! Follow one price: an intake (`intake.rs`) is asked for at a source by an event of the queue `collect` (`request.rs`). One
//! run (`collect.rs`) turns the pages of the source's adapter (`adapter.rs`), each a step, into items (`found.rs`), says how
//! well each fits the intake (`matching.rs`), keeps the ones that do (`sift.rs`) and writes them into the book (`book.rs`)
//! under a key that is the same however often and however spelt the item is met (`dedupe.rs`). A debounced run per intake
//! (`valuation.rs`) then makes one value of all its points (`value.rs`). A schedule asks for everything at once (`fan_out.rs`).
//! Sources come from the configuration (`live.rs`); `local.rs` has a market on this machine, for tests and for demonstrations.
//!
//! Money is whole numbers with a currency (`money.rs`), never a float.

pub mod adapter;
pub mod book;
pub mod chart;
pub mod collect;
pub mod dedupe;
pub mod fan_out;
pub mod found;
pub mod intake;
pub mod live;
pub mod local;
pub mod matching;
pub mod money;
pub mod pages;
pub mod request;
mod sift;
pub mod valuation;
pub mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use quell::Engine;
use quell::config::Settings;
use quell::fetch::{CallError, Guard, Http, HttpSettings};
use quell::quell_core::event::{QueueName, SourceName};
use quell::worker::OwnHandler;

use crate::adapter::Adapter;
use crate::book::Book;
use crate::collect::Collects;
use crate::matching::MatchRules;
use crate::money::Currency;
use crate::valuation::Values;
use crate::value::ValueRules;

pub use quell::config::{COLLECT, COLLECT_TEST, COLLECT_VALUE};

/// Pages of one collection: with two hundred items each they are as many as one intake may have of one source.
pub const PAGES_MAX: u32 = 25;
/// Pages of a source that does not say how many: the first thousand items of a search fit best.
pub const PAGES_DEFAULT: u32 = 5;

/// A page of two hundred items with all that a marketplace writes of each is well below it.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A source of prices: how it is asked, and what of its answers is believed.
#[derive(Clone)]
pub struct PriceSource {
    pub adapter: Arc<dyn Adapter>,
    pub rules: MatchRules,
    /// What all its prices are in; an item in another currency fails the run. Nothing means that each item says its own.
    pub currency: Option<Currency>,
    /// 1 to [`PAGES_MAX`].
    pub max_pages: u32,
}

/// The client for all sources, one for a whole process.
pub fn client(settings: &Settings) -> Result<Http, CallError> {
    let bounds = HttpSettings { body_bytes_max: BODY_BYTES_MAX, ..HttpSettings::default() };
    Http::new(Guard::new(settings.outbound.clone()), &bounds)
}

/// The handlers of the three queues, for a worker.
pub fn handlers(
    engine: &Engine,
    book: &Book,
    sources: &Arc<BTreeMap<SourceName, PriceSource>>,
    rules: &ValueRules,
    http: &Http,
) -> BTreeMap<QueueName, OwnHandler> {
    let collects = Arc::new(Collects {
        engine: engine.clone(),
        book: book.clone(),
        http: http.clone(),
        sources: sources.clone(),
    });
    let values = Values { book: book.clone(), rules: rules.clone() };
    let own = |handler| OwnHandler { handler, time_limit: None };
    let mut handlers = BTreeMap::new();
    handlers.insert(queue(COLLECT), own(collects.clone()));
    handlers.insert(queue(COLLECT_TEST), own(collects));
    handlers.insert(queue(COLLECT_VALUE), own(Arc::new(values)));
    handlers
}

/// A queue of this application.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("the names of the queues are valid ones")
}
