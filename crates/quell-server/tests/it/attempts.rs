//! What operators see of attempts and of hands on sources, without a browser, and what the rules of redaction hide of it.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::senders;
use crate::support::{CONFIG, Reply, World, until};

/// Tried twice, each time with another answer; the run's id.
async fn tried_twice(world: &World) -> String {
    world.append("jobs", "ada", json!({ "card": { "number": "4111" } })).await;
    let first = world.claim("jobs", 1).await.remove(0);
    let report = json!({
        "request": "POST https://example.org/hook", "status": 503,
        "response": "{\"card\":{\"number\":\"4111\"},\"busy\":true}"
    });
    let told = json!({ "outcome": "retry", "error": "answered 503, token=s3cret", "report": report });
    assert_eq!(world.settle(&first, told).await.status, StatusCode::OK);
    let second = world.claim("jobs", 1).await.remove(0);
    let report =
        json!({ "request": "bill.sh with 1 argument", "exit_code": 65, "stderr": "no such <b>bill</b>" });
    let told = json!({ "outcome": "failed", "error": "exit code 65: api_token: s3cret", "report": report });
    assert_eq!(world.settle(&second, told).await.status, StatusCode::OK);
    first["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_attempt_of_a_run_is_shown_with_what_it_asked_and_was_answered() {
    let world = World::new().await;
    let run = tried_twice(&world).await;
    let told = world.get(&format!("/v1/runs/{run}")).await.json();
    let reports: Vec<Value> = told["reports"].as_array().unwrap().clone();
    assert_eq!((reports[0]["status"].clone(), reports[1]["exit_code"].clone()), (json!(503), json!(65)));
    assert_eq!(reports[0]["error"], "answered 503, token=s3cret", "also of the attempt before the last");
    assert!(reports[0].get("stderr").is_none() && told["steps"] == json!([]), "{told}");
    let page = world.get(&format!("/ui/runs/{run}")).await.text;
    for part in [
        "POST https://example.org/hook",
        "status 503",
        "answered 503, token=s3cret",
        "4111",
        "bill.sh with 1 argument",
        "exit code 65",
        "no such &#60;b&#62;bill",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_report_that_is_too_long_is_cut_and_one_that_is_none_is_refused() {
    let world = World::new().await;
    world.append("jobs", "ada", json!(1)).await;
    let claim = world.claim("jobs", 1).await.remove(0);
    let wrong = world.settle(&claim, json!({ "outcome": "succeeded", "report": { "status": "fine" } })).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{}", wrong.text);
    let long =
        json!({ "outcome": "succeeded", "report": { "stderr": "x".repeat(50_000), "response": "a\u{0}b" } });
    assert_eq!(world.settle(&claim, long).await.status, StatusCode::OK);
    let run = world.get(&format!("/v1/runs/{}", claim["run_id"].as_str().unwrap())).await.json();
    assert!(run["reports"][0]["stderr"].as_str().unwrap().len() <= 2_048, "{run}");
    assert_eq!(run["reports"][0]["response"], "a\u{fffd}b");
}

#[tokio::test]
async fn what_is_hidden_in_payloads_is_hidden_in_errors_and_answers_wherever_they_are_shown() {
    let config = format!("{CONFIG}\n[dashboard]\nredact = [\"/card/number\", \"*token*\"]\n");
    let world = World::with(&config, |options| options).await;
    let run = tried_twice(&world).await;
    let dead = world.get("/ui/dead").await.text;
    let group = dead.split("href=\"").find(|rest| rest.starts_with("/ui/dead/")).unwrap();
    let group = group.split('"').next().unwrap().replace("&#38;", "&");
    for path in ["/", "/ui/runs", "/ui/dead", &group, &format!("/ui/runs/{run}"), "/ui/lanes/jobs/ada"] {
        let page = world.get(path).await.text;
        assert!(page.contains("exit code 65") || page.contains("redacted"), "{path}: {page}");
        assert!(!page.contains("s3cret"), "{path}: {page}");
        assert!(!page.contains("4111"), "{path}: {page}");
    }
    let page = world.get(&format!("/ui/runs/{run}")).await.text;
    assert!(page.contains("token=[redacted]") && page.contains("busy"), "{page}");
    let told = world.get(&format!("/v1/runs/{run}")).await.json();
    assert_eq!(told["reports"][0]["error"], "answered 503, token=s3cret", "programs have everything");
}

#[tokio::test]
async fn a_delivery_is_shown_without_what_the_rules_hide_and_one_that_is_no_json_not_at_all() {
    let world =
        senders::hooked("[dashboard]\nredact = [\"/card/number\", \"*token*\", \"x-github-event\"]\n").await;
    let bodies = [r#"{"key":"ada","card":{"number":"4111"},"my_token":"s3cret"}"#, "a=4111&token=s3cret"];
    for body in bodies {
        world.deliver("github", &senders::github(senders::GITHUB, body), body).await;
    }
    until("both are remembered", async || world.engine.deliveries().await.unwrap().len() == 2).await;
    for record in world.engine.deliveries().await.unwrap() {
        let page = world.get(&format!("/ui/deliveries/{}", record.id)).await.text;
        assert!(!page.contains("4111") && !page.contains("s3cret"), "{page}");
        assert!(page.contains("[redacted]"), "{page}");
        let whole = world.get(&format!("/v1/deliveries/{}", record.id)).await.text;
        assert!(whole.contains("4111") && whole.contains("s3cret"), "programs have everything: {whole}");
    }
    let list = world.get("/ui/deliveries").await.text;
    assert!(!list.contains("4111") && !list.contains("s3cret"), "{list}");
}

#[tokio::test]
async fn who_did_what_to_a_source_and_why_is_in_the_trail_on_the_page_and_over_http() {
    let world = World::new().await;
    assert_eq!(world.put("/v1/sources/shop", json!({ "failures": 3 })).await.status, StatusCode::OK);
    let form =
        world.request(Method::POST, "/ui/sources/shop/disable").header("Sec-Fetch-Site", "same-origin");
    let form = form.header("Content-Type", "application/x-www-form-urlencoded").body("why=they+are+down");
    assert_eq!(Reply::of(form).await.status, StatusCode::SEE_OTHER);
    let enabled = world.request(Method::PATCH, "/v1/sources/shop").header("Quell-Reason", "they are back");
    let enabled = Reply::of(enabled.json(&json!({ "enabled": true, "reset": true }))).await;
    assert_eq!(enabled.status, StatusCode::OK, "{}", enabled.text);

    let trail = world.get("/v1/audit?queue=quell.sources&key=shop").await.json();
    let told = |n: usize| {
        let record = &trail["items"][n];
        (record["change"].as_str().unwrap().to_owned(), record["actor"].as_str().unwrap().to_owned())
    };
    let is = |change: &str, actor: &str| (change.to_owned(), actor.to_owned());
    assert_eq!(told(0), is("source_reset", "api: they are back"), "{trail}");
    assert_eq!(told(1), is("source_enabled", "api: they are back"));
    assert_eq!(told(2), is("source_disabled", "api: they are down"));
    let page = world.get("/ui/audit").await.text;
    for part in ["source disabled", "they are down", ">shop<", "href=\"/ui/sources\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // No queue is there for anybody to see or to send to.
    let queues = world.get("/v1/queues").await.text;
    assert!(!queues.contains("quell.sources"), "{queues}");
    let overview = world.get("/").await.text;
    assert!(!overview.contains("quell.sources"), "{overview}");
    let sent = world.post("/v1/queues/quell.sources/events", json!({ "key": "shop", "payload": 1 })).await;
    assert!(sent.status.is_client_error(), "{}", sent.text);
}
