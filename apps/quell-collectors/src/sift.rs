//! What is kept of an answer: items that a point can be made of, that fit the intake, each key once.
//!
//! Of several items of one answer with one key the strongest match counts, the first among equals: a marketplace shows the
//! same listing on two pages, or twice with other tracking in its URL.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Value, json};

use crate::PriceSource;
use crate::book::{NewPoint, POINTS_MAX};
use crate::collect::Answer;
use crate::dedupe::key;
use crate::intake::About;
use crate::matching::{Fit, Matcher};

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

pub(crate) fn sift(answer: &Answer, about: &About, source: &PriceSource) -> Sifted {
    let matcher = Matcher::new(&source.rules, about);
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
pub(crate) fn shown(answer: &Answer, about: &About, source: &PriceSource) -> Value {
    let sifted = sift(answer, about, source);
    let matcher = Matcher::new(&source.rules, about);
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
