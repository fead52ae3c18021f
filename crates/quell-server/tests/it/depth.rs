//! A queue that is full refuses, and takes events again when there is room.

use serde_json::json;

use crate::support::World;

const CONFIG: &str = "[queues.deep]\nwindow = \"none\"\nhandler = \"pull\"\nmax_waiting = 3\n";

#[tokio::test]
async fn a_queue_at_its_depth_answers_429_until_there_is_room() {
    let world = World::with(CONFIG, |options| options).await;
    let event = |key: &str| json!({ "key": key, "payload": 1 });
    let send = async |key: &str| world.post("/v1/queues/deep/events", event(key)).await;
    // Totals are read once a second: a burst may pass the bound, and then the door closes.
    let mut stored = 0;
    let full = loop {
        let reply = send(&format!("k{stored}")).await;
        if reply.status != 202 {
            break reply;
        }
        stored += 1;
        assert!(stored < 100_000, "the door stays open");
    };
    assert_eq!((full.status.as_u16(), full.problem().as_str()), (429, "queue-full"));
    assert_eq!(full.header("retry-after"), "1");
    assert!(stored >= 3);
    assert_eq!(world.accepted().await, stored);

    // Another tenant has a depth of its own.
    let mut other = event("k");
    other["tenant"] = json!("acme");
    assert_eq!(world.post("/v1/queues/deep/events", other).await.status, 202);

    // A line of a stream is refused as well.
    let request = world.request(reqwest::Method::POST, "/v1/queues/deep/events");
    let lines = request.header("content-type", "application/x-ndjson").body(event("z").to_string());
    let answer = crate::support::Reply::of(lines).await;
    assert!(answer.text.contains("queue-full"), "{}", answer.text);

    while stored > 0 {
        for run in world.claim("deep", 100).await {
            let path = format!("/v1/claims/{}/settle", run["run_id"].as_str().unwrap());
            let end = json!({ "token": run["token"], "outcome": "succeeded" });
            assert_eq!(world.post(&path, end).await.status, 200);
            stored = stored.saturating_sub(1);
        }
    }
    let since = quell::clock::Stopwatch::start();
    while send("again").await.status != 202 {
        assert!(since.elapsed() < crate::support::LONG, "there is room, and nobody knows");
    }
}
