//! One source, from `[sources.NAME]` to what the store keeps.
//!
//! The older names `CACHE_TTL_SECONDS` and `CACHE_ENABLED` concern all sources. What needs more than one value is checked by
//! the rules themselves (`quell-core/src/source.rs`).

use std::time::Duration;

use quell_core::event::SourceName;
use quell_core::limits;
use quell_core::source::{Declaration, SourceRules};

use super::Origin;
use super::error::ConfigError;
use super::queue::{parse_seconds, switch};
use super::raw::SourceConfig;
use super::resolver::{Found, Resolver};
use super::value::{DurationText, Written};

/// The shortest wait that a store can tell apart.
const MILLISECOND: Duration = Duration::from_millis(1);

pub(super) fn resolve_source(
    r: &mut Resolver<'_>,
    name: &Found<String>,
    file: SourceConfig,
) -> Result<Declaration, ConfigError> {
    let checked = SourceName::new(&name.value).map_err(|e| r.error(name, e.to_string()))?;
    let path = |setting: &str| format!("sources.{checked}.{setting}");
    let usual = SourceRules::default();
    let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);

    let per_minute = match file.rate_limit_per_minute {
        Some(written) => {
            let most = i64::from(limits::SOURCE_PER_MINUTE_MAX);
            let rate = r.integer(&path("rate_limit_per_minute"), None, &[], Some(written), 1, 1..=most)?;
            Some(count(rate))
        }
        None => {
            r.note(path("rate_limit_per_minute"), "no limit", &Origin::Default);
            None
        }
    };
    let bounds = 1..=i64::from(limits::SOURCE_BURST_MAX);
    let burst = r.integer(&path("burst"), None, &[], file.burst, usual.burst.into(), bounds)?;
    let bounds = 1..=i64::from(limits::SOURCE_FAILURES_MAX);
    let failures = file.breaker.failures;
    let failures =
        r.integer(&path("breaker.failures"), None, &[], failures, usual.failures.into(), bounds)?;
    let bounds = MILLISECOND..=limits::SOURCE_COOLDOWN_MAX;
    let cooldown = file.breaker.cooldown;
    let cooldown = r.duration(&path("breaker.cooldown"), None, &[], cooldown, usual.cooldown, bounds)?;
    let cache = keeps_answers(r, &path("cache"), file.cache)?;
    let ttl = ttl(r, &path("cache_ttl"), file.cache_ttl)?;
    let shared = switch(r, &path("shared"), file.shared);

    let rules = SourceRules {
        per_minute,
        burst: count(burst),
        failures: count(failures),
        cooldown,
        cache_ttl: cache.then_some(ttl),
        shared,
    };
    rules.check().map_err(|e| r.error(name, e.to_string()))?;
    Ok(Declaration { name: checked, rules })
}

fn keeps_answers(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<bool>>,
) -> Result<bool, ConfigError> {
    let word = |text: &str| match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    };
    let found = r.given(&["CACHE_ENABLED"], word, file)?;
    let found = found.unwrap_or(Found { value: true, origin: Origin::Default, span: 0..0 });
    r.note(setting, found.value.to_string(), &found.origin);
    Ok(found.value)
}

fn ttl(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<DurationText>>,
) -> Result<Duration, ConfigError> {
    let file = file.map(|written| Written { value: written.value.0, span: written.span });
    let found = r.given(&["CACHE_TTL_SECONDS"], parse_seconds, file)?;
    let default = Found { value: limits::CACHE_TTL_DEFAULT, origin: Origin::Default, span: 0..0 };
    r.within(setting, found.unwrap_or(default), MILLISECOND..=limits::CACHE_TTL_MAX, DurationText::show)
}
