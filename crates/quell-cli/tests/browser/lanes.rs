//! Lanes: a countdown that begins anew, the language of the filter, pausing, and acting on many.

use serde_json::json;

use crate::journey::journey;

const CONFIG: &str = r#"
[queues.orders]
window = { quiet = "1h", max_wait = "5h" }
handler = "pull"
[queues.chat]
window = { quiet = "20s", max_wait = "2m" }
handler = "pull"
"#;

#[tokio::test]
async fn the_countdown_of_a_window_runs_and_begins_anew_with_each_event() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        served.send("chat", "ada", json!({ "text": "hello" })).await;
        j.login("/ui/lanes").await;
        browser.run("window.mark = 'the same page'").await;
        let left = "return Number(document.querySelector('#lanes .countdown .left').getAttribute('width'))";
        let due = "return Number(document.querySelector('#lanes .countdown').dataset.due)";
        // It runs: less than nine tenths of the whole are left after a few seconds.
        browser.becomes(&format!("{left} < 9000")).await;
        let before = browser.run(due).await.as_u64().unwrap();
        served.send("chat", "ada", json!({ "text": "one more thing" })).await;
        // It begins anew: more is left than there was, and it fires later.
        browser.becomes(&format!("{due} > {before}")).await;
        browser.becomes(&format!("{left} > 5000")).await;
        let marks =
            "const of = (name) => Number(document.querySelector('#lanes .' + name).getAttribute('x'));
                     return of('quiet') < of('cap')";
        assert_eq!(browser.run(marks).await, true, "the mark of the quiet period is before that of the cap");
        assert_eq!(browser.run("return window.mark").await, "the same page");
    })
    .await;
}

#[tokio::test]
async fn lanes_are_found_by_words_in_the_address() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        for n in 0..60 {
            served.send("orders", &format!("order-{n:02}"), json!({ "n": n })).await;
        }
        served.send("chat", "ada", json!({ "text": "hello" })).await;
        served.post("/v1/lanes/orders/order-07/pause", json!({})).await;
        j.login("/ui/lanes").await;
        browser.press("/").await;
        browser.press("queue:orders why:paused").await;
        browser.press(crate::driver::key::ENTER).await;
        browser.becomes("return location.search.includes('why%3Apaused')").await;
        browser.reads("#lanes tbody", "order-07").await;
        browser.reads("#looked", "Looked at 60 lanes").await;
        let rows = "return document.querySelectorAll('#lanes tbody tr').length";
        assert_eq!(browser.run(rows).await, 1);
        j.picture("lanes-filter").await;

        // An index answers these, page by page.
        j.open("/ui/lanes?q=queue%3Aorders+key%3Aorder-*").await;
        assert_eq!(browser.run(rows).await, 50);
        browser.click("a[rel=next]").await;
        browser.becomes("return location.search.includes('cursor=')").await;
        browser.becomes(&format!("{rows} === 10")).await;

        j.open("/ui/lanes?q=colour%3Ared").await;
        browser.reads("#live", "colour: is not known: queue:").await;
    })
    .await;
}

#[tokio::test]
async fn a_lane_is_paused_with_a_reason_and_resumed() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        for text in ["hello", "are you there?"] {
            served
                .send("orders", "7", json!({ "text": text, "card": { "number": 4111 }, "list": [1, 2] }))
                .await;
        }
        j.login("/ui/lanes/orders/7").await;
        browser.type_into("#why-text", "the printer is on fire").await;
        browser.click("#pause").await;
        browser.reads("#live .note", "Paused").await;
        browser.reads("#reason", "Lane paused by token:ops: the printer is on fire").await;
        browser
            .reads("section[aria-labelledby=happened]", "by token:ops, because: the printer is on fire")
            .await;
        browser.click("#resume").await;
        browser.reads("#live .note", "Resumed").await;
        let audit = served.get("/v1/audit?queue=orders&key=7").await;
        assert_eq!(audit["items"][1]["actor"], "token:ops: the printer is on fire");

        // The payload unfolds, differs from the one before, and the window is drawn.
        browser.reads(".tree", "4111").await;
        browser.click(".differences summary").await;
        browser.reads(".differences", "are you there?").await;
        browser.becomes("return document.querySelectorAll('#timeline .arrival').length === 2").await;
        browser.fits().await;
        j.picture("lane").await;
        browser.click(".copies summary").await;
        browser.reads(".copies", "quell flush orders 7").await;
        browser.reads(".copies", "/v1/lanes/orders/7/flush").await;

        browser.click("#purge").await;
        browser.reads("#count", "2 events would be discarded").await;
        browser.click("#confirm").await;
        browser.reads("#live .note", "Purged").await;
    })
    .await;
}

#[tokio::test]
async fn many_lanes_are_acted_on_after_a_preview_and_the_work_can_be_stopped() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        for n in 0..30 {
            served.send("orders", &format!("order-{n:02}"), json!({ "n": n })).await;
        }
        j.login("/ui/lanes").await;
        // Ticks stay when the table is fetched again.
        for row in [1, 2] {
            browser.click(&format!("#lanes tbody tr:nth-child({row}) .tick input")).await;
        }
        served.send("orders", "order-30", json!({ "n": 30 })).await;
        browser.reads("#lanes tbody", "order-30").await;
        browser.reads("#ticked", "(2)").await;
        browser.run("document.getElementById('bulk-action').value = 'pause'").await;
        j.picture("lanes").await;
        browser.click("#bulk-ticked").await;
        browser.reads("#count", "2 lanes would be changed").await;
        browser.type_into("#why-text", "stocktaking").await;
        browser.click("#confirm").await;
        browser.reads("#progress", "2 of 2 done, 2 changed").await;
        browser.reads("#state", "finished").await;

        // All that match, but for those two, one a second; and then not.
        j.open("/ui/lanes?q=queue%3Aorders").await;
        browser.run("document.getElementById('bulk-action').value = 'pause'").await;
        browser.click("#bulk-all").await;
        browser.reads("#count", "29 lanes would be changed").await;
        browser.run("document.getElementById('rate').value = '1'").await;
        j.picture("preview").await;
        browser.click("#confirm").await;
        browser.reads("#progress", "changed").await;
        browser.click("#stop").await;
        browser.reads("#state", "stopped").await;
        j.picture("operation").await;
        let paused = served.get("/v1/lanes?queue=orders&limit=100").await;
        let paused =
            paused["items"].as_array().unwrap().iter().filter(|row| !row["paused_by"].is_null()).count();
        assert!((2..20).contains(&paused), "{paused} are paused");
        let audit = served.get("/v1/audit?queue=orders&limit=100").await;
        let because =
            audit["items"].as_array().unwrap().iter().filter(|r| r["actor"] == "token:ops: stocktaking");
        assert_eq!(because.count(), 2);
    })
    .await;
}
