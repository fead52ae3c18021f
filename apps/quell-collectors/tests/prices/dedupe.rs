//! The keys of items and of questions, by vectors that were computed elsewhere and by what must never change them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::SourceName;
use quell_collectors::dedupe::{Parts, cache_key, key};
use quell_collectors::found::{Found, PriceType};
use quell_collectors::intake::About;
use quell_collectors::money::{Currency, Money};
use serde_json::Value;

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

#[test]
fn keys_are_those_that_were_computed_elsewhere() {
    let vectors = fixture("dedupe.json");
    for vector in vectors["dedupe"].as_array().unwrap() {
        let (name, expected) = (&vector["name"], &vector["parts"]);
        let (found, observed): (Found, Timestamp) = (read(&vector["found"]), read(&vector["observed"]));
        let parts = Parts::of(&found, observed);
        assert_eq!(parts.url, expected["url"], "{name}");
        assert_eq!(parts.title, expected["title"], "{name}");
        assert_eq!(parts.cents, expected["cents"], "{name}");
        assert_eq!(parts.date, expected["date"], "{name}");
        assert_eq!(parts.price_type, expected["price_type"], "{name}");
        assert_eq!(parts.joined(), vector["joined"], "{name}");
        assert_eq!(key(&found, observed), vector["key"], "{name}");
    }
}

#[test]
fn questions_are_those_that_were_computed_elsewhere() {
    let vectors = fixture("dedupe.json");
    for vector in vectors["cache"].as_array().unwrap() {
        let (source, about): (SourceName, About) = (read(&vector["source"]), read(&vector["about"]));
        let params: BTreeMap<String, String> = read(&vector["params"]);
        assert_eq!(cache_key(&source, &about, &params), vector["key"], "{}", vector["name"]);
    }
}

/// The items of the recorded pages, as `p1[0]`. An item's id is what the marketplace calls it, or the digits of its URL.
fn recorded() -> BTreeMap<String, Found> {
    let mut items = BTreeMap::new();
    for page in ["p1", "p2"] {
        let number = &page[1..];
        let recorded = fixture(&format!("ebay/search_page{number}.json"));
        for (index, item) in recorded["itemSummaries"].as_array().unwrap().iter().enumerate() {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let url = text(&item["itemWebUrl"]).unwrap();
            let path = url.split(['?', '#']).next().unwrap();
            let digits = path.rsplit('/').next().filter(|end| end.parse::<u64>().is_ok());
            let bid = item["price"].is_null();
            let price = if bid { &item["currentBidPrice"] } else { &item["price"] };
            let found = Found {
                external_id: text(&item["legacyItemId"]).or(digits.map(str::to_owned)),
                url: Some(url.clone()),
                title: text(&item["title"]).unwrap(),
                price: Money::parse(price["value"].as_str().unwrap(), read(&price["currency"])).unwrap(),
                original: None,
                price_type: if bid { PriceType::Bid } else { PriceType::Ask },
                date: Some(read(&item["itemCreationDate"])),
            };
            items.insert(format!("{page}[{index}]"), found);
        }
    }
    items
}

#[test]
fn recorded_items_fall_into_the_expected_groups() {
    let observed = Timestamp::from_millis(1_760_000_000_000);
    let mut made: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, found) in recorded() {
        made.entry(key(&found.bounded().unwrap(), observed)).or_default().push(name);
    }
    let mut made: Vec<Vec<String>> = made.into_values().collect();
    let expected = fixture("ebay/expected.json");
    let mut expected: Vec<Vec<String>> =
        expected["groups"].as_array().unwrap().iter().map(|group| read(&group["items"])).collect();
    made.sort();
    expected.sort();
    assert_eq!(made, expected);
}

fn item(url: String, title: String) -> Found {
    Found {
        external_id: None,
        url: Some(url),
        title,
        price: Money { cents: 8_800, currency: Currency::USD },
        original: None,
        price_type: PriceType::Ask,
        date: None,
    }
}

/// Upper case for some letters.
fn mixed(text: &str, upper: u64) -> String {
    let change = |(n, c): (usize, char)| if upper >> (n % 64) & 1 == 1 { c.to_ascii_uppercase() } else { c };
    text.chars().enumerate().map(change).collect()
}

const SPACES: &str = "[ \t\n\u{a0}\u{1680}\u{2003}\u{2028}\u{202f}\u{205f}\u{3000}]{1,4}";

proptest! {
    #[test]
    fn spelling_never_changes_a_key(
        path in "(/[a-z0-9-]{1,8}){1,3}",
        tracking in "([?](utm_source|gclid|hash|_trkparms|var)=[a-z0-9%]{0,9}(&fbclid=[a-z0-9]{1,5})?)?",
        fragment in "(#[a-z]{0,6})?",
        slash in "/{0,2}",
        port in "(:443)?",
        upper in any::<u64>(),
        words in prop::collection::vec("[a-z0-9äöüß]{1,6}", 1..6),
        spaces in prop::collection::vec(SPACES, 7),
        around in "[ \t\n]{0,2}",
    ) {
        let at = Timestamp::from_millis(1_760_000_000_000);
        let plain = item(format!("https://shop.example.com{path}"), words.join(" "));
        let host = mixed("https://shop.example.com", upper);
        let url = format!("{around}{host}{port}{path}{slash}{tracking}{fragment}{around}");
        let mut title = spaces[6].clone();
        for (word, space) in words.iter().zip(&spaces) {
            title.push_str(&mixed(word, upper));
            title.push_str(space);
        }
        let spelt = item(url, title);
        prop_assert_eq!(key(&plain, at), key(&spelt, at));
        prop_assert_eq!(key(&plain.clone().bounded().unwrap(), at), key(&plain, at));
    }

    #[test]
    fn what_differs_has_another_key(cents in 1..1_000_000_i64, day in 1..4_000_i64, kind in 0..3_usize, path in "x[a-z]{1,8}") {
        let at = Timestamp::from_millis(1_760_000_000_000);
        let one = item("https://shop.example.com/itm".into(), "coin".into());
        let first = key(&one, at);
        let price = Money { cents: 8_800 + cents, currency: Currency::USD };
        prop_assert_ne!(&key(&Found { price, ..one.clone() }, at), &first);
        let date = Some(Timestamp::from_millis(1_760_000_000_000 - day * 86_400_000));
        prop_assert_ne!(&key(&Found { date, ..one.clone() }, at), &first);
        prop_assert_ne!(&key(&item(format!("https://shop.example.com/{path}"), "coin".into()), at), &first);
        prop_assert_ne!(&key(&item("https://shop.example.com/itm".into(), format!("coin {path}")), at), &first);
        let price_type = PriceType::ALL[kind];
        prop_assert_eq!(key(&Found { price_type, ..one }, at) == first, price_type == PriceType::Ask);
    }

    #[test]
    fn parts_of_a_question_never_run_into_each_other(
        one in prop::collection::vec("[a|\\\\]{0,3}", 5),
        other in prop::collection::vec("[a|\\\\]{0,3}", 5),
    ) {
        let about = |parts: &[String]| About {
            year: Some(parts[0].clone()),
            mintmark: Some(parts[1].clone()),
            denomination: Some(parts[2].clone()),
            series: Some(parts[3].clone()),
            title: Some(parts[4].clone()),
        };
        let source = SourceName::new("ebay").unwrap();
        let made = |parts: &[String]| cache_key(&source, &about(parts), &BTreeMap::new());
        prop_assert_eq!(made(&one) == made(&other), one == other);
    }
}
