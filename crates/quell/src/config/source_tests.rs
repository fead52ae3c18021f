//! Every setting about sources: what it becomes, and what is refused.

use quell_core::source::SourceRules;

use super::tests::{queue, refused, resolve, settings};
use super::*;

fn source(text: &str) -> SourceRules {
    settings(&format!("[sources.ebay]\n{text}\n")).sources.remove(0).rules
}

#[test]
fn a_source_has_a_rate_a_breaker_and_a_cache() {
    assert_eq!(source(""), SourceRules::default());
    let whole = source(
        "rate_limit_per_minute = 60\nburst = 5\nbreaker = { failures = 3, cooldown = \"1m\" }\ncache_ttl = \"10m\"\n\
         shared = true",
    );
    let expected = SourceRules {
        per_minute: Some(60),
        burst: 5,
        failures: 3,
        cooldown: Duration::from_secs(60),
        cache_ttl: Some(Duration::from_secs(600)),
        shared: true,
    };
    assert_eq!(whole, expected);
    assert_eq!(source("cache = false").cache_ttl, None);
}

#[test]
fn a_queue_names_a_source_of_the_same_file() {
    let text = "[sources.ebay]\n[queues.collect]\nsource = \"ebay\"\n[queues.free]\n";
    let both = settings(text);
    let name = |queue_name: &str| queue(&both, queue_name).append.source.as_ref().map(ToString::to_string);
    assert_eq!(name("collect").as_deref(), Some("ebay"));
    assert_eq!(name("free"), None);
    let lines = both.explain();
    let line = lines.iter().find(|line| line.setting == "queues.collect.source").unwrap();
    assert_eq!((line.value.as_str(), line.origin.to_string()), ("ebay", "file line 3".to_owned()));
    let misspelt = refused("[sources.ebay]\n[queues.a]\nsource = \"ebuy\"\n");
    assert!(misspelt.contains("3:10: there is no source \"ebuy\""), "{misspelt}");
    assert!(misspelt.contains("did you mean \"ebay\"?"), "{misspelt}");
    let missing = refused("[queues.a]\nsource = \"ebay\"\n");
    assert!(missing.contains("add a section [sources.ebay]"), "{missing}");
}

#[test]
fn the_older_names_of_the_cache_concern_all_sources() {
    let text = Some("[sources.a]\ncache_ttl = \"5m\"\n[sources.b]\n");
    let ttl = resolve(text, &[("CACHE_TTL_SECONDS", "90")], Flags::default()).unwrap().sources;
    assert!(ttl.iter().all(|s| s.rules.cache_ttl == Some(Duration::from_secs(90))), "{ttl:?}");
    let off = resolve(text, &[("CACHE_ENABLED", "false")], Flags::default()).unwrap().sources;
    assert!(off.iter().all(|s| s.rules.cache_ttl.is_none()), "{off:?}");
    let bad = resolve(text, &[("CACHE_ENABLED", "perhaps")], Flags::default()).unwrap_err();
    assert!(bad.contains("CACHE_ENABLED") && bad.contains("neither true nor false"), "{bad}");
}

#[test]
fn impossible_limits_are_refused_with_their_place() {
    for (text, message) in [
        ("rate_limit_per_minute = 0", "2:25: rate_limit_per_minute = 0 is not between 1 and"),
        ("burst = 0", "2:9: burst = 0 is not between 1 and"),
        ("breaker = { failures = 0 }", "failures = 0 is not between 1 and"),
        ("breaker = { cooldown = \"2d\" }", "cooldown = 2d is not between"),
        ("cache_ttl = \"60d\"", "cache_ttl = 60d is not between"),
        ("rate = 5", "unknown setting `rate`"),
    ] {
        let problem = refused(&format!("[sources.ebay]\n{text}\n"));
        assert!(problem.contains(message), "{text}\n{problem}");
    }
    assert!(refused("[sources.\"Two Words\"]\n").contains("source name"), "a name is checked, too");
}
