//! One source of prices, from `[prices.sources.NAME]` to its settings: what every adapter has. The rest is in `prices_json.rs`
//! and `prices_ebay.rs`.
//!
//! What belongs to the other adapter is refused by name. Templates and pointers are parsed by the code that fills them in and
//! follows them later, so a description that passes `quell check` fails a run only for what the source says.

use std::collections::BTreeMap;
use std::time::Duration;

use quell_core::event::SourceName;
use quell_fetch::Guard;

use super::Origin;
use super::error::{ConfigError, nearest};
use super::policy::word;
use super::prices::{AdapterSettings, MatchSettings, PriceSourceSettings, checked_currency};
use super::prices_ebay::resolve_ebay;
use super::prices_json::resolve_json;
use super::raw_prices::{MatchConfig, PriceSourceConfig};
use super::resolver::{Found, Resolver};
use super::value::Written;

/// The first items of a search fit best.
const PAGES_DEFAULT: i64 = 5;
/// With two hundred items each they are as many as one intake may have of one source.
const PAGES_MAX: i64 = 25;
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);
const TIMEOUT_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(120));
/// A mail address or a URL; more is no contact.
const CONTACT_BYTES_MAX: usize = 200;
/// Words and phrases that exclude an item; each is looked for in every title.
const EXCLUDED_MAX: usize = 100;
/// What the values of a template are called; other names come from `query_params`.
const VALUES: [&str; 6] = ["year", "mintmark", "denomination", "series", "title", "query"];
pub(super) const PAGING_VALUES: [&str; 3] = ["page", "offset", "limit"];
/// What an intake is matched by.
const ATTRIBUTES: [&str; 5] = ["year", "mintmark", "denomination", "series", "title"];
const EXCLUDED: [&str; 7] =
    ["replica", "copy", "reproduction", "counterfeit", "fake", "fantasy", "not genuine"];
/// Two years or two mints of one series are two things with two prices.
const REQUIRED: [&str; 2] = ["year", "mintmark"];

pub(super) fn resolve_price_source(
    r: &mut Resolver<'_>,
    name: &Found<String>,
    mut file: PriceSourceConfig,
    guard: &Guard,
    warnings: &mut Vec<String>,
) -> Result<PriceSourceSettings, ConfigError> {
    let checked = SourceName::new(&name.value).map_err(|e| r.error(name, e.to_string()))?;
    let mut s = Section { path: format!("prices.sources.{checked}"), name, guard, warnings };
    let ebay = word(r, &s.at("adapter"), file.adapter.take(), &[("json", false), ("ebay", true)])?;
    refuse_others(r, &file, ebay)?;
    let currency = match file.currency.take() {
        Some(written) => {
            let found = r.placed(written);
            Some(checked_currency(r, &s.at("currency"), found)?)
        }
        None => None,
    };
    let bounds = 1..=PAGES_MAX;
    let max_pages = r.integer(&s.at("max_pages"), None, &[], file.max_pages.take(), PAGES_DEFAULT, bounds)?;
    let bounds = TIMEOUT_BOUNDS.0..=TIMEOUT_BOUNDS.1;
    let timeout = r.duration(&s.at("timeout"), None, &[], file.timeout.take(), TIMEOUT_DEFAULT, bounds)?;
    let contact = contact(r, &s, file.contact.take())?;
    let matching = matching(r, &s, std::mem::take(&mut file.matching))?;
    let adapter = match ebay {
        true => AdapterSettings::Ebay(Box::new(resolve_ebay(r, &mut s, file)?)),
        false => AdapterSettings::Json(Box::new(resolve_json(r, &mut s, file, currency.is_some())?)),
    };
    Ok(PriceSourceSettings {
        name: checked,
        adapter,
        currency,
        max_pages: count(max_pages),
        timeout,
        contact,
        matching,
    })
}

/// The section that is read, and what it is checked against.
pub(super) struct Section<'a> {
    path: String,
    pub(super) name: &'a Found<String>,
    pub(super) guard: &'a Guard,
    warnings: &'a mut Vec<String>,
}

impl Section<'_> {
    pub(super) fn at(&self, setting: &str) -> String {
        format!("{}.{setting}", self.path)
    }

    /// What is sent in the clear can be read by everybody in between.
    pub(super) fn warn_of_plain(&mut self, url: &str) {
        let local = self.guard.meaning(url).admit(url).is_ok_and(|admitted| admitted.is_loopback());
        if url.starts_with("http://") && !local {
            let path = &self.path;
            self.warnings.push(format!("{path}: its secret is sent over plain http; use https"));
        }
    }

    /// A name that is almost one of ours would be looked for in `query_params`.
    pub(super) fn warn_of_misspelt<'n>(&mut self, setting: &str, names: impl Iterator<Item = &'n str>) {
        let known: Vec<&str> = VALUES.into_iter().chain(PAGING_VALUES).collect();
        for name in names.filter(|name| !known.contains(name)) {
            if let Some(near) = nearest(name, known.iter().copied()) {
                let at = self.at(setting);
                self.warnings.push(format!(
                    "{at}: {{{name}}} is expected from query_params; did you mean {{{near}}}?"
                ));
            }
        }
    }
}

/// What belongs to the other adapter would be ignored in silence.
fn refuse_others(r: &Resolver<'_>, file: &PriceSourceConfig, ebay: bool) -> Result<(), ConfigError> {
    fn place<T>(written: &Option<Written<T>>) -> Option<std::ops::Range<usize>> {
        written.as_ref().map(|written| written.span.clone())
    }
    fn first<T>(map: &BTreeMap<toml::Spanned<String>, T>) -> Option<std::ops::Range<usize>> {
        map.keys().next().map(toml::Spanned::span)
    }
    let fields = &file.fields;
    let field = [&fields.id, &fields.title, &fields.price, &fields.currency, &fields.url, &fields.date];
    let paging = &file.paging;
    let of_json = [
        ("headers", first(&file.headers)),
        ("secret_file", place(&file.secret_file)),
        ("secret_env", place(&file.secret_env)),
        ("items", place(&file.items)),
        ("fields", field.into_iter().chain([&fields.kind]).find_map(place)),
        ("price_type", place(&file.price_type)),
        ("types", first(&file.types)),
        ("paging", [&paging.by, &paging.next, &paging.total].into_iter().find_map(place)),
        ("paging", place(&paging.first).or(place(&paging.size))),
        ("robots", place(&file.robots)),
    ];
    let of_ebay = [
        ("client_id_file", place(&file.client_id_file)),
        ("client_id_env", place(&file.client_id_env)),
        ("client_secret_file", place(&file.client_secret_file)),
        ("client_secret_env", place(&file.client_secret_env)),
        ("marketplace", place(&file.marketplace)),
        ("query", place(&file.query)),
        ("category_ids", place(&file.category_ids)),
        ("filter", place(&file.filter)),
        ("limit", place(&file.limit)),
    ];
    let (others, own, other): (&[_], _, _) =
        if ebay { (&of_json, "ebay", "json") } else { (&of_ebay, "json", "ebay") };
    let Some((setting, span)) = others.iter().find_map(|(name, span)| Some((name, span.clone()?))) else {
        return Ok(());
    };
    let found = Found { value: (), origin: r.file_origin(&span), span };
    let help = match *setting {
        "limit" => "the size of a page is paging = { size = … }".to_owned(),
        "query" => "what is searched for stands in url, as {query}".to_owned(),
        _ => format!("remove it, or write adapter = \"{other}\""),
    };
    Err(r
        .error(&found, format!("{setting} is for the adapter {other:?}, and this source has {own:?}"))
        .help(help))
}

fn contact(
    r: &mut Resolver<'_>,
    s: &Section<'_>,
    file: Option<Written<String>>,
) -> Result<Option<String>, ConfigError> {
    let Some(written) = file else { return Ok(None) };
    let found = r.placed(written);
    let odd = |byte: u8| !(b'!'..=b'~').contains(&byte) || matches!(byte, b'(' | b')' | b'\\');
    if found.value.is_empty() || found.value.len() > CONTACT_BYTES_MAX || found.value.bytes().any(odd) {
        let problem = format!("{:?} cannot stand in a header", found.value);
        return Err(r.error(&found, problem).help("write a mail address or a URL, without spaces"));
    }
    r.note(s.at("contact"), &found.value, &found.origin);
    Ok(Some(found.value))
}

fn matching(r: &mut Resolver<'_>, s: &Section<'_>, file: MatchConfig) -> Result<MatchSettings, ConfigError> {
    let at = |name: &str| s.at(&format!("match.{name}"));
    let mut number = |name: &str, file: Option<Written<i64>>, usual: i64| {
        r.integer(&at(name), None, &[], file, usual, 0..=100).map(count)
    };
    let year = number("year", file.year, 30)?;
    let mintmark = number("mintmark", file.mintmark, 20)?;
    let denomination = number("denomination", file.denomination, 15)?;
    let series = number("series", file.series, 25)?;
    let title = number("title", file.title, 10)?;
    let min_strength = number("min_strength", file.min_strength, 50)?;
    if year + mintmark + denomination + series + title == 0 {
        let problem = "no item could ever match: all weights are 0";
        return Err(r.error(s.name, problem).help("leave them out, or give one of them a weight"));
    }
    let listed = |written: Option<Written<Vec<String>>>, usual: &[&str], r: &Resolver<'_>| match written {
        Some(written) => r.placed(written),
        None => Found {
            value: usual.iter().map(|word| (*word).to_owned()).collect(),
            origin: Origin::Default,
            span: 0..0,
        },
    };
    let require = listed(file.require, &REQUIRED, r);
    if let Some(bad) = require.value.iter().find(|name| !ATTRIBUTES.contains(&name.as_str())) {
        let help = match nearest(bad, ATTRIBUTES) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("write some of {ATTRIBUTES:?}"),
        };
        return Err(r.error(&require, format!("{bad:?} is nothing that an intake is matched by")).help(help));
    }
    r.note(at("require"), format!("{:?}", require.value), &require.origin);
    let exclude = listed(file.exclude, &EXCLUDED, r);
    if exclude.value.len() > EXCLUDED_MAX || exclude.value.iter().any(|word| word.trim().is_empty()) {
        let problem = format!("exclude has at most {EXCLUDED_MAX} words, none of them empty");
        return Err(r.error(&exclude, problem));
    }
    r.note(at("exclude"), format!("{:?}", exclude.value), &exclude.origin);
    Ok(MatchSettings {
        year,
        mintmark,
        denomination,
        series,
        title,
        require: require.value,
        exclude: exclude.value,
        min_strength,
    })
}

pub(super) fn count(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
