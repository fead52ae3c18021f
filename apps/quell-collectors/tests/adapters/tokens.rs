//! Tokens of eBay: one for all, renewed in time, and never seen.

use std::sync::Arc;

use quell::quell_core::source::FaultKind;
use quell_collectors::adapter::{AdapterError, Page};
use quell_collectors::local::{Catalogue, Endpoint, Fault, LocalMarket};
use serde_json::json;

use crate::world::{World, fault, morgan, permanent};

async fn many(world: &Arc<World>, count: usize) -> Vec<Result<Page, AdapterError>> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move { world.page("ebay", &morgan(), None).await })
        })
        .collect();
    let mut pages = Vec::new();
    for task in tasks {
        pages.push(task.await.unwrap());
    }
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn one_token_serves_twenty_pages_at_once() {
    let world = Arc::new(World::new(Catalogue::generated(3)).await);
    world.market.fail_next(Endpoint::Token, Fault::Slow(std::time::Duration::from_millis(200)));
    assert!(many(&world, 20).await.iter().all(Result::is_ok));
    assert_eq!((world.market.count(Endpoint::Token), world.market.count(Endpoint::Search)), (1, 20));
    // One that was withdrawn is replaced once, by whoever comes first.
    world.market.withdraw_tokens();
    assert!(many(&world, 20).await.iter().all(Result::is_ok));
    assert_eq!(world.market.count(Endpoint::Token), 2);
}

#[tokio::test]
async fn a_second_refusal_is_one() {
    let world = World::new(Catalogue::generated(3)).await;
    world.market.fail_next(Endpoint::Search, Fault::Unauthorized);
    assert!(
        world.page("ebay", &morgan(), None).await.is_ok(),
        "the first refusal is answered with a new token"
    );
    world.market.fail_next(Endpoint::Search, Fault::Unauthorized);
    world.market.fail_next(Endpoint::Search, Fault::Unauthorized);
    let said = permanent(world.page("ebay", &morgan(), None).await);
    assert_eq!(said, "the source answered 401 Unauthorized: 1001 Invalid access token");
    assert_eq!((world.market.count(Endpoint::Token), world.market.count(Endpoint::Search)), (3, 4));
}

#[tokio::test]
async fn a_token_is_renewed_before_its_time_is_over() {
    let world = World::new(Catalogue::generated(3)).await;
    let short = |number: u32, life: u64| Fault::Exactly {
        status: 200,
        headers: Vec::new(),
        body: json!({"access_token": format!("v^1.1#local#{number}"), "expires_in": life}).to_string(),
    };
    world.market.fail_next(Endpoint::Token, short(1, 0));
    world.page("ebay", &morgan(), None).await.unwrap();
    assert_eq!(world.market.count(Endpoint::Token), 1);
    world.page("ebay", &morgan(), None).await.unwrap();
    assert_eq!(world.market.count(Endpoint::Token), 2, "the market would still have taken the first one");
    world.page("ebay", &morgan(), None).await.unwrap();
    assert_eq!(world.market.count(Endpoint::Token), 2, "the second one lives for two hours");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_told_and_not_tried_by_every_lane() {
    let wrong = |settings: String| settings.replace("\"LOCAL_EBAY_SECRET\"", "\"LOCAL_SHOP_KEY\"");
    let world = Arc::new(World::with(Catalogue::generated(3), wrong).await);
    for page in many(&world, 8).await {
        let said = permanent(page);
        assert!(said.contains("no token for the source") && said.contains("invalid_client"), "{said}");
    }
    assert_eq!((world.market.count(Endpoint::Token), world.market.count(Endpoint::Search)), (1, 0));
}

#[tokio::test]
async fn a_place_of_tokens_that_is_away_is_the_sources_fault() {
    let world = World::new(Catalogue::generated(3)).await;
    world.market.fail_next(Endpoint::Token, Fault::ServerError);
    let (kind, _, text) = fault(world.page("ebay", &morgan(), None).await);
    assert_eq!(kind, FaultKind::ServerError, "{text}");
    assert_eq!(world.governed("ebay").await.failure_streak, 1);
    assert!(world.page("ebay", &morgan(), None).await.is_ok());
    for (trap, problem) in [
        (
            Fault::Exactly { status: 200, headers: Vec::new(), body: "{\"expires_in\": 3}".into() },
            "no access_token",
        ),
        (Fault::Redirect("/login".into()), "302 Found"),
        (
            Fault::Exactly { status: 200, headers: Vec::new(), body: "{\"access_token\": \"a\\nb\"}".into() },
            "no access_token",
        ),
    ] {
        let world = World::new(Catalogue::generated(3)).await;
        world.market.fail_next(Endpoint::Token, trap.clone());
        let said = permanent(world.page("ebay", &morgan(), None).await);
        assert!(said.contains(problem), "{trap:?}: {said}");
    }
}

#[tokio::test]
async fn no_error_shows_a_secret() {
    let [id, secret, key] = LocalMarket::env().map(|(_, value)| value);
    // What each of them was sent: the shop its key, eBay the credentials and then a token, or two.
    let sent = |endpoint: Endpoint, status: u16| match endpoint {
        Endpoint::Shop | Endpoint::Robots => vec![key],
        Endpoint::Token => vec![id, secret],
        Endpoint::Search if status == 401 => vec![id, secret, "v^1.1#local#2"],
        Endpoint::Search => vec![id, secret, "v^1.1#local#1"],
    };
    for endpoint in [Endpoint::Token, Endpoint::Search, Endpoint::Shop] {
        for status in [200, 302, 400, 401, 403, 429, 500] {
            let sent = sent(endpoint, status);
            let all = format!("you sent {}", sent.join(" and "));
            let body = json!({
                "errors": [{"errorId": 1, "message": all}], "error": "invalid_client", "error_description": all,
                "message": all,
            });
            let headers = vec![("location".into(), format!("/{secret}"))];
            let echo = Fault::Exactly { status, headers, body: body.to_string() };
            let world = World::new(Catalogue::generated(3)).await;
            world.market.fail_always(endpoint, Some(echo));
            let source = if endpoint == Endpoint::Shop { "shop" } else { "ebay" };
            let shown = match world.page(source, &morgan(), None).await {
                // A search whose answer has no items has found nothing.
                Ok(page) => format!("{page:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            for secret in sent {
                assert!(!shown.contains(secret), "{endpoint:?} {status}: {shown}");
            }
            let told = endpoint != Endpoint::Shop && status >= 400;
            assert_eq!(shown.contains("[redacted]"), told, "{endpoint:?} {status}: {shown}");
        }
    }
}
