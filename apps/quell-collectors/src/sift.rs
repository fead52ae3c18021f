//! What is kept of an answer: items that a point can be made of, that fit the intake, each key once.
//!
//! Of several items of one answer with one key the strongest match counts, the first among equals: a marketplace shows the
//! same listing on two pages, or twice with other tracking in its URL.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Value, json};

use crate::book::{NewPoint, POINTS_MAX};
use crate::collect::Answer;
use crate::dedupe::key;
use crate::intake::About;
use crate::matching::{Fit, MatchRules, Matcher};

/// Items of one collection, as many as may become points; a source that has more is not read any further.
pub(crate) const ITEMS_MAX: usize = POINTS_MAX;

/// Items that a test of a source shows.
const SHOWN_MAX: usize = 20;

/// What is kept, and how much is not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sifted {
    pub(crate) points: Vec<NewPoint>,
    /// Everything that the source listed.
    pub(crate) found: u64,
    pub(crate) unmatched: u64,
    pub(crate) skipped: u64,
}

pub(crate) fn sift(answer: &Answer, about: &About, rules: &MatchRules) -> Sifted {
    let matcher = Matcher::new(rules, about);
    let mut sifted = Sifted { skipped: answer.skipped.into(), ..Sifted::default() };
    let mut places: HashMap<String, usize> = HashMap::new();
    for item in &answer.items {
        sifted.found += 1;
        let bounded = item.clone().bounded();
        let Some(found) = bounded.filter(|_| sifted.points.len() < POINTS_MAX) else {
            sifted.skipped += 1;
            continue;
        };
        let Some(strength) = matcher.fit(&found.title).strength() else {
            sifted.unmatched += 1;
            continue;
        };
        let key = key(&found, answer.at);
        let point = NewPoint { key: key.clone(), found, strength };
        match places.entry(key) {
            Entry::Vacant(place) => {
                place.insert(sifted.points.len());
                sifted.points.push(point);
            }
            Entry::Occupied(place) => {
                let known = &mut sifted.points[*place.get()];
                if point.strength > known.strength {
                    *known = point;
                }
            }
        }
    }
    sifted.found += u64::from(answer.skipped);
    sifted
}

/// What a test of a source tells: the counts, and the first items with what would become of them.
pub(crate) fn shown(answer: &Answer, about: &About, rules: &MatchRules) -> Value {
    let sifted = sift(answer, about, rules);
    let matcher = Matcher::new(rules, about);
    let items = answer.items.iter().take(SHOWN_MAX).map(|item| {
        let (kept, why) = match item.clone().bounded().map(|found| matcher.fit(&found.title)) {
            None => (None, Some("it lacks what a point needs: a title, a price, an id or a URL".to_owned())),
            Some(Fit::Fits(strength)) => (Some(strength), None),
            Some(Fit::Weak(strength)) => (None, Some(format!("it fits too little: {strength}"))),
            Some(Fit::Lacks(attribute)) => (None, Some(format!("it does not show the {attribute}"))),
            Some(Fit::Excluded(word)) => (None, Some(format!("it has {word:?} in its title"))),
        };
        json!({
            "title": item.title.chars().take(200).collect::<String>(),
            "price": item.price.to_string(),
            "price_type": item.price_type,
            "date": item.date,
            "match_strength": kept,
            "left_out": why,
        })
    });
    let items: Vec<Value> = items.collect();
    json!({
        "found": sifted.found,
        "points": sifted.points.len(),
        "unmatched": sifted.unmatched,
        "skipped": sifted.skipped,
        "pages": answer.pages,
        "items": items,
    })
}

#[cfg(test)]
mod tests {
    use quell::quell_core::clock::Timestamp;

    use super::*;
    use crate::found::{Found, PriceType};
    use crate::money::{Currency, Money};

    fn item(id: Option<&str>, url: &str, title: &str, cents: i64) -> Found {
        Found {
            external_id: id.map(str::to_owned),
            url: Some(url.to_owned()),
            title: title.to_owned(),
            price: Money { cents, currency: Currency::USD },
            original: None,
            price_type: PriceType::Ask,
            date: None,
        }
    }

    fn sifted(items: Vec<Found>) -> Sifted {
        let at = Timestamp::from_millis(1_760_000_000_000);
        let answer = Answer { run: "r".into(), at, pages: 1, items, skipped: 2 };
        let about = About { series: Some("American Silver Eagle".into()), ..About::default() };
        sift(&answer, &about, &MatchRules::default())
    }

    #[test]
    fn of_several_items_with_one_key_the_strongest_counts_and_the_first_among_equals() {
        let made = sifted(vec![
            item(Some("1"), "http://m.example/1", "Silver Eagle", 100),
            item(Some("2"), "http://m.example/2", "American Silver Eagle", 200),
            item(Some("1"), "http://m.example/1", "American Silver Eagle", 300),
            item(Some("1"), "http://m.example/1", "American Silver Eagle again", 400),
            item(Some("2"), "http://m.example/2", "Silver Eagle", 500),
        ]);
        let kept: Vec<(&str, i64, u8)> =
            made.points.iter().map(|p| (p.key.as_str(), p.found.price.cents, p.strength)).collect();
        assert_eq!(kept, [("ext_1", 300, 100), ("ext_2", 200, 100)]);
        assert_eq!((made.found, made.unmatched, made.skipped), (7, 0, 2));
    }

    #[test]
    fn what_is_spelt_otherwise_is_the_same_item() {
        let made = sifted(vec![
            item(None, "https://m.example/lot?utm_source=a#x", "American Silver Eagle", 100),
            item(None, "HTTPS://M.example:443/lot/", " AMERICAN  silver\u{a0}eagle ", 100),
            item(None, "https://m.example/lot", "American Silver Eagle", 101),
        ]);
        assert_eq!(made.points.len(), 2);
    }

    #[test]
    fn everything_that_is_not_kept_is_counted() {
        let made = sifted(vec![
            item(Some("1"), "http://m.example/1", "Gold Maple Leaf", 100),
            item(Some("2"), "http://m.example/2", "American Silver Eagle replica", 100),
            item(Some("3"), "http://m.example/3", "", 100),
            item(Some("4"), "http://m.example/4", "American Silver Eagle", 0),
            item(None, "", "American Silver Eagle", 100),
        ]);
        assert!(made.points.is_empty());
        assert_eq!((made.found, made.unmatched, made.skipped), (7, 2, 5));
    }
}
