//! A service that answers with JSON, as its description says, and everything that it can do otherwise.

use std::time::Duration;

use quell::quell_core::source::FaultKind;
use quell_collectors::found::{Found, PriceType};
use quell_collectors::intake::About;
use quell_collectors::local::{Catalogue, Endpoint, Fault, Listing};
use quell_collectors::money::{Currency, Money};
use serde_json::{Value, json};

use crate::world::{World, fault, morgan, permanent, transient};

const PAGING: &str = "paging = { by = \"page\", size = 20, total = \"/total\" }";
const PAGED: &str = "&page={page}&limit={limit}";

fn paged(paging: &'static str, places: &'static str) -> impl Fn(String) -> String {
    move |settings| {
        assert!(settings.contains(PAGING) && settings.contains(PAGED), "{settings}");
        settings.replace(PAGING, paging).replace(PAGED, places)
    }
}

fn exactly(body: &Value) -> Fault {
    Fault::Exactly { status: 200, headers: Vec::new(), body: body.to_string() }
}

fn one(id: u32, price: &str) -> Value {
    json!({"sku": id, "name": "1881-S Morgan Dollar", "price": {"amount": price, "currency": "USD"}, "state": "BUY_NOW"})
}

#[tokio::test]
async fn every_way_to_turn_pages_reads_the_same_items_once() {
    let (mut first, mut counts) = (None::<Vec<Found>>, Vec::new());
    for (paging, places) in [
        (PAGING, PAGED),
        ("paging = { by = \"page\", size = 20 }", PAGED),
        ("paging = { by = \"offset\", size = 20, total = \"/total\" }", "&offset={offset}&limit={limit}"),
        ("paging = { by = \"offset\", size = 20 }", "&offset={offset}&limit={limit}"),
        ("paging = { by = \"next\", next = \"/next\", size = 20 }", "&limit={limit}"),
        ("paging = { size = 500 }", "&limit={limit}"),
    ] {
        let world = World::with(Catalogue::generated(45), paged(paging, places)).await;
        // 45 listings and every third again: 60, so that the third page is full and nobody is told that it is the last.
        let (items, pages) = world.items("shop", &morgan()).await;
        assert_eq!(items.len(), 60, "{paging}");
        counts.push(pages);
        let plain: Vec<Found> = items.into_iter().map(|found| Found { date: None, ..found }).collect();
        assert_eq!(&plain, first.get_or_insert(plain.clone()), "{paging}");
    }
    assert_eq!(counts, [3, 4, 3, 4, 3, 1], "without a total only an empty page is the end");
}

#[tokio::test]
async fn an_item_is_what_the_description_says() {
    let listed = Catalogue::of(|query, opened| {
        let mut made = Catalogue::generated(5).listings(query, opened);
        if let Some(Listing::Made(made)) = made.first_mut() {
            made.price = "1234567890.10".into();
        }
        made
    });
    let world = World::new(listed).await;
    let (items, _) = world.items("shop", &morgan()).await;
    assert_eq!(items[0].price, Money { cents: 123_456_789_010, currency: Currency::USD });
    assert_eq!(
        (items[0].title.as_str(), items[0].price_type),
        ("1881 S Morgan Dollar no. 1", PriceType::Ask)
    );
    assert_eq!((items[3].external_id.as_deref(), items[4].price_type), (None, PriceType::Bid));
    let url = items[3].url.as_deref().unwrap();
    assert!(url.starts_with("https://shop.example.com/c/"), "{url}");
    assert!(items[0].date.is_some() && items[0].external_id.is_some());
    let asked = world.market.asked();
    assert_eq!(asked.last().unwrap().query, "1881 S Morgan Dollar");
    assert!(asked.iter().all(|asked| asked.user_agent.starts_with("quell/")), "{asked:?}");
}

#[tokio::test]
async fn a_template_without_a_value_asks_nobody() {
    let world = World::with(Catalogue::generated(1), |settings| {
        settings.replace("q={query}", "q={series}&mint={mintmark?}&grade={grade?}&y={year}")
    })
    .await;
    let said = permanent(world.page("shop", &About { year: None, ..morgan() }, None).await);
    assert!(said.contains("there is no value for {year}"), "{said}");
    assert_eq!(world.market.asked(), []);
    assert!(world.page("shop", &About { mintmark: None, ..morgan() }, None).await.is_ok());
}

#[tokio::test]
async fn a_value_is_never_more_than_a_value() {
    let world = World::new(Catalogue::generated(1)).await;
    let title = "x&limit=1#frag/../../robots.txt?q=%00 ä";
    let about = About { title: Some(title.into()), ..About::default() };
    world.page("shop", &about, None).await.unwrap();
    assert_eq!(world.market.asked().last().unwrap().query, title);
}

#[tokio::test]
async fn a_link_to_another_host_is_not_followed() {
    let next = paged("paging = { by = \"next\", next = \"/next\" }", "");
    let world = World::with(Catalogue::generated(1), next).await;
    for (link, problem) in [
        (json!("http://evil.example/shop/search"), "leads to evil.example"),
        (json!("//127.0.0.2/shop/search"), "leads to 127.0.0.2"),
        (json!(""), ""),
        (json!(null), ""),
        (json!({"href": "/x"}), "is no link"),
    ] {
        let answer = json!({"results": [one(1, "1.00")], "next": link});
        world.market.fail_next(Endpoint::Shop, exactly(&answer));
        let page = world.page("shop", &morgan(), None).await;
        match problem {
            "" => assert_eq!(page.unwrap().next, None, "{link}"),
            problem => {
                let said = permanent(page);
                assert!(said.contains(problem), "{link}: {said}");
            }
        }
    }
}

#[tokio::test]
async fn items_without_what_a_point_needs_are_counted() {
    let world = World::new(Catalogue::generated(1)).await;
    let mut items = vec![one(1, "1.00")];
    for (place, value) in
        [("/sku", Value::Null), ("/name", "".into()), ("/price/amount", Value::Null), ("/state", Value::Null)]
    {
        let mut item = one(2, "1.00");
        *item.pointer_mut(place).unwrap() = value;
        items.push(item);
    }
    items.push(one(3, "0.00"));
    items.push(Value::Null);
    world.market.fail_next(Endpoint::Shop, exactly(&json!({"results": items})));
    let page = world.page("shop", &morgan(), None).await.unwrap();
    assert_eq!((page.items.len(), page.skipped), (1, 6));
    // No page grows without end, and what is left out is counted.
    let many: Vec<Value> = (0..2_000).map(|id| one(id, "1.00")).collect();
    world.market.fail_next(Endpoint::Shop, exactly(&json!({"results": many})));
    let page = world.page("shop", &morgan(), None).await.unwrap();
    assert_eq!((page.items.len(), page.skipped), (500, 1_500));
}

#[tokio::test]
async fn what_cannot_be_right_is_permanent_and_what_broke_off_is_not() {
    let world = World::new(Catalogue::generated(5)).await;
    let status = |status: u16| Fault::Exactly { status, headers: Vec::new(), body: "{}".into() };
    for (trap, problem) in [
        (Fault::Redirect("https://login.example/?next=x".into()), "302 Found and leads to login.example"),
        (Fault::Redirect("/elsewhere".into()), "leads to 127.0.0.1"),
        (Fault::Exactly { status: 301, headers: Vec::new(), body: String::new() }, "an unknown place"),
        (Fault::Nan, "NaN or Infinity in the place of a number"),
        (Fault::NanText, "\"NaN\" is no price"),
        (Fault::Price("#num:-31.50".into()), "\"-31.50\" is no price"),
        (Fault::Price("#num:3.15e1".into()), "\"3.15e1\" is no price"),
        (Fault::Price("#num:31.505".into()), "more decimals than USD"),
        (Fault::Price("#num:1234567890123456789012".into()), "\"1234567890123456789012\" is larger"),
        (Fault::Currency("$".into()), "\"$\" is no currency"),
        (exactly(&json!({"items": []})), "no list of items at \"/results\""),
        (exactly(&json!({"results": {}})), "no list of items at \"/results\""),
        (status(400), "answered 400 Bad Request"),
        (status(401), "answered 401 Unauthorized"),
        (status(404), "answered 404 Not Found"),
        (status(410), "answered 410 Gone"),
    ] {
        world.market.fail_next(Endpoint::Shop, trap.clone());
        let said = permanent(world.page("shop", &morgan(), None).await);
        assert!(said.contains(problem), "{trap:?}: {said}");
    }
    for trap in [Fault::NotJson, Fault::Half, status(408), status(425)] {
        world.market.fail_next(Endpoint::Shop, trap.clone());
        let said = transient(world.page("shop", &morgan(), None).await);
        assert!(!said.contains('<'), "{trap:?}: {said}");
        assert!(world.page("shop", &morgan(), None).await.is_ok(), "{trap:?}: the next try is answered");
    }
    world.market.fail_next(Endpoint::Shop, status(204));
    assert_eq!(world.page("shop", &morgan(), None).await.unwrap().items, []);
}

#[tokio::test]
async fn the_currency_is_declared_or_said() {
    let declared = |settings: String| {
        settings.replace("[prices.sources.shop]\n", "[prices.sources.shop]\ncurrency = \"USD\"\n")
    };
    let world = World::with(Catalogue::generated(5), declared).await;
    world.market.fail_next(Endpoint::Shop, Fault::Currency("EUR".into()));
    let said = permanent(world.page("shop", &morgan(), None).await);
    assert!(said.contains("in EUR, and the source is declared to be in USD"), "{said}");
    let world = World::new(Catalogue::generated(5)).await;
    world.market.fail_next(Endpoint::Shop, Fault::Currency("EUR".into()));
    let page = world.page("shop", &morgan(), None).await.unwrap();
    assert_eq!(page.items[0].price.currency.as_str(), "EUR", "each item says it");
}

#[tokio::test]
async fn faults_of_the_source_are_the_governed_clients_to_tell() {
    let world = World::with(Catalogue::generated(5), |settings| {
        settings.replace("[prices.sources.shop]\n", "[prices.sources.shop]\ntimeout = \"300ms\"\n")
    })
    .await;
    for (trap, kind) in [
        (Fault::Unavailable(Duration::from_secs(9)), FaultKind::ServerError),
        (Fault::TooMany(None), FaultKind::TooManyRequests),
        (Fault::Lost, FaultKind::Connection),
        (Fault::Silent, FaultKind::TimeOut),
    ] {
        let scope = quell::quell_core::store::SourceScope {
            tenant: quell::quell_core::event::Tenant::none(),
            name: quell::quell_core::event::SourceName::new("shop").unwrap(),
        };
        world.market.fail_next(Endpoint::Shop, trap.clone());
        let (found, wait, text) = fault(world.page("shop", &morgan(), None).await);
        assert_eq!(found, kind, "{trap:?}: {text}");
        let expected = matches!(trap, Fault::Unavailable(_)).then_some(Duration::from_secs(9));
        assert_eq!(wait, expected, "{trap:?}");
        world.engine.reset_source(scope, "test").await.unwrap();
    }
}
