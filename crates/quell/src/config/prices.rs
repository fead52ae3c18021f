//! `[prices]`, from the file to what the application collects with, and to its queues and sources.
//!
//! Each source of prices is described here (`prices_source.rs`) and governed by the section `[sources.NAME]` of the same name,
//! which it is given if nobody wrote one. Its secrets are named, not known.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quell_core::event::SourceName;
use quell_core::source::Declaration;
use quell_fetch::Guard;
use serde::{Deserialize, Serialize};

use super::Origin;
use super::error::{ConfigError, nearest};
use super::prices_source::resolve_price_source;
use super::raw::SourceConfig;
use super::raw_prices::{PriceValueConfig, PricesConfig};
use super::resolver::{Found, Resolver, text_or};
use super::secret::SecretSource;
use super::source::resolve_source;
use super::value::Written;
use crate::pointer::Pointer;
use crate::template::{Template, UrlTemplate};

/// The queue of requests for prices, one run each.
pub const COLLECT: &str = "collect";
/// The queue of trials, which end with their first try.
pub const COLLECT_TEST: &str = "collect.test";
/// The queue in which the value of an intake is made anew.
pub const COLLECT_VALUE: &str = "collect.value";

const CURRENCY_DEFAULT: &str = "USD";
const DAY: Duration = Duration::from_secs(24 * 3600);
const HALF_LIFE_DEFAULT: Duration = DAY.saturating_mul(90);
const MAX_AGE_DEFAULT: Duration = DAY.saturating_mul(365);
/// Shorter ones would make prices of the same day strangers to each other, longer ones are no limits.
const AGE_BOUNDS: (Duration, Duration) = (Duration::from_secs(3600), DAY.saturating_mul(3650));
/// A key of eBay has 5000 calls a day: 3 a minute are 4320, and the burst is refilled from them.
const EBAY_PER_MINUTE: i64 = 3;
const EBAY_BURST: i64 = 100;

/// What `[prices]` says.
#[derive(Debug, Clone, PartialEq)]
pub struct PricesSettings {
    /// Three capital letters.
    pub currency: String,
    pub value: PriceValueSettings,
    pub sources: BTreeMap<SourceName, Arc<PriceSourceSettings>>,
}

/// How one value is made of many prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceValueSettings {
    pub half_life: Duration,
    pub max_age: Duration,
    pub types: Vec<PriceType>,
}

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

/// One source of prices.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceSourceSettings {
    pub name: SourceName,
    pub adapter: AdapterSettings,
    /// Three capital letters; nothing means what each item says.
    pub currency: Option<String>,
    pub max_pages: u32,
    pub timeout: Duration,
    /// What the operator of the source is told besides our name.
    pub contact: Option<String>,
    pub matching: MatchSettings,
}

/// How it is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum AdapterSettings {
    Json(Box<JsonSourceSettings>),
    Ebay(Box<EbaySettings>),
}

/// Any service that answers with JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonSourceSettings {
    pub url: UrlTemplate,
    /// Names are valid and none of the client's own; the only value is `{secret}`.
    pub headers: Vec<(String, Template)>,
    pub secret: Option<SecretSource>,
    pub items: Pointer,
    pub fields: PriceFields,
    pub price_type: Option<PriceType>,
    pub types: BTreeMap<String, PriceType>,
    pub paging: Paging,
    /// Whether `robots.txt` is obeyed.
    pub robots: bool,
}

/// Where things stand in an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceFields {
    pub id: Option<Pointer>,
    pub title: Pointer,
    pub price: Pointer,
    pub currency: Option<Pointer>,
    pub url: Option<Pointer>,
    pub date: Option<Pointer>,
    pub kind: Option<Pointer>,
}

/// How one page leads to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paging {
    /// There is one page.
    None { size: Option<u32> },
    /// Pages are counted.
    Page { first: u32, size: Option<u32>, total: Option<Pointer> },
    /// Items are counted.
    Offset { first: u32, size: u32, total: Option<Pointer> },
    /// Each page names the next one.
    Next { pointer: Pointer, size: Option<u32> },
}

/// The Browse API of eBay.
#[derive(Debug, Clone, PartialEq)]
pub struct EbaySettings {
    /// Without a slash at its end.
    pub url: String,
    pub client_id: SecretSource,
    pub client_secret: SecretSource,
    pub marketplace: String,
    pub query: Template,
    pub category_ids: Vec<String>,
    pub filter: Option<String>,
    pub limit: u32,
}

/// How well an item fits an intake. The weights are 0 to 100, and not all of them 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchSettings {
    pub year: u32,
    pub mintmark: u32,
    pub denomination: u32,
    pub series: u32,
    pub title: u32,
    /// Names of the five.
    pub require: Vec<String>,
    pub exclude: Vec<String>,
    pub min_strength: u32,
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

impl PriceSourceSettings {
    /// Where its secrets are found.
    pub fn secrets(&self) -> Vec<&SecretSource> {
        match &self.adapter {
            AdapterSettings::Json(json) => json.secret.iter().collect(),
            AdapterSettings::Ebay(ebay) => vec![&ebay.client_id, &ebay.client_secret],
        }
    }
}

/// The section, its warnings included, and the declarations of those of its sources that nobody else declared.
pub(super) fn resolve_prices(
    r: &mut Resolver<'_>,
    file: PricesConfig,
    declared: &[Declaration],
    guard: &Guard,
    warnings: &mut Vec<String>,
) -> Result<(PricesSettings, Vec<Declaration>), ConfigError> {
    let currency = text_or(r, file.currency, CURRENCY_DEFAULT);
    let currency = checked_currency(r, "prices.currency", currency)?;
    let value = value(r, file.value)?;
    let (mut sources, mut own) = (BTreeMap::new(), Vec::new());
    for (key, section) in file.sources {
        let name = r.named(key);
        let source = resolve_price_source(r, &name, section, guard, warnings)?;
        if !declared.iter().any(|known| known.name == source.name) {
            let limits = own_limits(&source.adapter, &name);
            own.push(resolve_source(r, &name, limits)?);
        }
        sources.insert(source.name.clone(), Arc::new(source));
    }
    Ok((PricesSettings { currency, value, sources }, own))
}

/// A source that nobody declared is declared at the place where it is described.
fn own_limits(adapter: &AdapterSettings, name: &Found<String>) -> SourceConfig {
    let number = |value| Some(Written { value, span: name.span.clone() });
    match adapter {
        AdapterSettings::Json(_) => SourceConfig::default(),
        AdapterSettings::Ebay(_) => SourceConfig {
            rate_limit_per_minute: number(EBAY_PER_MINUTE),
            burst: number(EBAY_BURST),
            ..SourceConfig::default()
        },
    }
}

fn value(r: &mut Resolver<'_>, file: PriceValueConfig) -> Result<PriceValueSettings, ConfigError> {
    let bounds = AGE_BOUNDS.0..=AGE_BOUNDS.1;
    let (usual, setting) = (HALF_LIFE_DEFAULT, "prices.value.half_life");
    let half_life = r.duration(setting, None, &[], file.half_life, usual, bounds.clone())?;
    let max_age = r.duration("prices.value.max_age", None, &[], file.max_age, MAX_AGE_DEFAULT, bounds)?;
    let found = match file.types {
        Some(written) => r.placed(written),
        None => Found { value: vec!["sold".into(), "ask".into()], origin: Origin::Default, span: 0..0 },
    };
    let mut types = Vec::new();
    for word in &found.value {
        let kind = known_type(
            r,
            &Found { value: word.clone(), origin: found.origin.clone(), span: found.span.clone() },
        )?;
        if !types.contains(&kind) {
            types.push(kind);
        }
    }
    if types.is_empty() {
        return Err(r.error(&found, "no price would ever count").help("write types = [\"sold\", \"ask\"]"));
    }
    r.note("prices.value.types", format!("{:?}", found.value), &found.origin);
    Ok(PriceValueSettings { half_life, max_age, types })
}

pub(super) fn known_type(r: &Resolver<'_>, found: &Found<String>) -> Result<PriceType, ConfigError> {
    PriceType::named(&found.value).ok_or_else(|| {
        let words = PriceType::ALL.map(PriceType::as_str);
        let help = match nearest(&found.value, words) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("write one of {words:?}"),
        };
        r.error(found, format!("{:?} is no type of a price", found.value)).help(help)
    })
}

pub(super) fn checked_currency(
    r: &mut Resolver<'_>,
    setting: &str,
    found: Found<String>,
) -> Result<String, ConfigError> {
    if found.value.len() != 3 || !found.value.bytes().all(|byte| byte.is_ascii_uppercase()) {
        let problem = format!("{:?} is no currency", found.value);
        return Err(r.error(&found, problem).help("write three capital letters (ISO 4217), such as \"USD\""));
    }
    r.note(setting, &found.value, &found.origin);
    Ok(found.value)
}
