//! What the local market has: the same listings for the same search, however often and by whomever it is asked.
//!
//! A generated catalogue has what real ones have: the same listing again with tracking in its address and its title spelt
//! otherwise, listings without an id, running auctions, prices with and without cents.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quell::quell_core::clock::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::found::PriceType;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Marks a text that is written as a number, digit by digit.
const NUMBER: &str = "#num:";

type Words = Arc<dyn Fn(&str, Timestamp) -> Vec<Listing> + Send + Sync>;

/// Listings by what is searched for.
#[derive(Clone)]
pub struct Catalogue(Words);

/// One listing.
#[derive(Debug, Clone, PartialEq)]
pub enum Listing {
    Made(Made),
    /// An item of the Browse API, exactly so. The shop does not have it.
    Exactly(Value),
}

/// A listing that both write in their own way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub number: u64,
    /// Whether the market tells its number.
    pub has_id: bool,
    pub title: String,
    /// Digits with a point.
    pub price: String,
    pub currency: String,
    pub price_type: PriceType,
    /// What stands behind the number in its address.
    pub tracking: String,
    pub listed: Timestamp,
}

impl Catalogue {
    /// Always these items of the Browse API, whatever is searched for.
    pub fn fixed(items: Vec<Value>) -> Catalogue {
        Catalogue::of(move |_, _| items.iter().cloned().map(Listing::Exactly).collect())
    }

    /// So many different listings for each search, and every third of them twice.
    pub fn generated(different: usize) -> Catalogue {
        Catalogue::of(move |query, opened| generated(query, opened, different))
    }

    /// What is made of the search. The time is that at which the market opened.
    pub fn of(listings: impl Fn(&str, Timestamp) -> Vec<Listing> + Send + Sync + 'static) -> Catalogue {
        Catalogue(Arc::new(listings))
    }

    /// What is found, in the order of the market.
    pub fn listings(&self, query: &str, opened: Timestamp) -> Vec<Listing> {
        (self.0)(query, opened)
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Catalogue")
    }
}

fn generated(query: &str, opened: Timestamp, different: usize) -> Vec<Listing> {
    let words = query.split_whitespace().collect::<Vec<_>>().join(" ");
    let digest = Sha256::digest(words.to_lowercase().as_bytes());
    let seed = digest.iter().take(4).fold(0_u64, |seed, byte| (seed << 8) | u64::from(*byte));
    let one = |at: usize| {
        let number = u64::try_from(at).unwrap_or(0);
        let cents = 2_000 + (seed + number * 137) % 10_000;
        let age = u32::try_from(at % 60 + 1).unwrap_or(1);
        Made {
            number: 110_000_000_000 + (seed % 100_000_000) * 1_000 + number,
            has_id: at % 4 != 3,
            title: format!("{words} no. {}", at + 1),
            price: format!("{}.{:02}", cents / 100, cents % 100),
            currency: "USD".into(),
            price_type: if at % 5 == 4 { PriceType::Bid } else { PriceType::Ask },
            tracking: String::new(),
            listed: Timestamp::from_millis(opened.as_millis() - millis(DAY * age)),
        }
    };
    let first: Vec<Made> = (0..different).map(one).collect();
    let again = first.iter().step_by(3).map(|made| Made {
        title: format!("  {}  ", made.title.to_uppercase().replace(' ', "  ")),
        tracking: format!("?_trksid=p{}&hash=item{:x}&amdata=enc%3AAQ#desc", made.number % 7, made.number),
        ..made.clone()
    });
    let again: Vec<Made> = again.collect();
    first.into_iter().chain(again).map(Listing::Made).collect()
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// A text that becomes a number when it is sent.
pub(super) fn number(text: &str) -> Value {
    Value::String(format!("{NUMBER}{text}"))
}

/// The document with those texts as numbers, written as they are.
pub(super) fn with_numbers(text: &str) -> String {
    let marked = format!("\"{NUMBER}");
    let mut parts = text.split(marked.as_str());
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('"') {
            Some((digits, rest)) => {
                written.push_str(digits);
                written.push_str(rest);
            }
            None => written.push_str(part),
        }
    }
    written
}

/// The document with every price or every currency changed.
pub(super) fn respelt(text: &str, price: Option<&str>, currency: Option<&str>) -> String {
    fn change(value: &mut Value, price: Option<&str>, currency: Option<&str>) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(|value| change(value, price, currency)),
            Value::Object(fields) => {
                let is_price = fields.contains_key("currency");
                for (name, value) in fields.iter_mut() {
                    match name.as_str() {
                        "value" | "amount" if is_price => {
                            if let Some(price) = price {
                                *value = price.into();
                            }
                        }
                        "currency" => {
                            if let Some(currency) = currency {
                                *value = currency.into();
                            }
                        }
                        _ => change(value, price, currency),
                    }
                }
            }
            _ => {}
        }
    }
    let Ok(mut document) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    change(&mut document, price, currency);
    document.to_string()
}
