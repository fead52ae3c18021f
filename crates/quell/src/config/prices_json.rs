//! A source of prices that answers with JSON, from its section to its settings: where a page is found, what stands where in it,
//! and how one leads to the next.

use std::collections::BTreeMap;

use http::HeaderName;

use super::Origin;
use super::error::ConfigError;
use super::policy::word;
use super::prices::{JsonSourceSettings, Paging, PriceFields, PriceType, known_type};
use super::prices_source::{Section, count};
use super::raw_prices::{PagingConfig, PriceFieldsConfig, PriceSourceConfig};
use super::resolver::{Found, Resolver, required};
use super::secret::resolve_secret;
use super::value::Written;
use crate::pointer::Pointer;
use crate::template::{Template, UrlTemplate};

/// A page with all its items is kept as one step.
const PAGE_ITEMS_MAX: i64 = 500;
/// Where a first page could be; more is a mistake.
const FIRST_MAX: i64 = 1_000_000;
const HEADERS_MAX: usize = 20;
/// Headers that belong to the client, or that would hide who asks.
const CLIENTS_OWN: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
    "user-agent",
];

pub(super) fn resolve_json(
    r: &mut Resolver<'_>,
    s: &mut Section<'_>,
    file: PriceSourceConfig,
    has_currency: bool,
) -> Result<JsonSourceSettings, ConfigError> {
    let example = "url = \"https://shop.example/search?q={query}\"";
    let written = required(r, "source", s.name, file.url, "url", example)?;
    let url = UrlTemplate::parse(&written.value).map_err(|bad| r.error(&written, bad.to_string()))?;
    // With something in its places it must be a URL that may be asked.
    let sample = url.fill(|_| Some("1".to_owned())).map_err(|bad| r.error(&written, bad.to_string()))?;
    s.guard.meaning(url.base()).admit(&sample).map_err(|refused| r.error(&written, refused.to_string()))?;
    s.warn_of_misspelt("url", url.names());
    r.note(s.at("url"), &written.value, &written.origin);

    let at = |setting: &str| s.at(setting);
    let secret = resolve_secret(r, &at, ("secret_file", file.secret_file), ("secret_env", file.secret_env))?;
    let headers = headers(r, s, file.headers, secret.is_some())?;
    if secret.is_some() {
        s.warn_of_plain(url.base());
    }
    let items = required(r, "source", s.name, file.items, "items", "items = \"/results\"")?;
    let items = pointer(r, &s.at("items"), items)?;
    let fields = fields(r, s, file.fields)?;
    if fields.currency.is_none() && !has_currency {
        let problem = format!("nothing says which currency the prices of {:?} are in", s.name.value);
        let help = "write currency = \"USD\", or fields.currency if each item says it";
        return Err(r.error(s.name, problem).help(help));
    }
    let price_type = match file.price_type {
        Some(written) => {
            let found = r.placed(written);
            let kind = known_type(r, &found)?;
            r.note(s.at("price_type"), kind.as_str(), &found.origin);
            Some(kind)
        }
        None if fields.kind.is_none() => {
            let problem = format!("nothing says what the prices of {:?} are", s.name.value);
            let help =
                "write price_type = \"ask\" (or \"sold\", \"bid\"), or fields.type if each item says it";
            return Err(r.error(s.name, problem).help(help));
        }
        None => None,
    };
    let types = types(r, s, file.types, fields.kind.is_some())?;
    let paging = paging(r, s, file.paging, &url, &written)?;
    let robots = match file.robots {
        Some(written) => r.placed(written),
        None => Found { value: true, origin: Origin::Default, span: 0..0 },
    };
    r.note(s.at("robots"), robots.value.to_string(), &robots.origin);
    Ok(JsonSourceSettings {
        url,
        headers,
        secret,
        items,
        fields,
        price_type,
        types,
        paging,
        robots: robots.value,
    })
}

fn headers(
    r: &mut Resolver<'_>,
    s: &Section<'_>,
    file: BTreeMap<toml::Spanned<String>, Written<String>>,
    has_secret: bool,
) -> Result<Vec<(String, Template)>, ConfigError> {
    let (mut headers, mut used) = (Vec::new(), false);
    for (key, written) in file {
        let (key, value) = (r.named(key), r.placed(written));
        let name = HeaderName::from_bytes(key.value.as_bytes()).ok();
        let name = name.filter(|name| !CLIENTS_OWN.contains(&name.as_str()));
        let name = name.ok_or_else(|| {
            let problem = format!("{:?} is no header that can be set", key.value);
            let help = "who asks is told by contact; the others are the client's own";
            r.error(&key, problem).help(help)
        })?;
        if headers.len() >= HEADERS_MAX {
            return Err(r.error(&key, format!("at most {HEADERS_MAX} headers can be set")));
        }
        let template = Template::parse(&value.value).map_err(|bad| r.error(&value, bad.to_string()))?;
        if let Some(other) = template.names().find(|name| *name != "secret") {
            let problem = format!("{{{other}}} cannot stand in a header: {{secret}} is the only value there");
            return Err(r.error(&value, problem));
        }
        if value.value.bytes().any(|byte| byte != b'\t' && !(b' '..=b'~').contains(&byte)) {
            return Err(r.error(&value, "a header is written in ASCII, without control characters"));
        }
        used |= template.names().next().is_some();
        if used && !has_secret {
            let help = "write secret_env = \"NAME\" or secret_file = \"NAME\"";
            return Err(r.error(&value, "nothing says where the secret is found").help(help));
        }
        // A key that somebody wrote here in spite of everything is not repeated.
        let shown = if template.names().next().is_some() { value.value.as_str() } else { "…" };
        r.note(s.at(&format!("headers.{name}")), shown, &value.origin);
        headers.push((name.as_str().to_owned(), template));
    }
    if has_secret && !used {
        let help = "write for example headers = { \"X-Api-Key\" = \"{secret}\" }";
        return Err(r.error(s.name, "the secret is used by no header").help(help));
    }
    Ok(headers)
}

fn fields(
    r: &mut Resolver<'_>,
    s: &Section<'_>,
    file: PriceFieldsConfig,
) -> Result<PriceFields, ConfigError> {
    let example = |name: &str| format!("fields = {{ id = \"/id\", title = \"/title\", {name} }}");
    let price = example("price = \"/price\"");
    let title = required(r, "source", s.name, file.title, "fields.title", &price)?;
    let price = required(r, "source", s.name, file.price, "fields.price", &price)?;
    let at = |name: &str| s.at(&format!("fields.{name}"));
    let mut optional = |name: &str, file: Option<Written<String>>| match file {
        Some(written) => {
            let found = r.placed(written);
            pointer(r, &at(name), found).map(Some)
        }
        None => Ok(None),
    };
    let id = optional("id", file.id)?;
    let url = optional("url", file.url)?;
    let currency = optional("currency", file.currency)?;
    let date = optional("date", file.date)?;
    let kind = optional("type", file.kind)?;
    if id.is_none() && url.is_none() {
        let problem = format!("nothing tells the items of {:?} apart", s.name.value);
        return Err(r.error(s.name, problem).help("write fields.id, or fields.url if they have no id"));
    }
    let title = pointer(r, &at("title"), title)?;
    let price = pointer(r, &at("price"), price)?;
    Ok(PriceFields { id, title, price, currency, url, date, kind })
}

fn pointer(r: &mut Resolver<'_>, setting: &str, found: Found<String>) -> Result<Pointer, ConfigError> {
    let pointer = Pointer::parse(&found.value).map_err(|bad| r.error(&found, bad.to_string()))?;
    r.note(setting, format!("{:?}", found.value), &found.origin);
    Ok(pointer)
}

fn types(
    r: &mut Resolver<'_>,
    s: &Section<'_>,
    file: BTreeMap<toml::Spanned<String>, Written<String>>,
    has_words: bool,
) -> Result<BTreeMap<String, PriceType>, ConfigError> {
    let mut types = BTreeMap::new();
    for (key, written) in file {
        let (key, found) = (r.named(key), r.placed(written));
        if !has_words {
            let help = "write fields.type, the JSON pointer to these words";
            return Err(r.error(&key, "no item says of which type it is").help(help));
        }
        let kind = known_type(r, &found)?;
        r.note(s.at(&format!("types.{}", key.value)), kind.as_str(), &found.origin);
        types.insert(key.value, kind);
    }
    Ok(types)
}

fn paging(
    r: &mut Resolver<'_>,
    s: &Section<'_>,
    file: PagingConfig,
    url: &UrlTemplate,
    url_at: &Found<String>,
) -> Result<Paging, ConfigError> {
    let at = |name: &str| s.at(&format!("paging.{name}"));
    let words = [("none", By::None), ("page", By::Page), ("offset", By::Offset), ("next", By::Next)];
    let by = word(r, &at("by"), file.by, &words)?;
    let name = words.iter().find(|(_, one)| *one == by).map_or("", |(name, _)| *name);
    let has = |value: &str| url.names().any(|name| name == value);
    for (value, needed) in [("page", by == By::Page), ("offset", by == By::Offset)] {
        if needed && !has(value) {
            let problem = format!("with paging by {name:?} every page has the same address");
            return Err(r.error(url_at, problem).help(format!("write {{{value}}} into url")));
        }
        if !needed && has(value) {
            let problem = format!("{{{value}}} has no value with paging by {name:?}");
            return Err(r.error(url_at, problem).help(format!("write paging = {{ by = \"{value}\" }}")));
        }
    }
    let size = match file.size {
        Some(written) => {
            let size = r.integer(&at("size"), None, &[], Some(written), 1, 1..=PAGE_ITEMS_MAX)?;
            Some(count(size))
        }
        None if has("limit") => {
            let help = "write for example paging = { size = 50 }";
            return Err(r.error(url_at, "{limit} has no value without paging.size").help(help));
        }
        None => None,
    };
    let counted = matches!(by, By::Page | By::Offset);
    let first = match file.first {
        Some(written) if !counted => return Err(useless(r, written, "first", name)),
        Some(written) => r.integer(&at("first"), None, &[], Some(written), 0, 0..=FIRST_MAX)?,
        None => i64::from(by == By::Page),
    };
    let total = match file.total {
        Some(written) if !counted => return Err(useless(r, written, "total", name)),
        Some(written) if size.is_none() => {
            let found = r.placed(written);
            return Err(r.error(&found, "a total says nothing without paging.size"));
        }
        Some(written) => {
            let found = r.placed(written);
            Some(pointer(r, &at("total"), found)?)
        }
        None => None,
    };
    let next = match file.next {
        Some(written) if by != By::Next => return Err(useless(r, written, "next", name)),
        Some(written) => {
            let found = r.placed(written);
            Some(pointer(r, &at("next"), found)?)
        }
        None => None,
    };
    let missing = |setting: &str, example: &str| {
        let problem = format!("paging by {name:?} has no {setting}");
        r.error(s.name, problem).help(format!("write for example {example}"))
    };
    Ok(match by {
        By::None => Paging::None { size },
        By::Page => Paging::Page { first: count(first), size, total },
        By::Offset => {
            let size = size.ok_or_else(|| missing("size", "paging = { by = \"offset\", size = 50 }"))?;
            Paging::Offset { first: count(first), size, total }
        }
        By::Next => {
            let pointer =
                next.ok_or_else(|| missing("next", "paging = { by = \"next\", next = \"/next\" }"))?;
            Paging::Next { pointer, size }
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    None,
    Page,
    Offset,
    Next,
}

fn useless<T>(r: &Resolver<'_>, written: Written<T>, setting: &str, by: &str) -> ConfigError {
    let found = r.placed(written);
    r.error(&found, format!("paging.{setting} says nothing with paging by {by:?}")).help("remove it")
}
