//! One journey through the pages in a real browser, which must not complain of anything.

use reqwest::Client;
use serde_json::json;

use crate::BASE;
use crate::driver::{self, Browser};
use crate::world::{NOW, World, hook, uuid};

#[tokio::test]
async fn somebody_watches_a_session_reads_it_and_finds_it_again() {
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
    browser.reads("#live", "quell hook install").await;
    browser.reads("#pulse", "live").await;

    // It appears by itself, and so does what it does: the page is not loaded again.
    browser.run("window.mark = 'the same page'").await;
    let session = "s1";
    world.tell(session, NOW, hook(session, "UserPromptSubmit", "/home/ada/shop", &json!({}))).await;
    browser.reads("#sessions .state", "active").await;
    let asks = json!({ "message": "Claude needs your permission to use Bash" });
    world.tell(session, NOW + 1, hook(session, "Notification", "/home/ada/shop", &asks)).await;
    browser.reads("#sessions .state", "permission_needed").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    browser.click("#sessions tbody th a").await;
    browser.reads("#live .empty", "Nothing of what was said").await;
    let said = |n: usize, role: &str, side: bool, content: serde_json::Value| json!({ "type": role, "uuid": uuid(n), "isSidechain": side, "message": { "role": role, "content": content } });
    let hostile = "<img src=x onerror=alert(1)><script>alert(2)</script> tidy\n  the shelf";
    world
        .lines(
            session,
            &[
                said(1, "user", false, json!(hostile)),
                said(
                    2,
                    "assistant",
                    false,
                    json!([{ "type": "thinking", "thinking": "first the books" },
                    { "type": "text", "text": "It is tidy." }]),
                ),
                said(3, "assistant", true, json!([{ "type": "text", "text": "a helper found a needle" }])),
            ],
        )
        .await;
    world.finish(session, None).await;
    browser.reads("#conversation", "the shelf").await;
    assert_eq!(browser.run("return document.querySelectorAll('#live img, #live script').length").await, 0);

    // What was unfolded stays so while more comes.
    browser.click(".thinking summary").await;
    browser.reads(".thinking", "first the books").await;
    world
        .lines(session, &[said(4, "assistant", false, json!([{ "type": "text", "text": "More of it." }]))])
        .await;
    browser.reads("#conversation", "More of it.").await;
    assert_eq!(browser.run("return document.querySelector('.thinking').open").await, true);
    assert_eq!(browser.run("return document.querySelector('.side').open").await, false);

    browser.click(".trail a").await;
    browser.type_into("#words", "needle").await;
    browser.click("#search").await;
    browser.reads("#hits mark", "needle").await;
    browser.click("#hits a").await;
    browser.reads("article:target", "a helper found a needle").await;
    assert_eq!(browser.run("return document.querySelector('.side').open").await, true);
    let wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    assert_eq!(browser.run(wide).await, true, "nothing is wider than the window");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
