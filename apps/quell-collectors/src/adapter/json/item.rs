//! One item of a described source: from where the description points to what is known of it.

use std::collections::BTreeMap;

use quell::config::PriceFields;
use quell::pointer::Pointer;
use serde_json::value::RawValue;

use crate::adapter::page::{date, plain as text_of, web_url};
use crate::adapter::raw::{find, plain};
use crate::found::{Found, PriceType};
use crate::money::{Currency, Money};

/// What the description says of items.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) fields: PriceFields,
    /// What the source declares.
    pub(super) currency: Option<Currency>,
    pub(super) price_type: Option<PriceType>,
    pub(super) types: BTreeMap<String, PriceType>,
}

impl Items {
    /// Nothing for an item that lacks what a point needs; an error for one that says what cannot be.
    pub(super) fn read(&self, item: &RawValue) -> Result<Option<Found>, String> {
        let fields = &self.fields;
        let text = |pointer: &Pointer| match find(item, pointer).map(plain) {
            None | Some(Ok(None)) => Ok(None),
            Some(Ok(Some(text))) => Ok(Some(text)),
            Some(Err(_)) => {
                Err(format!("what stands at {pointer} of an item is neither a text nor a number"))
            }
        };
        let optional = |pointer: &Option<Pointer>| match pointer {
            Some(pointer) => text(pointer),
            None => Ok(None),
        };
        let price = text(&fields.price)?;
        let currency = self.currency(optional(&fields.currency)?)?;
        let kind = self.kind(optional(&fields.kind)?)?;
        // A price that is none is told even if the item would be skipped for something else.
        let price = match (price, currency.or(self.currency)) {
            (Some(price), Some(currency)) => {
                Some(Money::parse(price.trim(), currency).map_err(|bad| bad.to_string())?)
            }
            _ => None,
        };
        let external_id = optional(&fields.id)?.as_deref().and_then(text_of);
        let url = optional(&fields.url)?.as_deref().and_then(web_url);
        let date = match optional(&fields.date)? {
            Some(text) => {
                let shown: String = text.chars().take(40).collect();
                Some(date(&text).ok_or_else(|| format!("{shown:?} is no date that can be read"))?)
            }
            None => None,
        };
        let title = text(&fields.title)?.as_deref().and_then(text_of);
        let (Some(title), Some(price), Some(price_type)) = (title, price, kind) else { return Ok(None) };
        if external_id.is_none() && url.is_none() {
            return Ok(None);
        }
        Ok(Some(Found { external_id, url, title, price, original: None, price_type, date }))
    }

    /// What an item says of its currency must be what the source declares.
    fn currency(&self, said: Option<String>) -> Result<Option<Currency>, String> {
        let Some(said) = said else { return Ok(None) };
        let currency = Currency::new(&said.trim().to_ascii_uppercase()).map_err(|bad| bad.to_string())?;
        match self.currency {
            Some(declared) if declared != currency => {
                Err(format!("an item is in {currency}, and the source is declared to be in {declared}"))
            }
            _ => Ok(Some(currency)),
        }
    }

    fn kind(&self, said: Option<String>) -> Result<Option<PriceType>, String> {
        let Some(said) = said else { return Ok(self.price_type) };
        let known = self.types.get(said.trim()).copied().or_else(|| PriceType::named(said.trim()));
        match known.or(self.price_type) {
            Some(kind) => Ok(Some(kind)),
            None => {
                let said: String = said.chars().take(40).collect();
                Err(format!(
                    "{said:?} is no type of a price: say in types what it means, or give a price_type"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::raw::document;

    fn pointer(text: &str) -> Pointer {
        Pointer::parse(text).unwrap()
    }

    fn items() -> Items {
        Items {
            fields: PriceFields {
                id: Some(pointer("/id")),
                title: pointer("/title"),
                price: pointer("/price/amount"),
                currency: Some(pointer("/price/currency")),
                url: Some(pointer("/url")),
                date: Some(pointer("/date")),
                kind: Some(pointer("/kind")),
            },
            currency: Some(Currency::USD),
            price_type: None,
            types: [("BUY_NOW".to_owned(), PriceType::Ask)].into(),
        }
    }

    fn read(items: &Items, text: &str) -> Result<Option<Found>, String> {
        items.read(document(text.as_bytes()).unwrap())
    }

    #[test]
    fn an_item_is_read_as_it_is_written() {
        let text = r#"{"id": 17, "title": " A ", "price": {"amount": 90071992547.41, "currency": "usd"}, "kind": "BUY_NOW",
            "url": "https://a.example/17?utm_source=x", "date": 1759136000}"#;
        let found = read(&items(), text).unwrap().unwrap();
        assert_eq!((found.external_id.as_deref(), found.title.as_str()), (Some("17"), "A"));
        assert_eq!(found.price, Money { cents: 9_007_199_254_741, currency: Currency::USD });
        assert_eq!(found.url.as_deref(), Some("https://a.example/17?utm_source=x"));
        assert_eq!((found.price_type, found.date.unwrap().as_millis()), (PriceType::Ask, 1_759_136_000_000));
    }

    #[test]
    fn what_lacks_something_is_skipped() {
        let price = r#""price": {"amount": "1", "currency": "USD"}"#;
        for text in [
            r#"{"id": 1, "title": "A", "kind": "ask"}"#.to_owned(),
            r#"{"id": 1, "title": "A", "kind": "ask", "price": {"amount": null}}"#.into(),
            r#"{"id": 1, "title": "A", "kind": "ask", "price": {"amount": ""}}"#.into(),
            format!(r#"{{"id": 1, "kind": "ask", {price}}}"#),
            format!(r#"{{"id": 1, "title": " ", "kind": "ask", {price}}}"#),
            format!(r#"{{"title": "A", "kind": "ask", {price}}}"#),
            format!(r#"{{"title": "A", "kind": "ask", "url": "javascript:x", {price}}}"#),
            format!(r#"{{"id": 1, "title": "A", {price}}}"#),
            "null".into(),
            "[]".into(),
        ] {
            assert_eq!(read(&items(), &text), Ok(None), "{text}");
        }
        let undeclared = Items { currency: None, ..items() };
        let text = r#"{"id": 1, "title": "A", "kind": "ask", "price": {"amount": 1}}"#;
        assert_eq!(read(&undeclared, text), Ok(None), "nothing says in which currency");
        assert!(read(&items(), text).unwrap().is_some(), "the source has declared it");
    }

    #[test]
    fn what_cannot_be_fails_the_run() {
        for (price, problem) in [
            (r#"{"amount": "NaN"}"#, "\"NaN\" is no price"),
            (r#"{"amount": -1}"#, "\"-1\" is no price"),
            (r#"{"amount": 1e3}"#, "\"1e3\" is no price"),
            (r#"{"amount": "1,234.50"}"#, "is no price"),
            (r#"{"amount": "$5"}"#, "is no price"),
            (r#"{"amount": 1.505}"#, "more decimals than USD"),
            (r#"{"amount": {"value": 1}}"#, "neither a text nor a number"),
            (r#"{"amount": true}"#, "is no price"),
            (r#"{"amount": 1, "currency": "EUR"}"#, "in EUR, and the source is declared to be in USD"),
            (r#"{"amount": 1, "currency": "$"}"#, "is no currency"),
        ] {
            let said =
                read(&items(), &format!(r#"{{"id": 1, "title": "A", "kind": "ask", "price": {price}}}"#));
            let said = said.unwrap_err();
            assert!(said.contains(problem), "{price}: {said}");
            // Even if the item would have been skipped.
            let said = read(&items(), &format!(r#"{{"price": {price}}}"#)).unwrap_err();
            assert!(said.contains(problem), "{price}: {said}");
        }
        let fine = r#""id": 1, "title": "A", "price": {"amount": 1}"#;
        let said = read(&items(), &format!(r#"{{{fine}, "kind": "RESERVED"}}"#)).unwrap_err();
        assert!(said.contains("\"RESERVED\" is no type of a price"), "{said}");
        let said = read(&items(), &format!(r#"{{{fine}, "kind": "ask", "date": "12/31/24"}}"#)).unwrap_err();
        assert!(said.contains("\"12/31/24\" is no date"), "{said}");
    }
}
