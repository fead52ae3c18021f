//! One page as it is taken from an answer: every text bounded, and the whole small enough to be kept as a step.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::limits;
use url::Url;

use crate::adapter::Page;
use crate::found::Found;

/// No page of an API that is asked for one has more.
const ITEMS_MAX: usize = 500;
/// A step holds 256 KiB; the rest is for what surrounds the items.
const PAGE_BYTES_MAX: usize = limits::STEP_VALUE_BYTES_MAX - 16 * 1024;
/// Longer addresses lose their query, which is about the search and not about the item, so that pages stay small.
const URL_BYTES_MAX: usize = 512;
/// Twelve digits and more are milliseconds: as seconds they would be in the year 33658.
const MILLIS_FROM: i64 = 100_000_000_000;

/// A page while it is read.
#[derive(Debug, Default)]
pub(super) struct Filling {
    page: Page,
    bytes: usize,
}

impl Filling {
    /// One more item; nothing for one that lacks what a point needs. What is more than a page can hold is counted with them.
    pub(super) fn take(&mut self, found: Option<Found>) {
        let found = found.and_then(Found::bounded);
        let json = found.as_ref().and_then(|found| serde_json::to_vec(found).ok());
        let bytes = json.map_or(0, |json| json.len() + 1);
        let fits = self.page.items.len() < ITEMS_MAX && self.bytes + bytes <= PAGE_BYTES_MAX;
        match found.filter(|_| fits) {
            Some(found) => {
                self.bytes += bytes;
                self.page.items.push(found);
            }
            None => self.page.skipped = self.page.skipped.saturating_add(1),
        }
    }

    pub(super) fn end(self, next: Option<String>) -> Page {
        Page { next, ..self.page }
    }
}

/// A text without control characters and without space around it; nothing if that is all it is.
pub(super) fn plain(text: &str) -> Option<String> {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Some(plain.trim().to_owned()).filter(|plain| !plain.is_empty())
}

/// An address for people, as it is written: only of the web, and without a password.
pub(super) fn web_url(text: &str) -> Option<String> {
    let text = text.trim();
    let url = Url::parse(text).ok()?;
    let web =
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    let short = match text.len() > URL_BYTES_MAX {
        true => text.split(['?', '#']).next().unwrap_or_default(),
        false => text,
    };
    web.then(|| short.to_owned())
}

/// A moment in one of the forms that APIs use.
pub(super) fn date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        let millis = if number.abs() < MILLIS_FROM { number.checked_mul(1_000)? } else { number };
        jiff::Timestamp::from_millisecond(millis).ok()?;
        return Some(Timestamp::from_millis(millis));
    }
    let moment = match text.parse::<jiff::Timestamp>() {
        Ok(moment) => moment,
        // A day alone begins at midnight in Greenwich; jiff reads it out of longer texts, too, and those are no days.
        Err(_) if text.len() == 10 => text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp(),
        Err(_) => return None,
    };
    Some(Timestamp::from_millis(moment.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found::PriceType;
    use crate::money::{Currency, Money};

    fn found(title: &str) -> Found {
        Found {
            external_id: Some("1".into()),
            url: None,
            title: title.into(),
            price: Money { cents: 1, currency: Currency::USD },
            original: None,
            price_type: PriceType::Ask,
            date: None,
        }
    }

    #[test]
    fn a_page_is_never_larger_than_a_step() {
        let mut many = Filling::default();
        (0..ITEMS_MAX + 7).for_each(|_| many.take(Some(found("x"))));
        many.take(None);
        let page = many.end(Some("2".into()));
        assert_eq!((page.items.len(), page.skipped, page.next.as_deref()), (ITEMS_MAX, 8, Some("2")));
        let mut large = Filling::default();
        (0..ITEMS_MAX).for_each(|_| large.take(Some(found(&"\"".repeat(5_000)))));
        let page = large.end(None);
        let bytes = serde_json::to_vec(&page).unwrap().len();
        assert!(page.skipped > 0 && bytes < limits::STEP_VALUE_BYTES_MAX, "{bytes}");
        assert!(bytes > PAGE_BYTES_MAX / 2, "{bytes}");
    }

    #[test]
    fn texts_are_bounded() {
        assert_eq!((plain("  a\tb\u{0}\n "), plain(" \n")), (Some("a b".into()), None));
        let shop = "https://shop.example/itm/1";
        assert_eq!(web_url(&format!("{shop}?a=b#c")), Some(format!("{shop}?a=b#c")));
        assert_eq!(web_url(&format!("{shop}?amdata={}", "x".repeat(2_000))), Some(shop.into()));
        for bad in ["javascript:alert(1)", "/itm/1", "ftp://a/b", "https://me:pw@a/b", "", "data:text/html,x"]
        {
            assert_eq!(web_url(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_read_in_the_usual_forms() {
        for (text, millis) in [
            ("2025-09-29T08:53:20.000Z", Some(1_759_136_000_000)),
            ("2025-09-29T10:53:20+02:00", Some(1_759_136_000_000)),
            ("2025-09-29", Some(1_759_104_000_000)),
            ("1759136000", Some(1_759_136_000_000)),
            ("1759136000000", Some(1_759_136_000_000)),
            ("29.09.2025", None),
            ("yesterday", None),
            ("2025-13-01", None),
            ("99999999999999999", None),
        ] {
            assert_eq!(date(text).map(Timestamp::as_millis), millis, "{text}");
        }
    }
}
