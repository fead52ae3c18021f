//! The Browse API of eBay as a source of prices, from its section to its settings.

use super::error::ConfigError;
use super::prices::EbaySettings;
use super::prices_source::{PAGING_VALUES, Section, count};
use super::raw_prices::PriceSourceConfig;
use super::resolver::{Resolver, text_or};
use super::secret::{SecretSource, resolve_secret};
use super::value::Written;
use crate::template::Template;

const EBAY_URL: &str = "https://api.ebay.com";
const LIMIT_DEFAULT: i64 = 100;
/// What the API gives on one page at the most.
const LIMIT_MAX: i64 = 200;
const CATEGORIES_MAX: usize = 50;
const FILTER_BYTES_MAX: usize = 1_000;

pub(super) fn resolve_ebay(
    r: &mut Resolver<'_>,
    s: &mut Section<'_>,
    file: PriceSourceConfig,
) -> Result<EbaySettings, ConfigError> {
    let url = text_or(r, file.url, EBAY_URL);
    if let Err(refused) = s.guard.meaning(&url.value).admit(&url.value) {
        return Err(r.error(&url, refused.to_string()));
    }
    if url.value.contains(['?', '#']) {
        return Err(r.error(&url, "an address here has no query: it is only the beginning of one"));
    }
    r.note(s.at("url"), &url.value, &url.origin);
    s.warn_of_plain(&url.value);
    let client_id = client(r, s, "client_id", file.client_id_file, file.client_id_env)?;
    let client_secret = client(r, s, "client_secret", file.client_secret_file, file.client_secret_env)?;

    let marketplace = text_or(r, file.marketplace, "EBAY_US");
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_' || b.is_ascii_digit());
    if marketplace.value.is_empty() || !plain(&marketplace.value) {
        let problem = format!("{:?} is no marketplace", marketplace.value);
        return Err(r.error(&marketplace, problem).help("write for example \"EBAY_US\" or \"EBAY_DE\""));
    }
    r.note(s.at("marketplace"), &marketplace.value, &marketplace.origin);

    let written = text_or(r, file.query, "{query}");
    let query = Template::parse(&written.value).map_err(|bad| r.error(&written, bad.to_string()))?;
    if let Some(name) = query.names().find(|name| PAGING_VALUES.contains(name)) {
        return Err(
            r.error(&written, format!("{{{name}}} has no value here: pages are turned by the adapter"))
        );
    }
    if written.value.trim().is_empty() {
        return Err(r.error(&written, "an empty query finds nothing"));
    }
    s.warn_of_misspelt("query", query.names());
    r.note(s.at("query"), &written.value, &written.origin);

    let category_ids = categories(r, s, file.category_ids)?;
    let filter = file.filter.map(|written| r.placed(written));
    if let Some(found) = &filter {
        let odd = found.value.trim().is_empty() || found.value.chars().any(char::is_control);
        if odd || found.value.len() > FILTER_BYTES_MAX {
            let problem = format!("a filter has 1 to {FILTER_BYTES_MAX} bytes without control characters");
            return Err(r.error(found, problem));
        }
        r.note(s.at("filter"), &found.value, &found.origin);
    }
    let (usual, bounds) = (LIMIT_DEFAULT, 1..=LIMIT_MAX);
    let limit = r.integer(&s.at("limit"), None, &[], file.limit, usual, bounds)?;
    Ok(EbaySettings {
        url: url.value.trim_end_matches('/').to_owned(),
        client_id,
        client_secret,
        marketplace: marketplace.value,
        query,
        category_ids,
        filter: filter.map(|found| found.value),
        limit: count(limit),
    })
}

/// One half of what the application at eBay is known by.
fn client(
    r: &mut Resolver<'_>,
    s: &Section<'_>,
    setting: &str,
    file: Option<Written<String>>,
    env: Option<Written<String>>,
) -> Result<SecretSource, ConfigError> {
    let (file_name, env_name) = (format!("{setting}_file"), format!("{setting}_env"));
    let found = resolve_secret(r, &|name: &str| s.at(name), (&file_name, file), (&env_name, env))?;
    found.ok_or_else(|| {
        let problem = format!("the source {:?} has no {setting}", s.name.value);
        r.error(s.name, problem).help(format!("write {env_name} = \"NAME\" or {file_name} = \"NAME\""))
    })
}

fn categories(
    r: &mut Resolver<'_>,
    s: &Section<'_>,
    file: Option<Written<Vec<String>>>,
) -> Result<Vec<String>, ConfigError> {
    let Some(written) = file else { return Ok(Vec::new()) };
    let found = r.placed(written);
    let number = |id: &String| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(bad) = found.value.iter().find(|id| !number(id)) {
        return Err(r.error(&found, format!("{bad:?} is no category: they are numbers, such as \"39482\"")));
    }
    if found.value.len() > CATEGORIES_MAX {
        return Err(r.error(&found, format!("at most {CATEGORIES_MAX} categories can be named")));
    }
    r.note(s.at("category_ids"), format!("{:?}", found.value), &found.origin);
    Ok(found.value)
}
