//! What an adapter finds: one item of a source, read and checked, before it is compared with anything.

pub use quell::config::PriceType;
use quell::quell_core::clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::money::Money;

/// One item of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What the source calls it for ever.
    pub external_id: Option<String>,
    /// As the source writes it.
    pub url: Option<String>,
    /// As the source writes it.
    pub title: String,
    pub price: Money,
    /// What the source converted it from.
    pub original: Option<Money>,
    pub price_type: PriceType,
    /// When it was sold or listed, if the source says.
    pub date: Option<Timestamp>,
}
