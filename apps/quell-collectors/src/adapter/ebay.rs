//! The Browse API of eBay: offers and running auctions, a page at a time.
//!
//! - `token.rs` has the token, which is got with the client's id and secret and lives in this process only.
//! - `item.rs` reads one item of an answer.
//!
//! Pages are turned by counting, never by following the link in an answer: as far as the answer's total and the ten thousand
//! results that the API lets anybody reach. Warnings of the API are about filters that it ignored, and are ignored, too.

mod item;
mod token;

use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quell::config::{EbaySettings, PriceSourceSettings};
use quell::fetch::{Call, Fetched, Fetcher, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::adapter::answer::{asked, body, document, user_agent};
use crate::adapter::page::Filling;
use crate::adapter::values::{At, one_line, value};
use crate::adapter::{Adapter, AdapterError, Page, Query};
use crate::money::Currency;

use token::{Token, Tokens};

const SEARCH: &str = "/buy/browse/v1/item_summary/search";
/// Results beyond these cannot be asked for.
const REACH: u64 = 10_000;
/// The API refuses longer searches; whole words are kept up to it.
const QUERY_CHARS_MAX: usize = 100;
/// So many errors of an answer are told, and so much of each.
const ERRORS_TOLD: usize = 3;
const ERROR_CHARS_MAX: usize = 200;

/// What is not unreserved (RFC 3986).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The API with one application's credentials.
#[derive(Debug)]
pub struct EbaySource {
    settings: EbaySettings,
    currency: Option<Currency>,
    tokens: Tokens,
    marketplace: HeaderValue,
    user_agent: HeaderValue,
    timeout: Duration,
}

impl EbaySource {
    pub fn new(
        source: &PriceSourceSettings,
        settings: &EbaySettings,
        client_id: &str,
        client_secret: &str,
    ) -> Result<EbaySource, String> {
        let user_agent = user_agent(source.contact.as_deref())?;
        let currency = source.currency.as_deref().map(Currency::new).transpose();
        Ok(EbaySource {
            currency: currency.map_err(|bad| bad.to_string())?,
            tokens: Tokens::new(&settings.url, client_id, client_secret, user_agent.clone(), source.timeout),
            marketplace: HeaderValue::from_str(&settings.marketplace)
                .map_err(|_| "the marketplace cannot stand in a header".to_owned())?,
            settings: settings.clone(),
            user_agent,
            timeout: source.timeout,
        })
    }

    fn url(&self, query: Query<'_>, offset: u64) -> Result<String, AdapterError> {
        let settings = &self.settings;
        let words = settings.query.fill(|name| value(query, At::default(), name)).map_err(|why| {
            AdapterError::Permanent(format!(
                "the query of the source cannot be filled in: {why}; give the intake one, or write {{name?}} into the query if \
                 it may be missing"
            ))
        })?;
        let words = shortened(&words);
        if words.is_empty() {
            return Err(AdapterError::Permanent("there is nothing to search for: the query is empty".into()));
        }
        let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let mut url = format!("{}{SEARCH}?q={}", settings.url, encoded(&words));
        if !settings.category_ids.is_empty() {
            url.push_str(&format!("&category_ids={}", encoded(&settings.category_ids.join(","))));
        }
        if let Some(filter) = &settings.filter {
            url.push_str(&format!("&filter={}", encoded(filter)));
        }
        url.push_str(&format!("&limit={}&offset={offset}", settings.limit));
        Ok(url)
    }

    async fn search(&self, fetcher: &Fetcher, url: &str, token: &Token) -> Result<Fetched, AdapterError> {
        let call = Call::get(url)
            .timeout(self.timeout)
            .header(http::header::USER_AGENT, self.user_agent.clone())
            .header(http::header::ACCEPT, HeaderValue::from_static("application/json"))
            .header(http::header::AUTHORIZATION, token.header())
            .header(HeaderName::from_static("x-ebay-c-marketplace-id"), self.marketplace.clone());
        asked(fetcher, call, |body| self.said(body, Some(token))).await
    }

    /// What the API says of its errors, without anything that is ours to keep.
    fn said(&self, body: &[u8], token: Option<&Token>) -> Option<String> {
        Some(self.tokens.without_secrets(&errors_of(body)?, token))
    }

    fn read(&self, offset: u64, body: &[u8]) -> Result<Page, AdapterError> {
        let answer: Answer<'_> = serde_json::from_str(document(body)?.get()).map_err(|_| {
            AdapterError::Permanent(
                "the answer is no result of a search: it has no itemSummaries that can be read".into(),
            )
        })?;
        let items = answer.item_summaries.unwrap_or_default();
        let mut page = Filling::default();
        for item in &items {
            page.take(item::read(item, self.currency).map_err(AdapterError::Permanent)?);
        }
        // A server that gives fewer than it was asked for counts by that, too.
        let asked = u64::from(self.settings.limit);
        let limit = answer.limit.filter(|limit| (1..asked).contains(limit)).unwrap_or(asked);
        let (count, next) = (u64::try_from(items.len()).unwrap_or(u64::MAX), offset.saturating_add(limit));
        let ended = match answer.total {
            _ if count == 0 => true,
            Some(total) => next >= total,
            None => count < limit,
        };
        let out_of_reach = next.saturating_add(asked) > REACH;
        Ok(page.end((!ended && !out_of_reach).then(|| next.to_string())))
    }
}

#[async_trait]
impl Adapter for EbaySource {
    fn base_url(&self) -> &str {
        &self.settings.url
    }

    async fn page(
        &self,
        fetcher: &Fetcher,
        query: Query<'_>,
        cursor: Option<&str>,
    ) -> Result<Page, AdapterError> {
        let bad = |cursor: &str| AdapterError::Permanent(format!("{cursor:?} is no place of a page"));
        let offset = cursor.map(|cursor| cursor.parse::<u64>().map_err(|_| bad(cursor)));
        let offset = offset.transpose()?.unwrap_or(0);
        let url = self.url(query, offset)?;
        let mut token = self.tokens.get(fetcher).await?;
        let mut answer = self.search(fetcher, &url, &token).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            // It may have been withdrawn before its time. A second refusal is one.
            token = self.tokens.instead_of(fetcher, &token).await?;
            answer = self.search(fetcher, &url, &token).await?;
        }
        match body(&url, &answer, |body| self.said(body, Some(&token)))? {
            Some(body) => self.read(offset, &body),
            None => Ok(Page::default()),
        }
    }
}

/// What is needed of an answer. Where nothing was found, the list is not there at all.
#[derive(Deserialize)]
struct Answer<'a> {
    total: Option<u64>,
    limit: Option<u64>,
    #[serde(borrow, rename = "itemSummaries")]
    item_summaries: Option<Vec<&'a RawValue>>,
}

/// The words of a search, as many as the API takes.
fn shortened(query: &str) -> String {
    let mut kept = String::new();
    for word in one_line(query).split(' ') {
        let chars = kept.chars().count() + word.chars().count() + usize::from(!kept.is_empty());
        if chars > QUERY_CHARS_MAX {
            break;
        }
        if !kept.is_empty() {
            kept.push(' ');
        }
        kept.push_str(word);
    }
    kept
}

/// Number and message of each error: of the API (`errors`), or of the place where tokens are made (`error`).
fn errors_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct One {
        error_id: Option<i64>,
        message: Option<String>,
    }
    #[derive(Deserialize)]
    struct Errors {
        #[serde(default)]
        errors: Vec<One>,
        error: Option<String>,
        error_description: Option<String>,
    }
    let said: Errors = serde_json::from_slice(body).ok()?;
    let bounded = |text: &str| {
        let plain: String = text.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect();
        plain
    };
    let of_api = said.errors.iter().take(ERRORS_TOLD).map(|one| {
        let id = one.error_id.map(|id| format!("{id} ")).unwrap_or_default();
        format!("{id}{}", bounded(one.message.as_deref().unwrap_or("without a message")))
    });
    let of_tokens = said.error.iter().map(|error| match &said.error_description {
        Some(description) => format!("{} ({})", bounded(error), bounded(description)),
        None => bounded(error),
    });
    let told: Vec<String> = of_api.chain(of_tokens).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_has_whole_words_up_to_its_bound() {
        assert_eq!(shortened("  1881  S\tMorgan "), "1881 S Morgan");
        let long = shortened(&"silver ".repeat(40));
        assert_eq!((long.len(), long.ends_with("silver")), (97, true));
        assert_eq!(shortened(&"x".repeat(101)), "");
    }

    #[test]
    fn errors_are_told_by_number_and_message() {
        let fixture = include_bytes!("../../tests/fixtures/ebay/err_429.json");
        assert_eq!(errors_of(fixture).as_deref(), Some("2001 Too many requests."));
        let fixture = include_bytes!("../../tests/fixtures/ebay/oauth_invalid_client.json");
        assert_eq!(errors_of(fixture).as_deref(), Some("invalid_client (client authentication failed)"));
        assert_eq!((errors_of(b"<html>"), errors_of(b"{}"), errors_of(b"[]")), (None, None, None));
    }
}
