//! What the dashboard shows of prices: on a real store, with what strangers write into titles, and in a real browser.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../../../../crates/quell-cli/tests/browser/driver.rs"]
#[expect(dead_code, reason = "shared with a test that uses all of it")]
mod driver;
mod world;

use reqwest::{Client, StatusCode};

use crate::driver::Browser;
use crate::world::{World, coin, found};

const BASE: &str = "/ui/app/prices";
const HOSTILE: &str = "<script>alert(1)</script>\" onmouseover=\"alert(2)\" '--> </div></main>\u{202e}&amp;";

#[tokio::test]
async fn empty_pages_say_how_to_begin() {
    let world = World::new().await;
    let page = world.page(BASE).await;
    assert!(
        page.contains("aria-current=\"page\">Values") && page.contains("quell prices intake add"),
        "{page}"
    );
    assert!(world.page(&format!("{BASE}/runs")).await.contains("Nothing has been collected yet."));
    assert!(world.page(&format!("{BASE}/stuck")).await.contains("Nothing is stuck."));
    assert!(world.page(&format!("{BASE}/sources")).await.contains("quell prices source add"));
    for path in ["/intake", "/intake/none", "/else", "/intake/a/b"] {
        assert_eq!(world.get(&format!("{BASE}{path}")).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(world.get(&format!("{BASE}?cursor=nonsense")).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_value_is_shown_with_its_interval_and_an_intake_with_its_prices() {
    let world = World::new().await;
    let eagle = coin("eagle", "Silver Eagle");
    world.add(&eagle).await;
    world
        .collect(
            &eagle,
            &[
                found("1", "Silver Eagle a", 2999),
                found("2", "Silver Eagle b", 3150),
                found("3", "Silver Eagle c", 3500),
            ],
        )
        .await;
    world.value(&eagle).await;
    let page = world.page(BASE).await;
    for part in
        ["<strong>31.50 USD</strong>", "<svg class=\"interval\"", &format!("href=\"{BASE}/intake/eagle\"")]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = world.page(&format!("{BASE}/intake/eagle")).await;
    for part in [
        "id=\"value\"><strong>31.50 USD</strong>",
        "0 sold, 3 ask, 0 bid",
        "aria-label=\"3 prices from",
        "Silver Eagle c",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("<circle ").count(), 3, "{page}");
}

#[tokio::test]
async fn titles_of_strangers_stay_text_and_only_web_addresses_are_links() {
    let world = World::new().await;
    let bad = coin("bad", HOSTILE);
    world.add(&bad).await;
    let mut script = found("1", HOSTILE, 100);
    script.url = Some("javascript:alert(3)".to_owned());
    world.collect(&bad, &[script, found("2", HOSTILE, 200)]).await;
    world.value(&bad).await;
    for place in [BASE.to_owned(), format!("{BASE}/intake/bad")] {
        let page = world.page(&place).await;
        assert!(
            !page.contains("<script>") && !page.contains("\" onmouseover") && !page.contains("javascript:"),
            "{page}"
        );
        assert_eq!(page.matches("</main>").count(), 1, "{page}");
    }
}

#[tokio::test]
async fn sources_and_runs_answer_the_questions_of_the_older_system() {
    let world = World::new().await;
    world.engine.apply_sources().await.unwrap();
    let page = world.page(&format!("{BASE}/sources")).await;
    for part in
        ["<th scope=\"row\">shop</th>", "<span class=\"state done\">enabled</span>", "0 of 5", "no limit"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("unrelated"), "only sources of prices: {page}");
    let eagle = coin("eagle", "Silver Eagle");
    world.add(&eagle).await;
    world.ask(&eagle).await;
    let page = world.page(&format!("{BASE}/runs")).await;
    assert!(
        page.contains("eagle:shop") && page.contains("<span class=\"state pending\">pending</span>"),
        "{page}"
    );
}

#[tokio::test]
async fn somebody_looks_at_values_in_a_browser() {
    let world = World::new().await;
    let client = Client::builder().no_proxy().timeout(driver::PATIENCE).build().unwrap();
    let (_driver, _profile, browser) = Browser::start(&client).await;
    // In a task of its own, so that the browser is closed however it ends.
    let tasks = tokio::task::LocalSet::new();
    let journey = tasks.spawn_local(journey(world, browser.clone()));
    let journey = tasks.run_until(journey).await;
    browser.quit().await;
    journey.unwrap();
}

async fn journey(world: World, browser: Browser) {
    browser.open(&world.url).await;
    browser.click(&format!(".bar nav a[href='{BASE}']")).await;
    browser.reads("#live", "Nothing is valued yet").await;
    let eagle = coin("eagle-2024", "Silver Eagle");
    world.add(&eagle).await;
    let items: Vec<_> =
        (0..40).map(|n| found(&n.to_string(), &format!("Silver Eagle {n}"), 2500 + n * 30)).collect();
    world.collect(&eagle, &items).await;
    world.value(&eagle).await;
    world.ask(&eagle).await;
    browser.reads("#values", "eagle-2024").await;
    browser.fits().await;
    browser.click("#values tbody th a").await;
    browser.reads("#value", "USD").await;
    let drawn =
        browser.run("return document.querySelector('#chart').getBoundingClientRect().height > 100").await;
    assert_eq!(drawn, true, "the chart is seen");
    browser.fits().await;
    browser.click(".trail a").await;
    for (page, words) in [("runs", "eagle-2024:shop"), ("sources", "enabled"), ("stuck", "Nothing is stuck")]
    {
        browser.click(&format!("nav.tabs a[href='{BASE}/{page}']")).await;
        browser.reads("#live", words).await;
        browser.fits().await;
    }
    browser.narrow().await;
    browser.open(&format!("{}{BASE}/intake/eagle-2024", world.url)).await;
    browser.reads("#points", "Silver Eagle").await;
    browser.fits().await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
