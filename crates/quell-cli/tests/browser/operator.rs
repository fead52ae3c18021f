//! From the login to the logout: the way of one key that waits, fails and is put back to work.

use serde_json::json;

use crate::journey::{ORDERS, journey};

#[tokio::test]
async fn an_operator_logs_in_sees_a_key_wait_flushes_it_and_redrives_what_failed() {
    journey(ORDERS, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        j.login("/ui/lanes").await;
        browser.click(".bar nav a[href='/']").await;
        browser.reads("#verdict", "All is well").await;
        browser.reads("#pulse", "live").await;
        browser.click(".bar nav a[href='/ui/lanes']").await;
        browser.reads("#live", "Nothing waits and nothing runs").await;

        // It appears by itself: what was put on the page is still there, so it was not loaded again.
        browser.run("window.mark = 'the same page'").await;
        served.send("orders", "order 7/a", json!({ "text": "<script>alert(1)</script>" })).await;
        browser.reads("#lanes tbody", "order 7/a").await;
        assert_eq!(browser.run("return window.mark").await, "the same page");

        browser.click("#lanes tbody th a").await;
        browser.reads("#key", "order 7/a").await;
        let reason = browser.reads("#reason", "Buffered 1").await;
        assert!(reason.contains("(quiet), at the latest in"), "{reason}");
        browser.reads("#live .tree", "<script>alert(1)</script>").await;
        browser.click("#flush").await;
        browser.reads("#live .note", "Flushed").await;
        browser.reads("#reason", "due since").await;

        let claimed = served.claim("orders", "w1").await;
        browser.reads("#reason", "Running on w1").await;
        let run =
            served.settle(&claimed, json!({ "outcome": "failed", "error": "the till is locked" })).await;
        browser.reads("#live .state.failed", "failed").await;

        browser.click(&format!("#live a[href='/ui/runs/{run}']")).await;
        browser.reads("#run", &run).await;
        browser.reads("section[aria-labelledby=error]", "the till is locked").await;
        browser.reads(".line", "claimed").await;
        browser.click("#redrive").await;
        browser.reads("#live .note", "back at work").await;
        browser.reads("#live .facts", "Redriven from").await;
        browser.fits().await;
        browser.narrow().await;
        browser.fits().await;

        browser.click("#logout").await;
        browser.is_at("/ui/login").await;
        j.open("/").await;
        browser.is_at("/ui/login").await;
    })
    .await;
}
