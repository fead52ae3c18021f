//! The Browse API: what its pages become, and what each of its traps is taken for.

use std::collections::BTreeMap;
use std::time::Duration;

use quell::quell_core::clock::Timestamp;
use quell::quell_core::source::FaultKind;
use quell_collectors::dedupe::key;
use quell_collectors::found::{Found, PriceType};
use quell_collectors::intake::About;
use quell_collectors::local::{Catalogue, Endpoint, Fault};
use quell_collectors::money::{Currency, Money};
use serde_json::{Value, json};

use crate::world::{World, fault, fixture, morgan, permanent, transient};

/// The items of both fixtures, asked for six at a time as they were recorded.
pub(crate) fn recorded() -> Catalogue {
    let items = ["search_page1.json", "search_page2.json"].map(|name| fixture(name)["itemSummaries"].clone());
    Catalogue::fixed(items.iter().flat_map(|items| items.as_array().unwrap().clone()).collect())
}

pub(crate) fn six(settings: String) -> String {
    settings.replace("adapter = \"ebay\"\n", "adapter = \"ebay\"\nlimit = 6\n")
}

fn exactly(body: &Value) -> Fault {
    Fault::Exactly { status: 200, headers: Vec::new(), body: body.to_string() }
}

/// The items by their places in the fixtures: `p1[0]`.
fn places(items: &[Found]) -> BTreeMap<String, &Found> {
    let place = |at: usize| if at < 6 { format!("p1[{at}]") } else { format!("p2[{}]", at - 6) };
    items.iter().enumerate().map(|(at, found)| (place(at), found)).collect()
}

#[tokio::test]
async fn recorded_pages_give_the_expected_groups_and_prices() {
    let world = World::with(recorded(), six).await;
    let (items, pages) = world.items("ebay", &morgan()).await;
    assert_eq!((items.len(), pages), (11, 2));
    let (items, expected) = (places(&items), fixture("expected.json"));
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let groups: Vec<Vec<String>> =
        expected["groups"].as_array().unwrap().iter().map(|group| texts(&group["items"])).collect();
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), items.len(), "every item is in a group");
    let at = Timestamp::from_millis(1_760_000_000_000);
    let mut keys = BTreeMap::new();
    for group in &groups {
        for item in group {
            keys.entry(key(items[item], at)).or_insert_with(Vec::new).push(item.clone());
        }
    }
    let mut found: Vec<Vec<String>> = keys.into_values().collect();
    let mut groups = groups.clone();
    found.sort();
    groups.sort();
    assert_eq!(found, groups);

    let money = |said: &Value| {
        let currency = Currency::new(said["currency"].as_str().unwrap()).unwrap();
        Money::parse(said["amount"].as_str().unwrap(), currency).unwrap()
    };
    for price in expected["prices"].as_array().unwrap() {
        let item = items[price["item"].as_str().unwrap()];
        assert_eq!(item.price, money(price), "{price}");
        assert_eq!(item.original, price.get("original").map(money), "{price}");
        let kind = price
            .get("kind")
            .map_or(PriceType::Ask, |kind| PriceType::named(kind.as_str().unwrap()).unwrap());
        assert_eq!(item.price_type, kind, "{price}");
    }
    assert_eq!(items["p1[3]"].title, "2024 AMERICAN SILVER EAGLE 1 OZ");
    assert_eq!(items["p1[0]"].date, Some(Timestamp::from_millis(1_759_136_000_000)));
}

#[tokio::test]
async fn nothing_found_and_warnings_are_no_errors() {
    let world = World::new(Catalogue::fixed(Vec::new())).await;
    let page = world.page("ebay", &morgan(), None).await.unwrap();
    assert_eq!((page.items.len(), page.skipped, page.next), (0, 0, None));
    world.market.fail_next(Endpoint::Search, exactly(&fixture("search_empty.json")));
    assert_eq!(world.page("ebay", &morgan(), None).await.unwrap().items, []);
    world.market.fail_next(Endpoint::Search, exactly(&fixture("search_with_warnings.json")));
    let page = world.page("ebay", &morgan(), None).await.unwrap();
    assert_eq!((page.items.len(), page.next), (1, None));
}

#[tokio::test]
async fn pages_are_counted_and_end_with_the_total_or_the_reach() {
    let world = World::with(Catalogue::generated(33), |settings| {
        settings.replace("\"ebay\"\n", "\"ebay\"\nlimit = 10\n")
    })
    .await;
    // 33 listings and every third again: 44.
    let (items, pages) = world.items("ebay", &morgan()).await;
    assert_eq!((items.len(), pages), (44, 5));
    let from: Vec<u64> = world
        .market
        .asked()
        .iter()
        .filter(|asked| asked.endpoint == Endpoint::Search)
        .map(|asked| asked.from)
        .collect();
    assert_eq!(from, [0, 10, 20, 30, 40]);

    let item = json!({"legacyItemId": "1", "title": "A", "price": {"value": "1.00", "currency": "USD"}});
    let page = |count: usize, more: Value| {
        let mut page =
            json!({"itemSummaries": vec![item.clone(); count], "next": "https://evil.example/next"});
        page.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        page
    };
    for (from, answer, next) in [
        // Ten thousand results are in reach, however many there are.
        ("9980", page(10, json!({"total": 50_000})), Some("9990")),
        ("9990", page(10, json!({"total": 50_000})), None),
        // The link to the next page is nobody's word.
        ("0", page(10, json!({"total": 10})), None),
        // Without a total, a page that is not full is the last one.
        ("0", page(9, json!({})), None),
        ("0", page(10, json!({})), Some("10")),
        // A server that gives fewer at a time counts by that.
        ("0", page(5, json!({"total": 20, "limit": 5})), Some("5")),
        ("0", page(10, json!({"total": 20, "limit": 0})), Some("10")),
        ("0", page(0, json!({"total": 20})), None),
    ] {
        world.market.fail_next(Endpoint::Search, exactly(&answer));
        let page = world.page("ebay", &morgan(), Some(from)).await.unwrap();
        assert_eq!(page.next.as_deref(), next, "{from} {answer}");
    }
    let said = permanent(world.page("ebay", &morgan(), Some("https://evil.example")).await);
    assert!(said.contains("is no place of a page"), "{said}");
}

#[tokio::test]
async fn a_search_says_what_and_who_and_leaves_nothing_open() {
    let world = World::with(Catalogue::generated(1), |settings| {
        settings.replace(
            "adapter = \"ebay\"\n",
            "adapter = \"ebay\"\nquery = \"{series} & {grade?}{year}\"\ncontact = \"coins@example.org\"\n",
        )
    })
    .await;
    world.page("ebay", &morgan(), None).await.unwrap();
    let asked = world.market.asked();
    assert_eq!(asked.last().unwrap().query, "Morgan Dollar & 1881");
    assert!(asked.iter().all(|asked| asked.user_agent.starts_with("quell/")), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.user_agent.ends_with("(coins@example.org)")), "{asked:?}");
    let requests = asked.len();
    let said = permanent(world.page("ebay", &About { year: None, ..morgan() }, None).await);
    assert!(said.contains("there is no value for {year}"), "{said}");
    assert_eq!(world.market.asked().len(), requests, "nobody was asked");
}

#[tokio::test]
async fn faults_of_the_source_are_told_with_what_it_says_of_them() {
    let world = World::new(recorded()).await;
    world.market.fail_next(Endpoint::Search, Fault::TooMany(Some(Duration::from_secs(7))));
    let (kind, wait, text) = fault(world.page("ebay", &morgan(), None).await);
    assert_eq!((kind, wait), (FaultKind::TooManyRequests, Some(Duration::from_secs(7))));
    assert!(text.contains("429") && text.ends_with("2001 Too many requests."), "{text}");
    world.engine.reset_source(scope("ebay"), "test").await.unwrap();
    world.market.fail_next(Endpoint::Search, Fault::ServerError);
    let (kind, wait, text) = fault(world.page("ebay", &morgan(), None).await);
    assert_eq!((kind, wait), (FaultKind::ServerError, None));
    assert!(text.ends_with("12000 Internal error"), "{text}");
    world.market.fail_next(Endpoint::Search, Fault::Lost);
    assert_eq!(fault(world.page("ebay", &morgan(), None).await).0, FaultKind::Connection);
    assert_eq!(world.governed("ebay").await.failure_streak, 2);
    world.page("ebay", &morgan(), None).await.unwrap();
    assert_eq!(world.governed("ebay").await.failure_streak, 0);
}

fn scope(name: &str) -> quell::quell_core::store::SourceScope {
    quell::quell_core::store::SourceScope {
        tenant: quell::quell_core::event::Tenant::none(),
        name: quell::quell_core::event::SourceName::new(name).unwrap(),
    }
}

#[tokio::test]
async fn a_silent_source_is_at_fault_after_its_time() {
    let world =
        World::with(recorded(), |settings| settings.replace("\"ebay\"\n", "\"ebay\"\ntimeout = \"300ms\"\n"))
            .await;
    world.page("ebay", &morgan(), None).await.unwrap();
    world.market.fail_next(Endpoint::Search, Fault::Silent);
    assert_eq!(fault(world.page("ebay", &morgan(), None).await).0, FaultKind::TimeOut);
}

#[tokio::test]
async fn what_cannot_be_right_is_permanent_and_what_broke_off_is_not() {
    let world = World::new(recorded()).await;
    for (trap, problem) in [
        (Fault::Redirect("https://login.example/?next=x".into()), "leads to login.example"),
        (Fault::Nan, "NaN or Infinity in the place of a number"),
        (Fault::NanText, "\"NaN\" is no price"),
        (Fault::Price("-31.50".into()), "\"-31.50\" is no price"),
        (Fault::Price("3.15e1".into()), "\"3.15e1\" is no price"),
        (Fault::Price("31,50".into()), "\"31,50\" is no price"),
        (Fault::Currency("EUR".into()), "in EUR, and the source is declared to be in USD"),
        (exactly(&json!([])), "no result of a search"),
        (exactly(&json!({"itemSummaries": {}})), "no result of a search"),
        (
            Fault::Exactly { status: 400, headers: Vec::new(), body: fixture("err_500.json").to_string() },
            "400 Bad Request: 12000 Internal error",
        ),
        (
            Fault::Exactly { status: 403, headers: Vec::new(), body: "<html>".into() },
            "answered 403 Forbidden",
        ),
        (Fault::Exactly { status: 404, headers: Vec::new(), body: String::new() }, "answered 404 Not Found"),
    ] {
        world.market.fail_next(Endpoint::Search, trap.clone());
        let said = permanent(world.page("ebay", &morgan(), None).await);
        assert!(said.contains(problem), "{trap:?}: {said}");
    }
    for trap in [
        Fault::NotJson,
        Fault::Half,
        Fault::Exactly { status: 200, headers: Vec::new(), body: String::new() },
        Fault::Exactly { status: 408, headers: Vec::new(), body: String::new() },
    ] {
        world.market.fail_next(Endpoint::Search, trap.clone());
        let said = transient(world.page("ebay", &morgan(), None).await);
        assert!(!said.contains('<'), "{trap:?}: {said}");
        assert!(world.page("ebay", &morgan(), None).await.is_ok(), "{trap:?}: the next try is answered");
    }
}
