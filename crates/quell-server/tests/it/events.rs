//! Events in, as their senders do it.

use quell::Engine;
use quell::quell_core::event::{EventId, Key, LaneKey, QueueName};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{CONFIG, Reply, World, settings};

const JOBS: &str = "/v1/queues/jobs/events";

fn lines(reply: &Reply) -> Vec<Value> {
    reply.text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[tokio::test]
async fn an_event_with_everything_is_taken_as_it_says() {
    let world = World::new().await;
    world.put("/v1/sources/shop", json!({})).await;
    let body = json!({
        "key": "k", "payload": { "a": [1, 2] }, "id": "e1", "tenant": "ada", "source": "shop", "priority": 9,
        "window": { "fixed": { "wait_ms": 60_000 } }, "only_if_idle": true,
    });
    let reply = world.post(JOBS, body).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text);
    let receipt = &reply.json()["receipts"][0];
    assert_eq!((&receipt["event_id"], &receipt["duplicate"]), (&json!("e1"), &json!(false)));
    let lane = world.get("/v1/lanes/jobs/k?tenant=ada").await.json();
    assert_eq!((&lane["priority"], &lane["buffered"]), (&json!(9), &json!(1)));
    assert_eq!(lane["events"][0]["payload"], json!({ "a": [1, 2] }));
    let busy =
        world.post(JOBS, json!({ "key": "k", "payload": 1, "tenant": "ada", "only_if_idle": true })).await;
    assert_eq!((busy.status.as_u16(), busy.problem().as_str()), (409, "lane-not-idle"));
    let later = world.post(JOBS, json!({ "key": "later", "payload": 1, "delay_ms": 60_000 })).await;
    assert_eq!(later.json()["receipts"][0]["seq"], Value::Null, "{}", later.text);
    let none = world.post(JOBS, json!({ "key": "now", "payload": 1, "window": { "none": {} } })).await;
    assert_eq!(none.status, StatusCode::ACCEPTED, "{}", none.text);
    world.verify().await;
}

#[tokio::test]
async fn what_was_answered_with_202_is_there_when_the_store_is_opened_again() {
    let world = World::new().await;
    let receipt = world.append("jobs", "k", json!("kept")).await;
    // The first one is still running: nothing is written at its end.
    let again = Engine::open(settings(CONFIG, &world.folder)).await.expect("the store opens again");
    let lane = LaneKey::new(QueueName::new("jobs").expect("a queue"), Key::new("k").expect("a key"));
    let id = EventId::new(receipt["event_id"].as_str().expect("an id")).expect("an id");
    let found = again.event(lane, id).await.expect("it can be read").expect("it is there");
    assert_eq!(found.event.payload.as_str(), "\"kept\"");
}

#[tokio::test]
async fn an_array_keeps_its_order_and_is_one_piece() {
    let world = World::new().await;
    let body: Vec<Value> =
        (0..50).map(|n| json!({ "key": "k", "id": format!("e{n}"), "payload": n })).collect();
    let reply = world.post(JOBS, json!(body)).await;
    let receipts = reply.json()["receipts"].as_array().expect("a list").clone();
    let ids: Vec<String> =
        receipts.iter().map(|r| r["event_id"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(ids, (0..50).map(|n| format!("e{n}")).collect::<Vec<_>>());
    let run = world.claim("jobs", 1).await.remove(0);
    let payloads: Vec<u64> = run["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["payload"].as_u64())
        .collect();
    assert_eq!(payloads, (0..50).collect::<Vec<_>>());
    // Nothing to store is no fault.
    let none = world.post(JOBS, json!([])).await;
    assert_eq!((none.status.as_u16(), &none.json()["receipts"]), (202, &json!([])));
}

#[tokio::test]
async fn an_id_or_an_idempotency_key_stores_once_and_tells_of_another_payload() {
    let world = World::new().await;
    let send = async |key: &str, body: Value| {
        Reply::of(world.request(Method::POST, JOBS).header("Idempotency-Key", key).json(&body)).await
    };
    let first = send("\"order 7\"", json!({ "key": "k", "payload": 1 })).await;
    let second = send("order 7", json!({ "key": "k", "payload": 1 })).await;
    let (first, second) = (first.json()["receipts"][0].clone(), second.json()["receipts"][0].clone());
    assert_eq!((&first["event_id"], &first["duplicate"]), (&json!("order 7"), &json!(false)));
    assert_eq!(second["duplicate"], true);
    for field in ["event_id", "seq", "run_id"] {
        assert_eq!(first[field], second[field], "{field}");
    }
    let other = send("order 7", json!({ "key": "k", "payload": 2 })).await;
    assert_eq!((other.status.as_u16(), other.problem().as_str()), (409, "conflict"));
    // An array has one id for each of its places; an event's own id goes before.
    let many = json!([{ "key": "k", "payload": 1 }, { "key": "k", "payload": 2, "id": "own" }]);
    let sent = send("batch", many.clone()).await.json();
    assert_eq!(sent["receipts"][0]["event_id"], "batch/0");
    assert_eq!(sent["receipts"][1]["event_id"], "own");
    let repeated = send("batch", many).await.json();
    assert!(repeated["receipts"].as_array().is_some_and(|all| all.iter().all(|r| r["duplicate"] == true)));
    assert_eq!(world.accepted().await, 3);
}

#[tokio::test]
async fn a_stream_of_lines_is_answered_line_by_line() {
    let world = World::new().await;
    let body: String =
        (0..1_200).map(|n| format!("{{\"key\":\"k{}\",\"payload\":{n}}}\r\n", n % 7)).collect();
    let request = world.request(Method::POST, JOBS).header("Content-Type", "application/x-ndjson").body(body);
    let reply = Reply::of(request).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED);
    assert_eq!(reply.header("content-type"), "application/x-ndjson");
    let lines = lines(&reply);
    assert_eq!(lines.len(), 1_200);
    assert!(lines.iter().all(|line| line["event_id"].is_string()), "{}", lines[0]);
    assert_eq!(world.accepted().await, 1_200);
    world.verify().await;
}

#[tokio::test]
async fn the_lines_of_a_lane_that_is_full_are_refused_one_by_one() {
    let world = World::new().await;
    let body: String = (0..5).map(|n| format!("{{\"key\":\"k\",\"payload\":{n}}}\n")).collect();
    let path = "/v1/queues/small/events";
    let request = world.request(Method::POST, path).header("Content-Type", "application/x-ndjson").body(body);
    let lines = lines(&Reply::of(request).await);
    let stored = lines.iter().filter(|line| line["event_id"].is_string()).count();
    let full = lines.iter().filter(|line| line["problem"]["code"] == "lane-full").count();
    assert_eq!((stored, full), (3, 2), "{lines:?}");
    assert_eq!(world.accepted().await, 3);
}

#[tokio::test]
async fn cloud_events_come_in_three_forms_and_once() {
    let world = World::new().await;
    let event = |id: &str| json!({ "specversion": "1.0", "id": id, "source": "/shop", "type": "paid", "subject": "ada", "data": { "n": 1 } });
    let send = async |kind: &str, body: String| {
        Reply::of(world.request(Method::POST, JOBS).header("Content-Type", kind).body(body)).await
    };
    let structured = send("application/cloudevents+json; charset=utf-8", event("1").to_string()).await;
    assert_eq!(structured.status, StatusCode::ACCEPTED, "{}", structured.text);
    let batch = json!([event("1"), event("2")]).to_string();
    let batched = send("application/cloudevents-batch+json", batch).await.json();
    assert_eq!(
        (&batched["receipts"][0]["duplicate"], &batched["receipts"][1]["duplicate"]),
        (&json!(true), &json!(false))
    );
    let binary = world
        .request(Method::POST, JOBS)
        .header("ce-specversion", "1.0")
        .header("ce-id", "3")
        .header("ce-source", "/shop")
        .header("ce-type", "paid")
        .header("ce-subject", "ada")
        .json(&json!({ "n": 3 }));
    assert_eq!(Reply::of(binary).await.status, StatusCode::ACCEPTED);
    let run = world.claim("jobs", 1).await.remove(0);
    assert_eq!(run["key"], "ada");
    let events = run["events"].as_array().expect("events");
    assert_eq!(events.len(), 3);
    assert_eq!(
        (&events[2]["payload"]["type"], &events[2]["payload"]["data"]),
        (&json!("paid"), &json!({ "n": 3 }))
    );
}

#[tokio::test]
async fn sixty_four_senders_at_once_are_all_stored() {
    let world = World::new().await;
    let sent = (0..64).map(|n| world.append("jobs", if n % 2 == 0 { "even" } else { "odd" }, json!(n)));
    let receipts = futures_util::future::join_all(sent).await;
    let mut numbers: Vec<(String, u64)> =
        receipts.iter().map(|r| (r["run_id"].to_string(), r["seq"].as_u64().expect("a number"))).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 64, "two events have one number");
    assert_eq!(world.accepted().await, 64);
    world.verify().await;
}

#[tokio::test]
async fn a_full_lane_is_told_to_its_sender_and_hurts_no_other() {
    let world = World::new().await;
    for n in 0..3 {
        world.append("small", "k", json!(n)).await;
    }
    let full = world.post("/v1/queues/small/events", json!({ "key": "k", "payload": 3 })).await;
    assert_eq!((full.status.as_u16(), full.problem().as_str()), (429, "lane-full"));
    assert!(full.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
    world.append("small", "other", json!(1)).await;
    let run = world.claim("small", 1).await.remove(0);
    world.settle(&run, json!({ "outcome": "succeeded" })).await;
    world.append("small", "k", json!(3)).await;
    world.verify().await;
}

#[tokio::test]
async fn a_store_that_is_away_is_503_and_comes_back() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    let file = world.folder.path().join("quell.db");
    let locked = rusqlite::Connection::open(file).expect("the file opens");
    locked.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let away = world.post(JOBS, json!({ "key": "k", "id": "e", "payload": 2 })).await;
    assert_eq!(away.status, StatusCode::SERVICE_UNAVAILABLE, "{}", away.text);
    assert!(matches!(away.problem().as_str(), "unavailable" | "unknown-outcome"), "{}", away.text);
    assert!(away.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
    // It is alive all the same, and says nothing of its file.
    assert_eq!(world.get("/healthz").await.status, StatusCode::OK);
    assert!(!away.text.contains("quell.db"), "{}", away.text);
    locked.execute_batch("ROLLBACK").expect("it ends");
    let again = world.post(JOBS, json!({ "key": "k", "id": "e", "payload": 2 })).await;
    assert_eq!(again.status, StatusCode::ACCEPTED, "{}", again.text);
    assert_eq!(world.accepted().await, 2);
    world.verify().await;
}

#[tokio::test]
async fn the_trace_of_a_request_travels_with_its_events() {
    let world = World::new().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = world
        .request(Method::POST, JOBS)
        .header("traceparent", trace)
        .header("x-secret", "not kept")
        .json(&json!({ "key": "k", "payload": 1 }));
    assert_eq!(Reply::of(request).await.status, StatusCode::ACCEPTED);
    let run = world.claim("jobs", 1).await.remove(0);
    assert_eq!(run["events"][0]["headers"], json!({ "traceparent": trace }));
}

#[tokio::test]
async fn a_burst_becomes_one_run_when_it_is_quiet() {
    let world = World::new().await;
    for n in 0..5 {
        world.append("chat", "ada", json!(n)).await;
    }
    let runs = world.claim("chat", 10).await;
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["events"].as_array().map(Vec::len), Some(5));
    assert_eq!(world.claim_now("chat").await, Vec::<Value>::new());
}
