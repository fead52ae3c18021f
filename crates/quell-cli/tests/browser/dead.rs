//! What failed: by the kind of its error, sent back as a group, and one of them with another payload.

use serde_json::json;

use crate::journey::{Journey, journey};

const CONFIG: &str = r#"
[queues.orders]
window = "none"
handler = "pull"

[dashboard]
redact = ["/card/number", "*token*"]
"#;

/// Sends one event, takes it and fails it.
async fn fails(j: &Journey, key: &str, payload: serde_json::Value, error: &str) -> String {
    j.served.send("orders", key, payload).await;
    let claim = j.served.claim("orders", "w1").await;
    j.served.settle(&claim, json!({ "outcome": "failed", "error": error })).await
}

#[tokio::test]
async fn dead_letters_are_grouped_by_their_error_and_a_group_goes_back() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        for n in 1..=5 {
            fails(j, &format!("order-{n}"), json!({ "n": n }), &format!("order {n} is locked")).await;
        }
        fails(j, "other", json!({}), "the service answered 503: busy").await;
        j.login("/ui/dead").await;
        let groups = browser.reads("#dead tbody", "order # is locked").await;
        assert!(groups.contains("the service answered 503"), "{groups}");
        assert_eq!(browser.run("return document.querySelectorAll('#dead tbody tr').length").await, 2);
        j.picture("dead-letters").await;
        browser.click("#dead tbody tr:first-child th a").await;
        browser.reads("#count", "5 runs with 5 events would go back").await;
        browser.reads(".payload", "order 5 is locked").await;
        browser.type_into("#why-text", "the lock is gone").await;
        j.picture("dead-letter-group").await;
        browser.click("#redrive").await;
        browser.reads("#progress", "5 of 5 done, 5 changed").await;
        browser.reads("#state", "finished").await;
        let left = served.get("/v1/dead?queue=orders").await;
        let left =
            left["items"].as_array().unwrap().iter().filter(|row| row["redriven_into"].is_null()).count();
        assert_eq!(left, 1, "the other kind of error stays");
        // The oldest goes first.
        let first = served.claim("orders", "w2").await;
        assert_eq!(first["key"], "order-1");
        let audit = served.get("/v1/audit?queue=orders&limit=100").await;
        let because = audit["items"].as_array().unwrap().iter();
        let because = because.filter(|record| record["actor"] == "token:ops: the lock is gone");
        assert_eq!(because.count(), 5);
    })
    .await;
}

#[tokio::test]
async fn a_failed_run_goes_back_with_another_payload() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        let run = fails(j, "7", json!({ "street": "nowhere" }), "there is no such street").await;
        j.login(&format!("/ui/runs/{run}")).await;
        browser.reads("#attempts", "failed").await;
        browser.reads("#timeline", "Waited").await;
        j.picture("run").await;
        browser.click("#edit").await;
        browser.reads("textarea", "nowhere").await;
        // What is not JSON is told, and nothing happens.
        browser.run("document.querySelector('textarea').value = '{ broken'").await;
        browser.click("#redrive").await;
        browser.reads("#problem", "is not valid JSON").await;
        browser.run(r#"document.querySelector('textarea').value = '{ "street": "Long Lane" }'"#).await;
        browser.type_into("#why-text", "the customer moved").await;
        j.picture("redrive-edited").await;
        browser.click("#redrive").await;
        browser.reads("#live .note", "back at work").await;
        browser.reads(".line", "because: the customer moved").await;
        browser.reads(".line", "edited").await;
        let claim = served.claim("orders", "w2").await;
        assert_eq!(claim["events"][0]["payload"], json!({ "street": "Long Lane" }));
    })
    .await;
}

#[tokio::test]
async fn what_the_configuration_hides_is_on_no_page() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        let payload = json!({ "card": { "number": "4111-1111", "name": "Ada" }, "accessToken": "xyzzy" });
        let run = fails(j, "7", payload.clone(), "declined").await;
        served.send("orders", "8", payload.clone()).await;
        j.login("/ui/lanes/orders/8").await;
        for path in ["/ui/lanes/orders/8", &format!("/ui/runs/{run}"), &format!("/ui/runs/{run}/edit")] {
            j.open(path).await;
            let page = browser.run("return document.documentElement.outerHTML").await;
            let page = page.as_str().unwrap();
            assert!(!page.contains("4111-1111") && !page.contains("xyzzy"), "{path} shows it");
        }
        // What is partly hidden is not edited: the hidden part would be lost.
        browser.reads(".edits", "1 more event goes back").await;
        j.open("/ui/lanes/orders/8").await;
        browser.reads(".tree", "[redacted]").await;
        browser.reads(".tree", "Ada").await;
        let claim = served.claim("orders", "w2").await;
        assert_eq!(claim["events"][0]["payload"], payload, "a worker gets all of it");
    })
    .await;
}
