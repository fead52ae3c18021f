//! How pages look and are used: light and dark, by keyboard alone, without scripts, and with a token that may only look.

use serde_json::json;

use crate::driver::key;
use crate::journey::{ORDERS, journey};

#[tokio::test]
async fn light_or_dark_as_the_reader_prefers_and_every_text_is_readable() {
    journey(ORDERS, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        served.send("orders", "7", json!({ "text": "hello" })).await;
        served.send("orders", "8", json!({ "text": "hello" })).await;
        served.post("/v1/lanes/orders/8/flush", json!({})).await;
        let claim = served.claim("orders", "w1").await;
        let run = served.settle(&claim, json!({ "outcome": "failed", "error": "it broke" })).await;
        let (run, edit) = (format!("/ui/runs/{run}"), format!("/ui/runs/{run}/edit"));
        j.login("/ui/lanes").await;
        let mut pages = Vec::new();
        for scheme in ["light", "dark"] {
            browser.prefers(scheme).await;
            for path in [
                "/",
                "/ui/lanes",
                "/ui/lanes/orders/7",
                "/ui/runs",
                &run,
                &edit,
                "/ui/dead",
                "/ui/operations",
            ] {
                j.open(path).await;
                browser.readable().await;
                browser.fits().await;
            }
            if scheme == "dark" {
                j.open("/ui/lanes/orders/7").await;
                j.picture("lane-dark").await;
            }
            pages.push(browser.run("return getComputedStyle(document.body).backgroundColor").await);
        }
        assert_ne!(pages[0], pages[1], "light and dark look alike");
    })
    .await;
}

#[tokio::test]
async fn a_keyboard_is_enough_to_find_a_key_and_flush_it() {
    journey(ORDERS, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        served.send("orders", "7", json!({ "text": "hello" })).await;
        j.open("/ui/lanes").await;
        // The field for the token has the focus.
        browser.becomes("return document.activeElement.id === 'token'").await;
        browser.press(&served.token).await;
        browser.press(key::ENTER).await;
        browser.is_at("/ui/lanes").await;
        browser.press(key::TAB).await;
        browser.becomes("return document.activeElement.className === 'skip'").await;
        browser.press(key::ENTER).await;
        j.tab_to("#lanes tbody th a").await;
        browser.press(key::ENTER).await;
        browser.reads("#key", "7").await;
        j.tab_to("#flush").await;
        browser.press(key::ENTER).await;
        browser.reads("#live .note", "Flushed").await;
    })
    .await;
}

#[tokio::test]
async fn without_scripts_pages_are_read_and_buttons_work() {
    journey(ORDERS, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        served.send("orders", "7", json!({ "text": "hello" })).await;
        browser.without_scripts().await;
        j.login("/ui/lanes").await;
        browser.click("#lanes tbody th a").await;
        browser.reads("#reason", "Buffered 1").await;
        browser.click("#pause").await;
        browser.reads("#live .note", "Paused").await;
        browser.reads("#reason", "Lane paused by token:ops").await;
    })
    .await;
}

#[tokio::test]
async fn a_token_that_may_only_look_sees_no_buttons() {
    journey(ORDERS, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        served.send("orders", "7", json!({ "text": "hello" })).await;
        let viewer = served.token("viewer", "read").await;
        j.login_with(&viewer, "/ui/lanes/orders/7").await;
        browser.reads("#reason", "Buffered 1").await;
        assert_eq!(
            browser.run("return document.querySelectorAll('main button:not([data-copy])').length").await,
            0
        );
        // The door is not only the missing button.
        let asked = "return fetch('/ui/lanes/orders/7/flush', { method: 'POST' }).then((r) => r.status)";
        assert_eq!(browser.run(asked).await, 403);
        browser.forgive("403").await;
        assert_eq!(served.get("/v1/lanes/orders/7").await["waiting"]["due_by"], "quiet");
    })
    .await;
}
