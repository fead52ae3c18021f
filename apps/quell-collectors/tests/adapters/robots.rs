//! `robots.txt` of a described source: obeyed, read once, and out of the way where its terms were accepted.

use quell::quell_core::source::FaultKind;
use quell_collectors::live;
use quell_collectors::local::{Catalogue, Endpoint, Fault};

use crate::world::{World, env, fault, morgan, permanent};

#[tokio::test]
async fn what_a_host_forbids_is_not_asked_for() {
    let world = World::new(Catalogue::generated(3)).await;
    world.market.behave(|market| market.robots = Some("user-agent: quell\ndisallow: /shop/\n".into()));
    let said = permanent(world.page("shop", &morgan(), None).await);
    assert!(
        said.contains("robots.txt of 127.0.0.1 forbids quell") && said.contains("robots = false"),
        "{said}"
    );
    assert_eq!((world.market.count(Endpoint::Robots), world.market.count(Endpoint::Shop)), (1, 0));
}

#[tokio::test]
async fn the_file_is_read_once_for_all_runs_and_processes() {
    let mut world = World::new(Catalogue::generated(3)).await;
    for _ in 0..3 {
        world.page("shop", &morgan(), None).await.unwrap();
    }
    assert_eq!(world.market.count(Endpoint::Robots), 1);
    // Another process has sources of its own, and the same store.
    let other = live::sources(world.engine.settings().prices.as_ref().unwrap(), &env()).unwrap();
    world.sources = other;
    world.page("shop", &morgan(), None).await.unwrap();
    assert_eq!(world.market.count(Endpoint::Robots), 1);
    let asked = world.market.asked();
    let robots = asked.iter().find(|asked| asked.endpoint == Endpoint::Robots).unwrap();
    assert!(robots.user_agent.starts_with("quell/"));
}

#[tokio::test]
async fn a_missing_file_forbids_nothing_and_one_that_cannot_be_had_everything() {
    let world = World::new(Catalogue::generated(3)).await;
    world.market.fail_next(Endpoint::Robots, Fault::ServerError);
    let (kind, _, text) = fault(world.page("shop", &morgan(), None).await);
    assert_eq!(kind, FaultKind::ServerError);
    assert!(text.contains("robots.txt cannot be had") && text.contains("500"), "{text}");
    assert_eq!(world.market.count(Endpoint::Shop), 0);
    world.market.behave(|market| market.robots = None);
    assert!(world.page("shop", &morgan(), None).await.is_ok());
    assert_eq!((world.market.count(Endpoint::Robots), world.market.count(Endpoint::Shop)), (2, 1));
}

#[tokio::test]
async fn a_file_that_was_moved_is_found_and_one_in_a_circle_is_none() {
    let world = World::new(Catalogue::generated(3)).await;
    world.market.behave(|market| market.robots = Some("user-agent: *\ndisallow: /\n".into()));
    world.market.fail_next(Endpoint::Robots, Fault::Redirect("/robots.txt".into()));
    let said = permanent(world.page("shop", &morgan(), None).await);
    assert!(said.contains("forbids"), "{said}");
    let world = World::new(Catalogue::generated(3)).await;
    world.market.fail_always(Endpoint::Robots, Some(Fault::Redirect("/robots.txt".into())));
    assert!(world.page("shop", &morgan(), None).await.is_ok());
    assert_eq!(world.market.count(Endpoint::Robots), 6);
}

#[tokio::test]
async fn whoever_accepted_the_terms_does_not_ask() {
    let accepted = |settings: String| {
        settings.replace("[prices.sources.shop]\n", "[prices.sources.shop]\nrobots = false\n")
    };
    let world = World::with(Catalogue::generated(3), accepted).await;
    world.market.behave(|market| market.robots = Some("user-agent: *\ndisallow: /\n".into()));
    assert!(world.page("shop", &morgan(), None).await.is_ok());
    assert!(world.page("ebay", &morgan(), None).await.is_ok(), "an API with keys is asked by its terms");
    assert_eq!(world.market.count(Endpoint::Robots), 0);
}
