//! The first page and the pages around the lanes, without a browser: what they cost, what they answer and to whom.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::time::Duration;

use quell::quell_core::event::{Payload, Tenant};
use quell::tokens::Scope;
use reqwest::header::SET_COOKIE;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::board::{cost, counted, fill};
use crate::support::{Reply, World, until};

#[tokio::test]
async fn the_first_page_reads_the_same_whatever_the_number_of_lanes_and_of_visitors() {
    let (world, counted) = counted().await;
    // More than are counted.
    fill(&world, 0..1_100).await;
    let few = cost(&world, &counted, "/").await;
    assert!(few.0 <= 5 && few.1 <= 1_010, "{few:?}");
    let again = cost(&world, &counted, "/").await;
    assert!(again.1 < 10, "the next visitor is shown what was counted a moment ago: {again:?}");
    fill(&world, 1_100..3_000).await;
    let mut many = (0, 0);
    until("lanes are counted again", async || {
        many = cost(&world, &counted, "/").await;
        many.1 >= 1_000
    })
    .await;
    assert_eq!(many, few, "reads and rows");
    for page in ["/ui/sources", "/ui/schedules", "/ui/audit", "/ui/playground"] {
        let (reads, rows) = cost(&world, &counted, page).await;
        assert!(reads <= 3 && rows <= 60, "{page}: {reads} reads, {rows} rows");
    }
}

#[tokio::test]
async fn the_equation_is_shown_with_its_terms_and_lanes_are_counted() {
    let world = World::new().await;
    let window = json!({ "fixed": { "wait_ms": 3_600_000 } });
    let event = json!({ "key": "ada", "payload": 1, "window": window });
    assert_eq!(world.post("/v1/queues/chat/events", event).await.status, 202);
    let page = world.get("/").await.text;
    for part in
        ["All is well", "it adds up", "<b>1</b> accepted", "<b>1</b> buffered", "collecting", "per second"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("role=\"alert\""), "{page}");
}

#[tokio::test]
async fn a_trial_of_the_playground_is_answered_by_the_engine() {
    let world = World::new().await;
    let page = world.get("/ui/playground?arrivals=0+1+9&quiet=2s&max_wait=10s&queue=a.b").await;
    assert_eq!(page.status, StatusCode::OK);
    for part in ["3 events → 2 runs", "it was quiet for long enough", "[queues.&#34;a.b&#34;]"] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    // What makes no sense is told, and never an error of the server.
    for (query, told) in [
        ("window=loud", "quiet, fixed or none"),
        ("quiet=5s&max_wait=1s", "shorter than quiet"),
        ("arrivals=soon", "is no moment"),
        ("quiet=9", "write for example"),
        ("max_events=many", "is a number"),
        ("arrivals=%3Cscript%3E", "&#60;script&#62;"),
    ] {
        let reply = world.get(&format!("/ui/playground?{query}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{query}");
        assert!(reply.text.contains(told) && !reply.text.contains("<script>"), "{query}: {}", reply.text);
    }
    let fragment = Reply::of(world.request(Method::GET, "/ui/playground").header("HX-Request", "true")).await;
    assert!(
        fragment.text.contains("11 events → 3 runs") && !fragment.text.contains("<html"),
        "{}",
        fragment.text
    );
    assert_eq!(world.get("/ui/playground?queue=chat&key=nobody").await.status, StatusCode::NOT_FOUND);
}

/// The cookie of one who is logged in with this token.
async fn cookie(world: &World, token: &str) -> String {
    let request = world.request(Method::POST, "/ui/login").header("Sec-Fetch-Site", "same-origin");
    let form = format!("token={token}&next=%2F");
    let reply =
        request.header("Content-Type", "application/x-www-form-urlencoded").body(form).send().await.unwrap();
    reply.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned()
}

async fn ask(world: &World, method: Method, cookie: &str, path: &str) -> Reply {
    let request =
        world.request(method, path).header("Cookie", cookie).header("Sec-Fetch-Site", "same-origin");
    Reply::of(request).await
}

#[tokio::test]
async fn a_limited_token_sees_and_replays_only_what_is_its_own() {
    let world = World::new().await;
    for tenant in ["acme", "globex"] {
        let payload = Payload::of(&json!(tenant));
        let mut incoming = quell::Incoming::new("chat", &format!("{tenant}-key"), payload).unwrap();
        incoming.lane = incoming.lane.of(Tenant::new(tenant).unwrap());
        world.engine.append(vec![incoming]).await.unwrap();
    }
    let acme = world.token("acme", &[Scope::Operate], &["acme"], &["chat"]).await;
    let acme = cookie(&world, &acme).await;
    let get = async |path: &str| ask(&world, Method::GET, &acme, path).await;
    for path in ["/", "/ui/audit", "/ui/schedules", "/ui/sources"] {
        let page = get(path).await;
        assert!(page.status == StatusCode::OK && !page.text.contains("globex"), "{path}: {}", page.text);
    }
    assert!(get("/").await.text.contains("<b>1</b> accepted"));
    assert_eq!(get("/ui/playground?queue=chat&key=acme-key").await.status, StatusCode::OK);
    for path in
        ["/ui/playground?queue=chat&key=globex-key", "/ui/playground?queue=chat&key=globex-key&tenant=globex"]
    {
        assert_eq!(get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    // Sources govern every queue, and schedules are configuration.
    let post = async |path: &str| ask(&world, Method::POST, &acme, path).await.status;
    assert_ne!(post("/ui/sources/any/disable").await, StatusCode::SEE_OTHER);
    assert_eq!(post("/ui/schedules/any/remove").await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn what_those_who_only_look_are_not_offered_they_may_not_do() {
    let world = World::new().await;
    let rules = quell::quell_core::source::SourceRules::default();
    let name = quell::quell_core::event::SourceName::new("ebay").unwrap();
    world.engine.put_source(name, rules, "test").await.unwrap();
    // Both before anybody asks: a server knows its tokens for two seconds.
    let reader = world.token("reader", &[Scope::Read], &[], &[]).await;
    let hand = world.token("hand", &[Scope::Operate], &[], &[]).await;
    let (reader, hand) = (cookie(&world, &reader).await, cookie(&world, &hand).await);
    let page = ask(&world, Method::GET, &reader, "/ui/sources").await.text;
    assert!(page.contains("ebay") && !page.contains("<button class=\"quiet\" aria-label"), "{page}");
    let disable = "/ui/sources/ebay/disable";
    assert_eq!(ask(&world, Method::POST, &reader, disable).await.status, StatusCode::FORBIDDEN);
    assert_eq!(ask(&world, Method::POST, &hand, disable).await.status, StatusCode::SEE_OTHER);
    let page = ask(&world, Method::GET, &hand, "/").await.text;
    assert!(page.contains("Source ebay is disabled") && page.contains("Needs a look"), "{page}");
    assert_eq!(
        ask(&world, Method::POST, &hand, "/ui/sources/ebay/explode").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        ask(&world, Method::POST, &hand, "/ui/sources/none/reset").await.status,
        StatusCode::NOT_FOUND
    );
    let from_elsewhere =
        world.request(Method::POST, disable).header("Cookie", &hand).header("Sec-Fetch-Site", "cross-site");
    assert_eq!(Reply::of(from_elsewhere).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn rates_are_drawn_once_the_server_has_looked_twice() {
    let world = World::new().await;
    until("a line", async || {
        quell::clock::sleep(Duration::from_millis(100)).await;
        world.get("/").await.text.contains("<path class=\"line\"")
    })
    .await;
}
