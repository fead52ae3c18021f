//! `[prices]`: what it becomes, what it does to queues and sources, and what is refused.

use std::time::Duration;

use quell_core::event::SourceName;
use quell_core::window::WindowPolicy;

use super::tests::{queue, refused, resolve, settings};
use super::*;

/// A description with nothing but what it needs.
const SHOP: &str = "[prices.sources.shop]\nurl = \"https://shop.example/s?q={query}\"\nitems = \"/items\"\n\
    fields = { id = \"/id\", title = \"/t\", price = \"/p\" }\nprice_type = \"ask\"\ncurrency = \"EUR\"\n";
const EBAY: &str =
    "[prices.sources.ebay]\nadapter = \"ebay\"\nclient_id_env = \"ID\"\nclient_secret_file = \"s\"\n";

fn source(settings: &Settings, name: &str) -> Arc<PriceSourceSettings> {
    settings.prices.as_ref().unwrap().sources[&SourceName::new(name).unwrap()].clone()
}

fn json(settings: &Settings) -> JsonSourceSettings {
    match &source(settings, "shop").adapter {
        AdapterSettings::Json(json) => (**json).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_section_has_the_defaults_of_the_contract() {
    let settings = settings(&format!("{SHOP}{EBAY}"));
    let prices = settings.prices.as_ref().unwrap();
    let day = Duration::from_secs(24 * 3600);
    assert_eq!(
        (prices.currency.as_str(), prices.value.half_life, prices.value.max_age),
        ("USD", day * 90, day * 365)
    );
    assert_eq!(prices.value.types, [PriceType::Sold, PriceType::Ask]);
    let shop = source(&settings, "shop");
    assert_eq!((shop.currency.as_deref(), shop.max_pages, shop.timeout.as_secs()), (Some("EUR"), 5, 20));
    assert_eq!((shop.matching.year, shop.matching.min_strength), (30, 50));
    assert!(json(&settings).robots, "nobody has said that its terms were accepted");
    assert_eq!(json(&settings).paging, Paging::None { size: None });
    let AdapterSettings::Ebay(ebay) = &source(&settings, "ebay").adapter else { panic!() };
    assert_eq!(
        (ebay.url.as_str(), ebay.marketplace.as_str(), ebay.limit),
        ("https://api.ebay.com", "EBAY_US", 100)
    );
    assert_eq!(ebay.client_id, SecretSource::Env("ID".into()));
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn its_queues_are_those_of_the_application() {
    let settings = settings(SHOP);
    let (collect, trial, value) =
        (queue(&settings, COLLECT), queue(&settings, COLLECT_TEST), queue(&settings, COLLECT_VALUE));
    for queue in [&collect, &trial] {
        assert_eq!((queue.append.window.policy, queue.append.window.max_events), (WindowPolicy::None, 1));
    }
    assert_eq!((collect.run.lease, collect.retry.attempts), (Duration::from_secs(300), 10));
    assert_eq!(trial.retry.attempts, 1);
    let (quiet, max_wait) = (Duration::from_secs(2), Duration::from_secs(20));
    assert_eq!(value.append.window.policy, WindowPolicy::Quiet { quiet, max_wait });
    for queue in [collect, trial, value] {
        assert_eq!(queue.handler, HandlerSettings::App);
    }
    let problem = refused(&format!("{SHOP}[queues.collect]\nmax_events = 5\n"));
    assert!(problem.contains("max_events = 5") && problem.contains("a run of its own"), "{problem}");
}

#[test]
fn without_the_section_the_names_are_anybodys() {
    let settings = settings("[queues.collect]\nmax_events = 5\n[queues.\"collect.value\"]\n");
    let (collect, value) = (queue(&settings, COLLECT), queue(&settings, COLLECT_VALUE));
    assert_eq!((&collect.handler, collect.append.window.max_events), (&HandlerSettings::Log, 5));
    assert_eq!(
        (value.handler.clone(), collect.append.window.policy),
        (HandlerSettings::Log, value.append.window.policy)
    );
    assert!(settings.prices.is_none() && settings.sources.is_empty());
}

#[test]
fn a_source_that_nobody_declared_is_declared_with_what_its_adapter_needs() {
    let rules = |settings: &Settings, name: &str| {
        settings.sources.iter().find(|source| source.name.as_str() == name).unwrap().rules
    };
    let own = settings(&format!("{SHOP}{EBAY}"));
    assert_eq!((rules(&own, "ebay").per_minute, rules(&own, "ebay").burst), (Some(3), 100));
    assert_eq!(rules(&own, "shop"), quell_core::source::SourceRules::default());
    let declared = settings(&format!("{EBAY}[sources.ebay]\nrate_limit_per_minute = 60\n"));
    assert_eq!((rules(&declared, "ebay").per_minute, declared.sources.len()), (Some(60), 1));
    let uncached = resolve(Some(SHOP), &[("CACHE_ENABLED", "false")], Flags::default()).unwrap();
    assert_eq!(rules(&uncached, "shop").cache_ttl, None, "the older name concerns these, too");
}

#[test]
fn pages_are_turned_as_described() {
    let paged = |paging: &str, more: &str| {
        let text = SHOP.replace("{query}", &format!("{{query}}{more}"));
        json(&settings(&format!("{text}paging = {paging}\n"))).paging
    };
    let total = crate::pointer::Pointer::parse("/total").unwrap();
    assert_eq!(
        paged("{ by = \"page\", size = 50, total = \"/total\" }", "&p={page}&n={limit}"),
        Paging::Page { first: 1, size: Some(50), total: Some(total.clone()) }
    );
    assert_eq!(
        paged("{ by = \"offset\", first = 10, size = 50 }", "&o={offset}"),
        Paging::Offset { first: 10, size: 50, total: None }
    );
    let next = paged("{ by = \"next\", next = \"/total\" }", "");
    assert_eq!(next, Paging::Next { pointer: total, size: None });
}

#[test]
fn what_cannot_work_is_refused_at_its_place() {
    let shop = |from: &str, to: &str| {
        assert!(SHOP.contains(from), "{from}");
        SHOP.replace(from, to)
    };
    let more = |more: &str| format!("{SHOP}{more}\n");
    for (text, message) in [
        (shop("{query}", "{query"), "quell.toml:2:7: a { is not closed"),
        (shop("shop.example", "{title}.example"), "would decide who is asked"),
        (shop("https://shop.example", "ftp://shop.example"), "does not begin with http:// or https://"),
        (shop("https://shop.example/", "https://shop.example:22/"), "port 22 belongs to another protocol"),
        (shop("url = \"https://shop.example/s?q={query}\"\n", ""), "the source \"shop\" has no url"),
        (shop("\"/items\"", "\"items\""), "quell.toml:3:9: \"items\" is no JSON pointer"),
        (shop("\"/p\"", "\"/p~\""), "is no JSON pointer"),
        (shop("id = \"/id\", ", ""), "nothing tells the items of \"shop\" apart"),
        (shop("title = \"/t\", ", ""), "has no fields.title"),
        (shop(", price = \"/p\"", ""), "has no fields.price"),
        (shop("price_type = \"ask\"\n", ""), "nothing says what the prices of \"shop\" are"),
        (shop("\"ask\"", "\"asks\""), "did you mean \"ask\"?"),
        (shop("currency = \"EUR\"\n", ""), "nothing says which currency"),
        (shop("\"EUR\"", "\"€\""), "\"€\" is no currency"),
        (shop("{query}", "{query}&p={page}"), "{page} has no value with paging by \"none\""),
        (shop("{query}", "{query}&n={limit}"), "{limit} has no value without paging.size"),
        (more("paging = { by = \"page\" }"), "every page has the same address"),
        (more("paging = { by = \"next\" }"), "paging by \"next\" has no next"),
        (more("paging = { by = \"pages\" }"), "did you mean \"page\"?"),
        (more("paging = { total = \"/n\" }"), "paging.total says nothing with paging by \"none\""),
        (more("paging = { size = 5000 }"), "size = 5000 is not between 1 and 500"),
        (more("headers = { \"X-Key\" = \"{secret}\" }"), "nothing says where the secret is found"),
        (more("secret_env = \"KEY\""), "the secret is used by no header"),
        (more("headers = { \"User-Agent\" = \"Mozilla\" }"), "\"User-Agent\" is no header that can be set"),
        (more("headers = { \"X-Key\" = \"{year}\" }"), "{secret} is the only value there"),
        (more("headers = { \"X-Key\" = \"a\\nb\" }"), "without control characters"),
        (more("types = { A = \"ask\" }"), "no item says of which type it is"),
        (more("max_pages = 0"), "max_pages = 0 is not between 1 and 25"),
        (more("contact = \"me (at home)\""), "cannot stand in a header"),
        (more("match = { require = [\"yaer\"] }"), "did you mean \"year\"?"),
        (
            more("match = { year = 0, mintmark = 0, denomination = 0, series = 0, title = 0 }"),
            "all weights are 0",
        ),
        (more("match = { min_strength = 101 }"), "min_strength = 101 is not between 0 and 100"),
        (more("limit = 5"), "limit is for the adapter \"ebay\""),
        (more("colour = 1"), "unknown setting `colour`"),
        (format!("{EBAY}items = \"/x\"\n"), "items is for the adapter \"json\""),
        (format!("{EBAY}paging = {{ size = 5 }}\n"), "paging is for the adapter \"json\""),
        (format!("{EBAY}query = \"{{page}}\"\n"), "pages are turned by the adapter"),
        (format!("{EBAY}limit = 201\n"), "limit = 201 is not between 1 and 200"),
        (format!("{EBAY}category_ids = [\"coins\"]\n"), "\"coins\" is no category"),
        (format!("{EBAY}marketplace = \"us\"\n"), "\"us\" is no marketplace"),
        (EBAY.replace("client_id_env = \"ID\"\n", ""), "has no client_id"),
        (EBAY.replace("\"ID\"", "\"my id\""), "is not a variable name"),
        (EBAY.replace("\"ebay\"\n", "\"amazon\"\n"), "adapter = \"amazon\" is not known"),
        ("[prices]\ncurrency = \"usd\"\n".into(), "\"usd\" is no currency"),
        ("[prices]\nvalue = { types = [] }\n".into(), "no price would ever count"),
        ("[prices]\nvalue = { half_life = \"1s\" }\n".into(), "is not between 1h and 3650d"),
        ("[prices.sources.\"a:b\"]\n".into(), "quell.toml:1:"),
    ] {
        let problem = refused(&text);
        assert!(problem.contains(message), "{text}\n{problem}");
    }
}

#[test]
fn what_is_suspicious_is_said_and_secrets_are_never_shown() {
    let text = SHOP.replace("{query}", "{yaer}&g={grade?}").replace("https:", "http:");
    let text = format!(
        "{text}secret_env = \"KEY\"\nheaders = {{ A = \"Bearer {{secret}}\", B = \"pasted-key\" }}\n"
    );
    let settings = settings(&text);
    let warnings = settings.warnings.join("\n");
    assert!(warnings.contains("{yaer} is expected from query_params; did you mean {year}?"), "{warnings}");
    assert!(warnings.contains("sent over plain http") && !warnings.contains("grade"), "{warnings}");
    let shown = format!("{:?}", settings.explain());
    assert!(shown.contains("Bearer {secret}") && !shown.contains("pasted-key"), "{shown}");
}
