//! Looking: why a key waits, pages, totals.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Reply, World};

/// All items of a listing, page by page.
async fn all(world: &World, path: &str, limit: usize) -> Vec<Value> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let mut items = Vec::new();
    let mut cursor = String::new();
    for _ in 0..100 {
        let page = world.get(&format!("{path}{joint}limit={limit}{cursor}")).await.json();
        let rows = page["items"].as_array().expect("a list").clone();
        assert!(rows.len() <= limit);
        items.extend(rows);
        let Some(next) = page["next"].as_str() else { return items };
        cursor = format!("&cursor={}", percent(next));
    }
    panic!("{path} does not end");
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test]
async fn paging_visits_everything_once() {
    let world = World::new().await;
    for n in 0..23 {
        world.failed("jobs", &format!("k{n:02}"), "no").await;
        world.append("chat", &format!("c{n:02}"), json!(n)).await;
    }
    for (path, name, count) in
        [("/v1/lanes?queue=chat", "key", 23), ("/v1/runs?queue=jobs", "id", 23), ("/v1/dead", "id", 23)]
    {
        for limit in [1, 5, 23, 1000] {
            let items = all(&world, path, limit).await;
            let names: BTreeSet<String> = items.iter().map(|item| item[name].to_string()).collect();
            assert_eq!((items.len(), names.len()), (count, count), "{path} by {limit}");
        }
    }
    let trail = all(&world, "/v1/audit", 7).await;
    let numbers: Vec<u64> = trail.iter().map(|record| record["id"].as_u64().expect("a number")).collect();
    assert!(numbers.is_sorted_by(|newer, older| newer > older), "{numbers:?}");
    assert_eq!(trail.len(), all(&world, "/v1/audit", 1000).await.len());
    assert_eq!(world.get("/v1/lanes?queue=chat").await.json()["items"].as_array().map(Vec::len), Some(20));
}

#[tokio::test]
async fn a_lane_says_why_it_waits() {
    let world = World::new().await;
    let body = json!({ "key": "k", "payload": "hello", "window": { "fixed": { "wait_ms": 3_600_000 } } });
    world.post("/v1/queues/chat/events", body).await;
    let lane = world.get("/v1/lanes/chat/k").await.json();
    assert!(
        lane["due_at"].is_string() && lane["why"].as_str().is_some_and(|text| !text.is_empty()),
        "{lane}"
    );
    assert_eq!(lane["events"][0]["payload"], "hello");
    world.append("jobs", "k", json!(1)).await;
    world.claim("jobs", 1).await;
    let held = world.get("/v1/lanes/jobs/k").await.json();
    assert!(held["worker"].as_str().is_some_and(|worker| worker.contains("w1")), "{held}");
    let listed = world.get("/v1/lanes?running=true").await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
}

#[tokio::test]
async fn an_event_is_found_wherever_it_is() {
    let world = World::new().await;
    world.post("/v1/queues/jobs/events", json!({ "key": "k", "id": "a/b c", "payload": 1 })).await;
    let at = "/v1/events/a%2Fb%20c?queue=jobs&key=k";
    assert_eq!(world.get(at).await.json()["state"], "pending");
    let run = world.claim("jobs", 1).await.remove(0);
    assert_eq!(world.get(at).await.json()["state"], "running");
    world.settle(&run, json!({ "outcome": "succeeded" })).await;
    let found = world.get(at).await.json();
    assert_eq!((&found["state"], &found["run_id"]), (&json!("succeeded"), &run["run_id"]));
}

#[tokio::test]
async fn a_run_is_waited_for_until_it_has_ended() {
    let world = World::new().await;
    let receipt = world.append("jobs", "k", json!(1)).await;
    let path = format!("/v1/runs/{}?wait_ms=50", receipt["run_id"].as_str().expect("an id"));
    assert_eq!(world.get(&path).await.json()["state"], "pending");
    let path = path.replace("=50", "=50000");
    let waiting = tokio::spawn(Reply::of(world.request(reqwest::Method::GET, &path)));
    let run = world.claim("jobs", 1).await.remove(0);
    world.settle(&run, json!({ "outcome": "succeeded", "result": { "answer": 42 } })).await;
    let ended = waiting.await.expect("it is answered").json();
    assert_eq!(ended["state"], "succeeded");
    assert_eq!(ended["result"], json!({ "answer": 42 }), "{ended}");
}

#[tokio::test]
async fn totals_add_up_and_are_counted_for_machines() {
    let world = World::new().await;
    world.failed("jobs", "a", "no").await;
    world.append("jobs", "b", json!(1)).await;
    world.post("/v1/queues/jobs/events", json!({ "key": "c", "payload": 1, "delay_ms": 600_000 })).await;
    let stats = world.get("/v1/stats").await.json();
    let jobs =
        stats["queues"].as_array().expect("a list").iter().find(|q| q["queue"] == "jobs").expect("jobs");
    let of = |name: &str| jobs[name].as_u64().expect("a number");
    assert_eq!(of("accepted"), 3);
    let parts = ["succeeded", "dead", "discarded", "delayed", "buffered", "in_flight"].map(of);
    assert_eq!((parts.iter().sum::<u64>(), parts[1], parts[3], parts[4]), (3, 1, 1, 1), "{jobs}");
    let metrics = world.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain"));
    assert!(metrics.text.contains("quell_http_requests_total"), "{}", metrics.text);
    // Keys and tenants are never a label.
    assert!(!metrics.text.contains("key=\"") && !metrics.text.contains("tenant=\""));
}

#[tokio::test]
async fn health_says_alive_and_ready() {
    let world = World::new().await;
    assert_eq!(world.get("/healthz").await.json()["status"], "alive");
    let ready = world.get("/readyz").await.json();
    assert_eq!((&ready["status"], &ready["store"]), (&json!("ready"), &json!("sqlite")), "{ready}");
}

#[tokio::test]
async fn workers_of_the_store_are_shown() {
    let world = World::new().await;
    assert_eq!(world.get("/v1/workers").await.json()["items"], json!([]));
}
