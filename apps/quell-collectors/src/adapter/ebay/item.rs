//! One item of the Browse API. Every field of it may be missing.
//!
//! - The price is `price`, or what was bid last for an auction without one. It is text, and stays exact. A converted price keeps
//!   what it was converted from.
//! - The id is `legacyItemId` with the number of the variation, unless that is 0. An item without one often has it in its address,
//!   behind `/itm/`. `itemHref` is never looked at: it may be that of another copy.

use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use crate::adapter::page::{date, plain as text_of, web_url};
use crate::adapter::raw::plain;
use crate::found::{Found, PriceType};
use crate::money::{Currency, Money};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    item_id: Option<String>,
    legacy_item_id: Option<String>,
    title: Option<String>,
    #[serde(borrow)]
    price: Option<&'a RawValue>,
    #[serde(borrow)]
    current_bid_price: Option<&'a RawValue>,
    #[serde(default)]
    buying_options: Option<Vec<String>>,
    item_web_url: Option<String>,
    item_affiliate_web_url: Option<String>,
    item_creation_date: Option<String>,
    item_end_date: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Amount<'a> {
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    currency: Option<String>,
    #[serde(borrow)]
    converted_from_value: Option<&'a RawValue>,
    converted_from_currency: Option<String>,
}

/// Nothing for an item that lacks what a point needs; an error for a price that is none, or in another currency.
pub(super) fn read(raw: &RawValue, declared: Option<Currency>) -> Result<Option<Found>, String> {
    let Ok(item) = serde_json::from_str::<Item<'_>>(raw.get()) else { return Ok(None) };
    let asked = item.price.map(|price| money(price, declared)).transpose()?.flatten();
    let bid = item.current_bid_price.map(|price| money(price, declared)).transpose()?.flatten();
    let options = item.buying_options.unwrap_or_default();
    let by = |option: &str| options.iter().any(|one| one == option);
    let (price, original, price_type) = match (asked, bid) {
        // Where bidding is the only way to buy, the price is what was bid last.
        (Some((price, original)), _) if by("AUCTION") && !by("FIXED_PRICE") => {
            (price, original, PriceType::Bid)
        }
        (Some((price, original)), _) => (price, original, PriceType::Ask),
        (None, Some((price, original))) => (price, original, PriceType::Bid),
        (None, None) => return Ok(None),
    };
    let web = [item.item_web_url, item.item_affiliate_web_url].into_iter().flatten();
    let url = web.filter_map(|text| web_url(&text)).next();
    let external_id = external_id(item.legacy_item_id.as_deref(), item.item_id.as_deref(), url.as_deref());
    let Some(title) = item.title.as_deref().map(unescaped).as_deref().and_then(text_of) else {
        return Ok(None);
    };
    if external_id.is_none() && url.is_none() {
        return Ok(None);
    }
    // When it was listed, or else when it ends: either bounds its age, and neither changes while it is shown.
    let dates = [item.item_creation_date, item.item_end_date].into_iter().flatten();
    let date = dates.filter_map(|text| date(&text)).next();
    Ok(Some(Found { external_id, url, title, price, original, price_type, date }))
}

type Price = (Money, Option<Money>);

fn money(raw: &RawValue, declared: Option<Currency>) -> Result<Option<Price>, String> {
    let unfit = || "a price has neither value nor currency where the API puts them".to_owned();
    let amount: Option<Amount<'_>> = serde_json::from_str(raw.get()).map_err(|_| unfit())?;
    let Some(amount) = amount else { return Ok(None) };
    let value = amount.value.map(plain).transpose().map_err(|_| unfit())?.flatten();
    let said = match amount.currency.as_deref().map(str::trim).filter(|said| !said.is_empty()) {
        Some(said) => Some(Currency::new(said).map_err(|bad| bad.to_string())?),
        None => None,
    };
    if let (Some(said), Some(declared)) = (said, declared)
        && said != declared
    {
        return Err(format!("an item is in {said}, and the source is declared to be in {declared}"));
    }
    let (Some(value), Some(currency)) = (value, said.or(declared)) else { return Ok(None) };
    let price = Money::parse(value.trim(), currency).map_err(|bad| bad.to_string())?;
    // What it was converted from is told for people; it decides nothing, so it is left out if it cannot be read.
    let from = amount.converted_from_value.and_then(|raw| plain(raw).ok().flatten());
    let original = from
        .zip(amount.converted_from_currency)
        .and_then(|(value, currency)| Money::parse(value.trim(), Currency::new(currency.trim()).ok()?).ok());
    Ok(Some((price, original)))
}

/// `v1|110000000001|0` has both numbers; the address has the first, and `var` has the second.
fn external_id(legacy: Option<&str>, item_id: Option<&str>, url: Option<&str>) -> Option<String> {
    let parts = item_id.and_then(|id| {
        let mut parts = id.split('|').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let in_url = || {
        let url = Url::parse(url?).ok()?;
        let mut segments = url.path_segments()?.skip_while(|segment| *segment != "itm").skip(1).take(2);
        let number = segments.find(|segment| is_number(segment))?.to_owned();
        let variation =
            url.query_pairs().find(|(name, _)| name == "var").map(|(_, value)| value.into_owned());
        Some((number, variation.filter(|variation| is_number(variation))))
    };
    let (number, variation) = match (legacy.and_then(text_of), parts) {
        (Some(legacy), parts) => (legacy, parts.map(|(_, variation)| variation.to_owned())),
        (None, Some((number, variation))) if is_number(number) => {
            (number.to_owned(), Some(variation.to_owned()))
        }
        (None, _) => match in_url() {
            Some(found) => found,
            None => return item_id.and_then(text_of),
        },
    };
    text_of(&match variation.filter(|variation| !variation.is_empty() && variation != "0") {
        Some(variation) => format!("{number}:{variation}"),
        None => number,
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Titles come with the entities of HTML now and then; each is read once.
fn unescaped(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let entity = rest.find(';').and_then(|end| Some((character(&rest[1..end])?, end)));
        match entity {
            Some((character, end)) => {
                plain.push(character);
                rest = &rest[end + 1..];
            }
            None => {
                plain.push('&');
                rest = &rest[1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn character(entity: &str) -> Option<char> {
    let number = match (entity.strip_prefix("#x").or(entity.strip_prefix("#X")), entity.strip_prefix('#')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) => digits.parse().ok(),
        (None, None) => {
            let named = [
                ("amp", '&'),
                ("lt", '<'),
                ("gt", '>'),
                ("quot", '"'),
                ("apos", '\''),
                ("nbsp", ' '),
                ("ndash", '–'),
                ("mdash", '—'),
                ("rsquo", '’'),
                ("reg", '®'),
                ("trade", '™'),
                ("deg", '°'),
            ];
            return named.iter().find(|(name, _)| *name == entity).map(|(_, character)| *character);
        }
    };
    number.and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::raw::document;

    fn of(text: &str, declared: Option<Currency>) -> Result<Option<Found>, String> {
        read(document(text.as_bytes()).unwrap(), declared)
    }

    #[test]
    fn an_id_is_found_wherever_it_stands() {
        let shop = "https://shop.example/itm";
        for (legacy, item, url, found) in [
            (Some("11"), Some("v1|11|0"), None, Some("11")),
            (Some("11"), Some("v1|11|42"), None, Some("11:42")),
            (Some("11"), None, Some("12"), Some("11")),
            (None, Some("v1|11|42"), None, Some("11:42")),
            (None, Some("v1|11|"), None, Some("11")),
            (None, None, Some("11"), Some("11")),
            (None, None, Some("11?hash=x&var=42"), Some("11:42")),
            (None, None, Some("11?var=0"), Some("11")),
            (None, None, Some("11?var=<x>"), Some("11")),
            (None, None, Some("silver-eagle/11"), Some("11")),
            (None, None, Some("lot-five"), None),
            (None, None, Some("p/q/11"), None),
            (None, Some("odd"), Some("lot-five"), Some("odd")),
            (None, Some("odd"), Some("11"), Some("11")),
            (Some(" "), Some("v1|x|0"), None, Some("v1|x|0")),
            (None, None, None, None),
        ] {
            let url = url.map(|path| format!("{shop}/{path}"));
            assert_eq!(
                external_id(legacy, item, url.as_deref()).as_deref(),
                found,
                "{legacy:?} {item:?} {url:?}"
            );
        }
        assert_eq!(external_id(None, None, Some("https://shop.example/11")), None);
    }

    #[test]
    fn the_type_follows_the_way_it_is_sold() {
        let kind = |options: &str, price: &str| {
            let text =
                format!(r#"{{"legacyItemId": "1", "title": "A", "buyingOptions": {options}, {price}}}"#);
            of(&text, None).unwrap().map(|found| (found.price_type, found.price.cents))
        };
        let (ask, bid) = (
            r#""price": {"value": "2.00", "currency": "USD"}"#,
            r#""currentBidPrice": {"value": "1.00", "currency": "USD"}"#,
        );
        assert_eq!(kind(r#"["FIXED_PRICE"]"#, ask), Some((PriceType::Ask, 200)));
        assert_eq!(
            kind(r#"["FIXED_PRICE", "AUCTION"]"#, &format!("{ask}, {bid}")),
            Some((PriceType::Ask, 200))
        );
        assert_eq!(kind(r#"["AUCTION"]"#, bid), Some((PriceType::Bid, 100)));
        assert_eq!(kind(r#"["AUCTION"]"#, ask), Some((PriceType::Bid, 200)));
        assert_eq!(kind("null", ask), Some((PriceType::Ask, 200)));
        assert_eq!(kind("[]", r#""price": null"#), None);
        assert_eq!(kind("[]", r#""price": {"currency": "USD"}"#), None);
    }

    #[test]
    fn what_lacks_something_is_skipped_and_what_cannot_be_fails() {
        let price = r#""price": {"value": "2", "currency": "USD"}"#;
        for text in [
            format!(r#"{{"title": "A", {price}}}"#),
            format!(r#"{{"legacyItemId": "1", {price}}}"#),
            format!(r#"{{"legacyItemId": "1", "title": 5, {price}}}"#),
            r#"{"legacyItemId": "1", "title": "A"}"#.into(),
            "7".into(),
        ] {
            assert_eq!(of(&text, None), Ok(None), "{text}");
        }
        for (price, problem) in [
            (r#"{"value": "NaN", "currency": "USD"}"#, "\"NaN\" is no price"),
            (r#"{"value": "-3", "currency": "USD"}"#, "is no price"),
            (r#"{"value": "3", "currency": "EUR"}"#, "in EUR, and the source is declared to be in USD"),
            (r#"{"value": {}, "currency": "USD"}"#, "neither value nor currency"),
            (r#""3.00 USD""#, "neither value nor currency"),
        ] {
            let said = of(&format!(r#"{{"price": {price}}}"#), Some(Currency::USD)).unwrap_err();
            assert!(said.contains(problem), "{price}: {said}");
        }
        let text = r#"{"legacyItemId": "1", "title": "A", "price": {"value": "3", "currency": "EUR", "convertedFromValue": "x",
            "convertedFromCurrency": "USD"}}"#;
        assert_eq!(of(text, None).unwrap().unwrap().original, None);
    }

    #[test]
    fn entities_of_titles_are_read_once() {
        for (text, plain) in [
            ("Morgan &amp; Peace &quot;MS65&quot;", "Morgan & Peace \"MS65\""),
            ("1881&#45;S &#x2713;", "1881-S ✓"),
            ("&amp;amp;", "&amp;"),
            ("A & B; C", "A & B; C"),
            ("&#xD800; &#99999999; &unknown; &", "&#xD800; &#99999999; &unknown; &"),
        ] {
            assert_eq!(unescaped(text), plain);
        }
    }
}
