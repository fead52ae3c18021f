//! What an adapter finds: one item of a source, read, before it is compared with anything.
//!
//! Whatever a source writes is brought within bounds here, once, before it is compared, kept or shown.

pub use quell::config::PriceType;
use quell::quell_core::clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::dedupe::plain_url;
use crate::money::Money;

/// Characters of a title that are kept; marketplaces allow 80.
pub const TITLE_CHARS_MAX: usize = 500;
/// Bytes of a URL; a longer one is kept without its query and fragment, which are all that makes one so long.
pub const URL_BYTES_MAX: usize = 2_048;
/// Bytes of an id of a source; what is longer is a document and no name.
pub const EXTERNAL_ID_BYTES_MAX: usize = 200;

/// One item of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What the source calls it for ever.
    pub external_id: Option<String>,
    /// As the source writes it.
    pub url: Option<String>,
    /// As the source writes it.
    pub title: String,
    pub price: Money,
    /// What the source converted it from.
    pub original: Option<Money>,
    pub price_type: PriceType,
    /// When it was sold or listed, if the source says.
    pub date: Option<Timestamp>,
}

impl Found {
    /// The item within the bounds, or nothing when it lacks what a point needs: a title, a price, and something to be told
    /// apart by, which a title alone is not.
    #[must_use]
    pub fn bounded(self) -> Option<Found> {
        let title: String = cleaned(&self.title).chars().take(TITLE_CHARS_MAX).collect();
        let id = self.external_id.as_deref().map(cleaned);
        let external_id = id.filter(|id| !id.is_empty() && id.len() <= EXTERNAL_ID_BYTES_MAX);
        let url = self.url.as_deref().map(cleaned).filter(|url| !url.is_empty());
        let url = url.map(|url| if url.len() > URL_BYTES_MAX { plain_url(&url) } else { url });
        let url = url.filter(|url| url.len() <= URL_BYTES_MAX);
        let known = external_id.is_some() || url.is_some();
        let whole = known && !title.is_empty() && self.price.cents > 0;
        whole.then_some(Found { external_id, url, title, ..self })
    }
}

/// Without white space around it, and without NUL, which no store keeps.
fn cleaned(text: &str) -> String {
    text.trim().replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedupe::key;
    use crate::money::Currency;

    fn found() -> Found {
        Found {
            external_id: None,
            url: Some("https://shop.example/1?a=b".into()),
            title: "Eagle".into(),
            price: Money { cents: 100, currency: Currency::USD },
            original: None,
            price_type: PriceType::Ask,
            date: None,
        }
    }

    #[test]
    fn an_item_without_what_a_point_needs_is_none() {
        assert_eq!(found().bounded(), Some(found()));
        let id = Found { external_id: Some("7".into()), url: None, ..found() };
        assert!(id.bounded().is_some());
        let cases = [
            ("no title", Found { title: " \u{a0}\0".into(), ..found() }),
            ("nothing but a title", Found { url: None, ..found() }),
            ("empty texts", Found { url: Some(" ".into()), external_id: Some(String::new()), ..found() }),
            ("no price", Found { price: Money { cents: 0, currency: Currency::USD }, ..found() }),
        ];
        for (what, item) in cases {
            assert_eq!(item.bounded(), None, "{what}");
        }
    }

    #[test]
    fn what_is_too_long_is_shortened_without_another_key() {
        let at = Timestamp::from_millis(0);
        let long = Found { url: Some(format!("https://shop.example/1?{}", "x".repeat(3_000))), ..found() };
        let kept = long.clone().bounded().unwrap();
        assert_eq!(kept.url.as_deref(), Some("https://shop.example/1"));
        assert_eq!(key(&kept, at), key(&long, at));
        let endless = Found { url: Some(format!("https://shop.example/{}", "x".repeat(3_000))), ..found() };
        assert_eq!(endless.bounded(), None);
        let title = Found { title: "é".repeat(600), ..found() }.bounded().unwrap().title;
        assert_eq!(title.chars().count(), TITLE_CHARS_MAX);
        let document = Found { external_id: Some("x".repeat(201)), ..found() }.bounded().unwrap();
        assert_eq!(document.external_id, None, "its URL tells it apart");
        let nul =
            Found { title: "a\0b".into(), external_id: Some("7\0".into()), ..found() }.bounded().unwrap();
        assert_eq!((nul.title.as_str(), nul.external_id.as_deref()), ("ab", Some("7")));
    }
}
