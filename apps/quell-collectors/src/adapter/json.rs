//! A source that answers with JSON, as the configuration describes it: a template for the address, a pointer to the list, pointers
//! into each item, and how one page leads to the next.
//!
//! An item that lacks a title, a price, a currency, a type or anything to tell it apart by is skipped and counted. One that has a
//! price which is none, or is in another currency than the source declares, fails the run: nothing of a source that says such
//! things is believed.

mod item;

use std::time::Duration;

use async_trait::async_trait;
use quell::config::{JsonSourceSettings, Paging, PriceSourceSettings};
use quell::fetch::{Call, Fetcher, HeaderName, HeaderValue, URL_BYTES_MAX};
use quell::pointer::Pointer;
use serde_json::value::RawValue;
use url::Url;

use crate::adapter::answer::{asked, body, document, user_agent};
use crate::adapter::page::Filling;
use crate::adapter::raw::{find, list, plain};
use crate::adapter::robots::Robots;
use crate::adapter::values::{At, value};
use crate::adapter::{Adapter, AdapterError, Page, Query};
use crate::money::Currency;

use item::Items;

/// One described source.
#[derive(Debug)]
pub struct JsonSource {
    settings: JsonSourceSettings,
    items: Items,
    /// With the secret in them.
    headers: Vec<(HeaderName, HeaderValue)>,
    user_agent: HeaderValue,
    timeout: Duration,
    robots: Option<Robots>,
}

/// Where a request goes, and what page that is.
struct Place {
    url: String,
    /// What pages or items are counted by.
    at: u64,
}

impl JsonSource {
    /// The secret must be there if a header of the description wants one.
    pub fn new(
        source: &PriceSourceSettings,
        settings: &JsonSourceSettings,
        secret: Option<&str>,
    ) -> Result<JsonSource, String> {
        let user_agent = user_agent(source.contact.as_deref())?;
        let mut headers = Vec::new();
        for (name, template) in &settings.headers {
            let bad = || format!("the header {name} cannot be made: is its secret one line of ASCII?");
            let value = template.fill(|_| secret.map(str::to_owned)).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.push((HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value));
        }
        let currency = source.currency.as_deref().map(Currency::new).transpose();
        let items = Items {
            fields: settings.fields.clone(),
            currency: currency.map_err(|bad| bad.to_string())?,
            price_type: settings.price_type,
            types: settings.types.clone(),
        };
        let robots =
            settings.robots.then(|| Robots::new(settings.url.base(), user_agent.clone(), source.timeout));
        let settings = settings.clone();
        Ok(JsonSource { settings, items, headers, user_agent, timeout: source.timeout, robots })
    }

    fn place(&self, query: Query<'_>, cursor: Option<&str>) -> Result<Place, AdapterError> {
        if let (Paging::Next { .. }, Some(url)) = (&self.settings.paging, cursor) {
            return Ok(Place { url: url.to_owned(), at: 0 });
        }
        let counted = cursor.map(|cursor| {
            let bad = |_| AdapterError::Permanent(format!("{cursor:?} is no place of a page"));
            cursor.parse::<u64>().map_err(bad)
        });
        let (usual, size) = match self.settings.paging {
            Paging::None { size } | Paging::Next { size, .. } => (0, size),
            Paging::Page { first, size, .. } => (first, size),
            Paging::Offset { first, size, .. } => (first, Some(size)),
        };
        let at = counted.transpose()?.unwrap_or(usual.into());
        let places = At {
            page: matches!(self.settings.paging, Paging::Page { .. }).then_some(at),
            offset: matches!(self.settings.paging, Paging::Offset { .. }).then_some(at),
            limit: size,
        };
        let filled = self.settings.url.fill(|name| value(query, places, name));
        let url = filled.map_err(|why| {
            AdapterError::Permanent(format!(
                "the url of the source cannot be filled in: {why}; give the intake one, or write {{name?}} into the url if it \
                 may be missing"
            ))
        })?;
        Ok(Place { url, at })
    }

    fn call(&self, url: &str) -> Call {
        let call = Call::get(url)
            .timeout(self.timeout)
            .header(http::header::USER_AGENT, self.user_agent.clone())
            .header(http::header::ACCEPT, HeaderValue::from_static("application/json"));
        self.headers.iter().fold(call, |mut call, (name, value)| {
            // A description may say what it accepts by itself.
            call.headers.insert(name.clone(), value.clone());
            call
        })
    }

    /// Where the next page is. `count` is the number of items of this one, with those that were skipped.
    fn next(&self, place: &Place, document: &RawValue, count: u64) -> Result<Option<String>, AdapterError> {
        let total = |pointer: &Option<Pointer>| {
            let found = pointer.as_ref().and_then(|pointer| find(document, pointer));
            found.and_then(|raw| plain(raw).ok().flatten()).and_then(|text| text.parse::<u64>().ok())
        };
        // Where the source says how many there are, that counts: a page may have lost some to its own filters.
        let ended = |read: u64, size: Option<u64>, total: Option<u64>| match total {
            _ if count == 0 => true,
            Some(total) => read >= total,
            None => size.is_some_and(|size| count < size),
        };
        let counted = |next: u64, ended: bool| Ok((!ended).then(|| next.to_string()));
        match &self.settings.paging {
            Paging::None { .. } => Ok(None),
            Paging::Page { first, size, total: pointer } => {
                let size = size.map(u64::from);
                let pages = place.at.saturating_sub(u64::from(*first)) + 1;
                let read = pages.saturating_mul(size.unwrap_or(count));
                counted(place.at + 1, ended(read, size, total(pointer)))
            }
            Paging::Offset { first, size, total: pointer } => {
                let next = place.at + u64::from(*size);
                let read = next.saturating_sub(u64::from(*first));
                counted(next, ended(read, Some(u64::from(*size)), total(pointer)))
            }
            Paging::Next { pointer, .. } => match find(document, pointer).map(plain) {
                Some(Ok(Some(link))) => followed(&place.url, &link).map(Some),
                Some(Err(_)) => Err(AdapterError::Permanent(format!("what stands at {pointer} is no link"))),
                Some(Ok(None)) | None => Ok(None),
            },
        }
    }

    fn read(&self, place: &Place, body: &[u8]) -> Result<Page, AdapterError> {
        let document = document(body)?;
        let pointer = &self.settings.items;
        let items = find(document, pointer).and_then(list).ok_or_else(|| {
            AdapterError::Permanent(format!(
                "there is no list of items at {:?} of the answer",
                pointer.to_string()
            ))
        })?;
        let mut page = Filling::default();
        for item in &items {
            page.take(self.items.read(item).map_err(AdapterError::Permanent)?);
        }
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        Ok(page.end(self.next(place, document, count)?))
    }
}

/// A link to the next page. It stays at the host that the operator wrote: a source cannot send us elsewhere with our headers.
fn followed(url: &str, link: &str) -> Result<String, AdapterError> {
    let bad = |why: &str| AdapterError::Permanent(format!("the link to the next page {why}"));
    let here = Url::parse(url).map_err(|_| bad("cannot be read"))?;
    let mut next = here.join(link.trim()).map_err(|_| bad("cannot be read"))?;
    next.set_fragment(None);
    let named = !next.username().is_empty() || next.password().is_some();
    if next.origin() != here.origin() || named {
        let host: String = next.host_str().unwrap_or("nowhere").chars().take(100).collect();
        let own = here.host_str().unwrap_or_default();
        return Err(bad(&format!("leads to {host}, and not to {own} with the same scheme and port")));
    }
    if next == here {
        return Err(bad("leads to the page itself"));
    }
    if next.as_str().len() > URL_BYTES_MAX {
        return Err(bad("is too long"));
    }
    Ok(next.into())
}

#[async_trait]
impl Adapter for JsonSource {
    fn base_url(&self) -> &str {
        self.settings.url.base()
    }

    async fn page(
        &self,
        fetcher: &Fetcher,
        query: Query<'_>,
        cursor: Option<&str>,
    ) -> Result<Page, AdapterError> {
        let place = self.place(query, cursor)?;
        if let Some(robots) = &self.robots {
            robots.permit(fetcher, &place.url).await?;
        }
        // What an unknown service writes into its errors is not told: it may be anything.
        let answer = asked(fetcher, self.call(&place.url), |_| None).await?;
        match body(&place.url, &answer, |_| None)? {
            Some(body) => self.read(&place, &body),
            None => Ok(Page::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_where_the_operator_pointed() {
        let here = "https://shop.example/s?q=a&p=1";
        let next = |link: &str| followed(here, link).map_err(|error| error.to_string());
        for (link, found) in [
            ("?q=a&p=2", "https://shop.example/s?q=a&p=2"),
            ("/t/2#x", "https://shop.example/t/2"),
            ("https://SHOP.example:443/s?p=2", "https://shop.example/s?p=2"),
            ("//shop.example/2", "https://shop.example/2"),
        ] {
            assert_eq!(next(link).as_deref(), Ok(found), "{link}");
        }
        for (link, problem) in [
            ("https://evil.example/s", "leads to evil.example"),
            ("//evil.example/s", "leads to evil.example"),
            ("http://shop.example/s", "with the same scheme"),
            ("https://shop.example:8443/s", "leads to shop.example"),
            ("https://me@shop.example/s", "leads to shop.example"),
            ("file:///etc/passwd", "leads to nowhere"),
            ("", "the page itself"),
            ("https://", "cannot be read"),
        ] {
            let said = next(link).unwrap_err();
            assert!(said.contains(problem), "{link}: {said}");
        }
        assert!(next(&format!("/{}", "x".repeat(9_000))).unwrap_err().contains("too long"));
    }
}
