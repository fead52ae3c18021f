//! `[prices]` as written. The doc comment of each field is its entry in the reference manual.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::value::{DurationText, Written};

/// `[prices]`: with this section the queues `collect`, `collect.test` and `collect.value` exist, and workers of this file
/// collect prices. Needs SQLite or PostgreSQL.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PricesConfig {
    /// What intakes are valued in unless they say otherwise, three capital letters. Default `"USD"`.
    pub currency: Option<Written<String>>,
    /// How one value is made of the prices of an intake.
    pub value: PriceValueConfig,
    /// Where prices are asked for, by name. See `[prices.sources.NAME]`. A source is governed by the section `[sources.NAME]` of
    /// the same name; without one it is declared by itself: for `"ebay"` with 3 requests a minute and a burst of 100, which stays
    /// below the 5000 a day of a new key, else without a limit.
    #[schemars(with = "BTreeMap<String, PriceSourceConfig>")]
    pub sources: BTreeMap<toml::Spanned<String>, PriceSourceConfig>,
}

/// `value = { … }`: the weighted median of the prices, younger ones and better matches counting more.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PriceValueConfig {
    /// After this time a price counts half, `"1h"` to `"3650d"`. Default `"90d"`.
    pub half_life: Option<Written<DurationText>>,
    /// Older prices do not count at all, `"1h"` to `"3650d"`. Default `"365d"`.
    pub max_age: Option<Written<DurationText>>,
    /// The prices that count: `"sold"`, `"ask"`, `"bid"`. Default `["sold", "ask"]`.
    pub types: Option<Written<Vec<String>>>,
}

/// `[prices.sources.NAME]`: the name has at most 64 characters of `a-z`, `0-9`, `.`, `_` and `-`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PriceSourceConfig {
    /// How it is asked: `"json"` (any service that answers with JSON, described here) or `"ebay"` (the Browse API, which shows
    /// offers, not sales; its licence restricts what may be stored and analysed, so read it first). Default `"json"`.
    pub adapter: Option<Written<String>>,
    /// For `json`: where a page is found, with places for values: `{year}`, `{mintmark}`, `{denomination}`, `{series}`, `{title}`
    /// of the intake, `{query}` (those that are known, with spaces between them), `{page}`, `{offset}` and `{limit}` of the
    /// paging, and any other name from `query_params`. A value that is missing fails the run, unless a question mark allows it:
    /// `{mintmark?}`. Values are percent-encoded. Required. For `ebay`: another server. Default `"https://api.ebay.com"`.
    pub url: Option<Written<String>>,
    /// For `json`: headers of each request, such as `{ "X-Api-Key" = "{secret}" }`; `{secret}` is the secret.
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: BTreeMap<toml::Spanned<String>, Written<String>>,
    /// For `json`: a file with the secret of the headers and nothing else.
    pub secret_file: Option<Written<String>>,
    /// For `json`: an environment variable with the secret of the headers.
    pub secret_env: Option<Written<String>>,
    /// For `json`: the list of items in an answer, as a JSON pointer; `""` if the answer is the list. Required.
    pub items: Option<Written<String>>,
    /// For `json`: what stands where in an item.
    pub fields: PriceFieldsConfig,
    /// For `json`: what a price is unless the item says it: `"sold"`, `"ask"` or `"bid"`. Required without `fields.type`.
    pub price_type: Option<Written<String>>,
    /// For `json`, with `fields.type`: what the words of the source mean, such as `{ BUY_NOW = "ask", ENDED = "sold" }`. The words
    /// `sold`, `ask` and `bid` mean themselves. Default `{}`.
    #[schemars(with = "BTreeMap<String, String>")]
    pub types: BTreeMap<toml::Spanned<String>, Written<String>>,
    /// The currency of its prices, three capital letters: an item in another one fails the run, and nothing of it is kept.
    /// Default: what each item says. Required for `json` without `fields.currency`.
    pub currency: Option<Written<String>>,
    /// For `json`: how one page leads to the next.
    pub paging: PagingConfig,
    /// Pages that one collection reads at the most, 1 to 25. Default `5`.
    #[schemars(range(min = 1, max = 25))]
    pub max_pages: Option<Written<i64>>,
    /// From the first byte of a request to the last one of its answer, `"100ms"` to `"2m"`. Default `"20s"`.
    pub timeout: Option<Written<DurationText>>,
    /// How well an item fits an intake.
    #[serde(rename = "match")]
    pub matching: MatchConfig,
    /// Who runs this, for the operator of the source: an address or a URL that goes into the header `User-Agent` after
    /// `quell/VERSION`. Default: none.
    pub contact: Option<Written<String>>,
    /// For `json`: whether `robots.txt` of the host is read and obeyed; what it forbids fails the run. `false` says that this is
    /// an API whose terms you have accepted. Default `true`.
    pub robots: Option<Written<bool>>,
    /// For `ebay`: a file with the client id of the application.
    pub client_id_file: Option<Written<String>>,
    /// For `ebay`: an environment variable with the client id. One of the two is required.
    pub client_id_env: Option<Written<String>>,
    /// For `ebay`: a file with the client secret.
    pub client_secret_file: Option<Written<String>>,
    /// For `ebay`: an environment variable with the client secret. One of the two is required.
    pub client_secret_env: Option<Written<String>>,
    /// For `ebay`: whose offers. Default `"EBAY_US"`.
    pub marketplace: Option<Written<String>>,
    /// For `ebay`: what is searched for, with places for values as in `url` of a `json` source, but for those of the paging.
    /// Default `"{query}"`.
    pub query: Option<Written<String>>,
    /// For `ebay`: only these categories, `["39482"]`. Default: all.
    pub category_ids: Option<Written<Vec<String>>>,
    /// For `ebay`: only what passes this filter of the API, such as `"buyingOptions:{FIXED_PRICE}"`. Default: none.
    pub filter: Option<Written<String>>,
    /// For `ebay`: items of a page, 1 to 200. Default `100`.
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<Written<i64>>,
}

/// `fields = { … }`: JSON pointers into an item, such as `"/price/value"`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PriceFieldsConfig {
    /// What the source calls the item for ever, a text or a number. This or `url` is required: something must tell items apart.
    pub id: Option<Written<String>>,
    /// The title of the item, which it is matched by. Required.
    pub title: Option<Written<String>>,
    /// The price, a number or a text of digits with at most one point; it is read as it is written, never as a float.
    /// Anything else fails the run. Required.
    pub price: Option<Written<String>>,
    /// The currency of the price, three letters. Default: that of the source.
    pub currency: Option<Written<String>>,
    /// The address of the item for people.
    pub url: Option<Written<String>>,
    /// When it was sold or listed: `2025-09-29T08:53:20Z`, `2025-09-29`, or seconds or milliseconds since 1970. Default: when it
    /// was first seen.
    pub date: Option<Written<String>>,
    /// What kind of price it is, in words of the source (see `types`). Default: `price_type`.
    #[serde(rename = "type")]
    pub kind: Option<Written<String>>,
}

/// `paging = { … }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PagingConfig {
    /// `"none"` (one page), `"page"` (pages are counted: `{page}`), `"offset"` (items are counted: `{offset}`) or `"next"` (each
    /// page names the next one, on the same host). Default `"none"`.
    pub by: Option<Written<String>>,
    /// With `page` and `offset`: where the first page is. Default `1` for pages, `0` for items.
    pub first: Option<Written<i64>>,
    /// Items of a page, for `{limit}`, 1 to 500; a page with fewer is the last one where there is no `total`. Required with
    /// `offset`.
    #[schemars(range(min = 1, max = 500))]
    pub size: Option<Written<i64>>,
    /// With `next`: where a page names the next one, as a JSON pointer. Required there.
    pub next: Option<Written<String>>,
    /// With `page` (and a `size`) and `offset`: the number of all items, as a JSON pointer. Default: pages are read until one is not
    /// full.
    pub total: Option<Written<String>>,
}

/// `match = { … }`: the strength of a match is the share of these weights that the item's title fulfils, 0 to 100; what is not
/// known of the intake does not count.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MatchConfig {
    /// The weight of the year, 0 to 100. Default `30`.
    #[schemars(range(min = 0, max = 100))]
    pub year: Option<Written<i64>>,
    /// The weight of the mint mark, 0 to 100. Default `20`.
    #[schemars(range(min = 0, max = 100))]
    pub mintmark: Option<Written<i64>>,
    /// The weight of the denomination, 0 to 100. Default `15`.
    #[schemars(range(min = 0, max = 100))]
    pub denomination: Option<Written<i64>>,
    /// The weight of the series, 0 to 100. Default `25`.
    #[schemars(range(min = 0, max = 100))]
    pub series: Option<Written<i64>>,
    /// The weight of the words of the title, 0 to 100. Default `10`.
    #[schemars(range(min = 0, max = 100))]
    pub title: Option<Written<i64>>,
    /// What must fit wherever the intake knows it: `"year"`, `"mintmark"`, `"denomination"`, `"series"`, `"title"`. Default
    /// `["year", "mintmark"]`.
    pub require: Option<Written<Vec<String>>>,
    /// Items with one of these words or phrases are not kept. Default
    /// `["replica", "copy", "reproduction", "counterfeit", "fake", "fantasy", "not genuine"]`.
    pub exclude: Option<Written<Vec<String>>>,
    /// Weaker matches are not kept, 0 to 100. Default `50`.
    #[schemars(range(min = 0, max = 100))]
    pub min_strength: Option<Written<i64>>,
}
