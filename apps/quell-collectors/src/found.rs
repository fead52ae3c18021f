//! What an adapter finds: one item of a source, read and checked, before it is compared with anything.

use std::fmt;

use quell::quell_core::clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::money::Money;

/// What a price means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PriceType {
    /// Somebody paid it.
    Sold,
    /// Somebody wants it.
    Ask,
    /// Somebody offers it.
    Bid,
}

impl PriceType {
    pub const ALL: [PriceType; 3] = [PriceType::Sold, PriceType::Ask, PriceType::Bid];

    pub fn as_str(self) -> &'static str {
        match self {
            PriceType::Sold => "sold",
            PriceType::Ask => "ask",
            PriceType::Bid => "bid",
        }
    }

    pub fn named(name: &str) -> Option<PriceType> {
        PriceType::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for PriceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

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
