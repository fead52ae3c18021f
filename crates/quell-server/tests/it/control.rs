//! The operator's hand.

use serde_json::{Value, json};

use crate::support::World;

fn run_path(run: &Value, what: &str) -> String {
    format!("/v1/runs/{}{what}", run["run_id"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_lane_is_paused_flushed_and_resumed() {
    let world = World::new().await;
    let paused = world.post("/v1/lanes/chat/k/pause", json!({})).await;
    assert_eq!(paused.json()["changed"], true, "{}", paused.text);
    assert_eq!(world.post("/v1/lanes/chat/k/pause", json!({})).await.json()["changed"], false);
    world.append("chat", "k", json!(1)).await;
    let why = world.get("/v1/lanes/chat/k").await.json();
    assert_eq!(why["paused_by"], "api");
    assert!(why["why"].as_str().is_some_and(|text| text.contains("paused")), "{why}");
    world.post("/v1/lanes/chat/k/flush", json!({})).await;
    assert_eq!(world.claim_now("chat").await, Vec::<Value>::new(), "a paused lane is handed over");
    assert_eq!(world.post("/v1/lanes/chat/k/resume", json!({})).await.json()["changed"], true);
    assert_eq!(world.claim("chat", 1).await.len(), 1);
}

#[tokio::test]
async fn a_flush_closes_a_window_at_once() {
    let world = World::new().await;
    let body = json!({ "key": "k", "payload": 1, "window": { "fixed": { "wait_ms": 3_600_000 } } });
    world.post("/v1/queues/chat/events", body).await;
    assert_eq!(world.claim_now("chat").await, Vec::<Value>::new());
    assert_eq!(world.post("/v1/lanes/chat/k/flush", json!({})).await.json()["changed"], true);
    assert_eq!(world.claim_now("chat").await.len(), 1);
}

#[tokio::test]
async fn a_queue_is_paused_for_one_tenant_or_for_all() {
    let world = World::new().await;
    for tenant in ["ada", "bob"] {
        let body = json!({ "key": "k", "payload": 1, "tenant": tenant });
        world.post("/v1/queues/jobs/events", body).await;
    }
    assert_eq!(world.post("/v1/queues/jobs/pause?tenant=ada", json!({})).await.json()["changed"], true);
    let claimed = world.claim_now("jobs").await;
    assert_eq!((claimed.len(), &claimed[0]["tenant"]), (1, &json!("bob")));
    assert_eq!(world.post("/v1/queues/jobs/resume?tenant=ada", json!({})).await.json()["changed"], true);
    assert_eq!(world.post("/v1/queues/jobs/pause", json!({})).await.json()["changed"], true);
    assert_eq!(world.claim_now("jobs").await, Vec::<Value>::new());
    assert_eq!(world.post("/v1/queues/jobs/resume", json!({})).await.json()["changed"], true);
    assert_eq!(world.claim_now("jobs").await.len(), 1);
}

#[tokio::test]
async fn a_bulk_action_shows_before_it_does_and_meets_only_its_filter() {
    let world = World::new().await;
    for key in ["room/1", "room/2", "hall"] {
        world.append("jobs", key, json!(1)).await;
    }
    let wish = |dry_run: bool| json!({ "queue": "jobs", "key_prefix": "room/", "dry_run": dry_run });
    let shown = world.post("/v1/lanes/pause", wish(true)).await.json();
    assert_eq!(
        (&shown["matched"], &shown["changed"], &shown["dry_run"]),
        (&json!(2), &json!(0), &json!(true))
    );
    assert_eq!(shown["items"].as_array().map(Vec::len), Some(2), "{shown}");
    let done = world.post("/v1/lanes/pause", wish(false)).await.json();
    assert_eq!((&done["matched"], &done["changed"]), (&json!(2), &json!(2)));
    let claimed = world.claim_now("jobs").await;
    assert_eq!((claimed.len(), &claimed[0]["key"]), (1, &json!("hall")));
    assert_eq!(world.post("/v1/lanes/resume", wish(false)).await.json()["changed"], 2);
    let cancelled = world.post("/v1/lanes/cancel", wish(false)).await.json();
    assert_eq!((&cancelled["changed"], &cancelled["events"]), (&json!(2), &json!(2)), "{cancelled}");
    assert_eq!(world.claim_now("jobs").await, Vec::<Value>::new());
    world.verify().await;
}

#[tokio::test]
async fn a_dead_letter_goes_back_to_work_with_all_its_attempts() {
    let world = World::new().await;
    let run = world.failed("jobs", "k", "no").await;
    let redriven = world.post(&run_path(&run, "/redrive"), json!({})).await;
    assert_eq!(
        (&redriven.json()["changed"], &redriven.json()["events"]),
        (&json!(true), &json!(1)),
        "{}",
        redriven.text
    );
    let again = world.claim("jobs", 1).await.remove(0);
    assert_eq!((&again["attempt"], &again["events"][0]["payload"]), (&json!(1), &json!("k")));
    assert_eq!(redriven.json()["run"], again["run_id"]);
    world.settle(&again, json!({ "outcome": "succeeded" })).await;
    // Once is enough; without a body it means all of it.
    let twice = world.request(reqwest::Method::POST, &run_path(&run, "/redrive"));
    let twice = crate::support::Reply::of(twice).await;
    assert!(!twice.status.is_server_error() && world.claim_now("jobs").await.is_empty(), "{}", twice.text);
    world.verify().await;
}

#[tokio::test]
async fn many_dead_letters_go_back_by_their_error() {
    let world = World::new().await;
    for (key, error) in [("a", "time out"), ("b", "time out"), ("c", "bad data")] {
        world.failed("jobs", key, error).await;
    }
    let wish = |dry_run: bool| json!({ "queue": "jobs", "error_contains": "time", "dry_run": dry_run });
    assert_eq!(world.post("/v1/dead/redrive", wish(true)).await.json()["matched"], 2);
    assert_eq!(world.claim_now("jobs").await, Vec::<Value>::new());
    assert_eq!(world.post("/v1/dead/redrive", wish(false)).await.json()["changed"], 2);
    assert_eq!(world.claim_now("jobs").await.len(), 2);
    // They are not met again.
    assert_eq!(world.post("/v1/dead/redrive", wish(false)).await.json()["matched"], 0);
    world.verify().await;
}

#[tokio::test]
async fn a_purge_counts_before_it_throws_away() {
    let world = World::new().await;
    world.failed("jobs", "a", "no").await;
    world.append("jobs", "b", json!(1)).await;
    world.post("/v1/queues/jobs/events", json!({ "key": "c", "payload": 1, "delay_ms": 600_000 })).await;
    for what in ["dead", "buffered", "delayed"] {
        let dry = world.delete(&format!("/v1/{what}?queue=jobs&dry_run=true")).await.json();
        assert_eq!(dry["events"], 1, "{what}: {dry}");
        let done = world.delete(&format!("/v1/{what}?queue=jobs")).await.json();
        assert_eq!((&done["events"], &done["more"]), (&json!(1), &json!(false)), "{what}: {done}");
        let again = world.delete(&format!("/v1/{what}?queue=jobs")).await.json();
        assert_eq!((&again["events"], &again["changed"]), (&json!(0), &json!(false)), "{what}: {again}");
    }
    assert_eq!(world.claim_now("jobs").await, Vec::<Value>::new());
    world.verify().await;
}

#[tokio::test]
async fn a_buffered_event_is_edited_and_deleted_and_a_claimed_one_is_not() {
    let world = World::new().await;
    for id in ["e1", "e2", "e3"] {
        let body =
            json!({ "key": "k", "id": id, "payload": 1, "window": { "fixed": { "wait_ms": 3_600_000 } } });
        world.post("/v1/queues/chat/events", body).await;
    }
    let at = |id: &str| format!("/v1/events/{id}?queue=chat&key=k");
    assert_eq!(world.put(&at("e1"), json!({ "payload": { "new": true } })).await.json()["changed"], true);
    assert_eq!(world.delete(&at("e2")).await.json()["changed"], true);
    world.post("/v1/lanes/chat/k/flush", json!({})).await;
    let run = world.claim("chat", 1).await.remove(0);
    let events: Vec<(&Value, &Value)> =
        run["events"].as_array().expect("events").iter().map(|e| (&e["id"], &e["payload"])).collect();
    assert_eq!(events, [(&json!("e1"), &json!({ "new": true })), (&json!("e3"), &json!(1))]);
    assert_eq!(world.put(&at("e1"), json!({ "payload": 2 })).await.status, 404);
    assert_eq!(world.delete(&at("e1")).await.status, 404);
    let body =
        json!({ "key": "k", "id": "s", "payload": 1, "window": { "fixed": { "wait_ms": 3_600_000 } } });
    world.post("/v1/queues/small/events", body).await;
    let large = world.put("/v1/events/s?queue=small&key=k", json!({ "payload": "x".repeat(2_000) })).await;
    assert_eq!((large.status.as_u16(), large.problem().as_str()), (413, "too-large"));
    world.verify().await;
}

#[tokio::test]
async fn an_erased_key_leaves_nothing_of_it() {
    let world = World::new().await;
    world.failed("jobs", "ada-lovelace", "she said no").await;
    world.append("jobs", "ada-lovelace", json!("her words")).await;
    let erased = world.delete("/v1/lanes/jobs/ada-lovelace").await;
    assert_eq!(erased.json()["changed"], true, "{}", erased.text);
    for path in ["/v1/lanes?idle=true", "/v1/runs", "/v1/dead", "/v1/audit?limit=1000"] {
        let seen = world.get(path).await.text;
        assert!(!seen.contains("lovelace") && !seen.contains("her words"), "{path}: {seen}");
    }
    assert_eq!(world.get("/v1/lanes/jobs/ada-lovelace").await.status, 404);
    world.verify().await;
}

#[tokio::test]
async fn a_run_is_cancelled_by_its_id() {
    let world = World::new().await;
    let receipt = world.append("jobs", "k", json!(1)).await;
    let cancelled = world.post(&run_path(&receipt, "/cancel"), json!({})).await;
    assert_eq!(cancelled.json()["changed"], true, "{}", cancelled.text);
    assert_eq!(world.get(&run_path(&receipt, "")).await.json()["state"], "cancelled");
    assert_eq!(world.claim_now("jobs").await, Vec::<Value>::new());
    let back = world.post("/v1/dead/redrive", json!({ "queue": "jobs", "cancelled": true })).await.json();
    assert_eq!(back["changed"], 1, "{back}");
    assert_eq!(world.claim_now("jobs").await.len(), 1);
}

#[tokio::test]
async fn a_source_is_declared_held_and_taken_away() {
    let world = World::new().await;
    let rules = json!({ "rate_limit_per_minute": 60, "burst": 2, "failures": 3, "cooldown_ms": 1_000, "cache_ttl_ms": 0 });
    assert_eq!(world.put("/v1/sources/shop", rules.clone()).await.json()["changed"], true);
    assert_eq!(world.put("/v1/sources/shop", rules).await.json()["changed"], false);
    let view = world.get("/v1/sources/shop").await.json();
    assert_eq!(
        (&view["rate_limit_per_minute"], &view["burst"], &view["tokens"], &view["enabled"]),
        (&json!(60), &json!(2), &json!(2), &json!(true))
    );
    assert_eq!(view["cache_ttl_ms"], Value::Null);
    assert_eq!(world.patch("/v1/sources/shop", json!({ "enabled": false })).await.json()["enabled"], false);
    world.post("/v1/queues/jobs/events", json!({ "key": "k", "payload": 1, "source": "shop" })).await;
    assert_eq!(world.claim_now("jobs").await, Vec::<Value>::new());
    let why = world.get("/v1/lanes/jobs/k").await.json();
    assert!(why["why"].as_str().is_some_and(|text| text.contains("shop")), "{why}");
    assert_eq!(
        world.patch("/v1/sources/shop", json!({ "enabled": true, "reset": true })).await.json()["enabled"],
        true
    );
    let run = world.claim("jobs", 1).await.remove(0);
    let fault = json!({ "outcome": "retry", "source_fault": { "source": "shop", "kind": "too_many_requests", "retry_after_ms": 60_000 } });
    assert_eq!(world.settle(&run, fault).await.status, 200);
    let view = world.get("/v1/sources/shop").await.json();
    assert!(view["not_before"].is_string(), "{view}");
    assert_eq!(world.delete("/v1/sources/shop").await.json()["changed"], true);
    let refused =
        world.post("/v1/queues/jobs/events", json!({ "key": "z", "payload": 1, "source": "shop" })).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[tokio::test]
async fn a_schedule_is_made_changed_and_removed() {
    let world = World::new().await;
    let daily = |payload: u64| json!({ "cron": "30 6 * * *", "zone": "Europe/Vienna", "queue": "jobs", "key": "k", "payload": payload });
    assert_eq!(world.put("/v1/schedules/morning", daily(1)).await.json()["changed"], true);
    assert_eq!(world.put("/v1/schedules/morning", daily(1)).await.json()["changed"], false);
    assert_eq!(world.put("/v1/schedules/morning", daily(2)).await.json()["changed"], true);
    let items = world.get("/v1/schedules").await.json()["items"].clone();
    assert_eq!(items.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&items[0]["name"], &items[0]["zone"], &items[0]["payload"]),
        (&json!("morning"), &json!("Europe/Vienna"), &json!(2))
    );
    assert!(items[0]["next_at"].is_string());
    // One of each name for each tenant.
    assert_eq!(world.put("/v1/schedules/morning?tenant=ada", daily(1)).await.json()["changed"], true);
    assert_eq!(world.delete("/v1/schedules/morning").await.json()["changed"], true);
    assert_eq!(world.delete("/v1/schedules/morning").await.json()["changed"], false);
    assert_eq!(world.get("/v1/schedules").await.json()["items"][0]["tenant"], "ada");
}

#[tokio::test]
async fn what_an_operator_did_is_written_down_with_the_name() {
    let world = World::new().await;
    let token = world.token("ada at the desk", &[quell::tokens::Scope::Operate], &[], &[]).await;
    let pause = world.request(reqwest::Method::POST, "/v1/lanes/jobs/k/pause").bearer_auth(&token);
    assert_eq!(crate::support::Reply::of(pause).await.status, 200);
    let trail = world.get_as(&token, "/v1/audit?queue=jobs").await.json();
    assert_eq!(trail["items"][0]["actor"], "token:ada at the desk", "{trail}");
}
