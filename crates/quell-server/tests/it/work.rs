//! Work out, as a worker in any language does it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{Reply, World, until};

fn path(run: &Value, what: &str) -> String {
    format!("/v1/claims/{}/{what}", run["run_id"].as_str().expect("an id"))
}

/// Long polls of this process, as it counts them.
async fn long_polls(world: &World) -> f64 {
    let text = world.get("/metrics").await.text;
    let line = text.lines().find(|line| line.starts_with("quell_http_long_polls "));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_default()
}

fn poll(world: &World, worker: usize, wait_ms: u64) -> tokio::task::JoinHandle<Vec<Value>> {
    let body = json!({ "queues": ["jobs"], "worker": format!("w{worker}"), "wait_ms": wait_ms });
    let request = world.request(reqwest::Method::POST, "/v1/claims").json(&body);
    tokio::spawn(async move {
        let reply = Reply::of(request).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["claims"].as_array().expect("a list").clone()
    })
}

#[tokio::test]
async fn an_event_wakes_one_of_two_hundred_waiting_workers_and_the_others_wait_on() {
    let world = World::new().await;
    // Nothing is counted before the counters are asked for.
    world.get("/metrics").await;
    let mut polls: Vec<_> = (0..200).map(|worker| poll(&world, worker, 30_000)).collect();
    until("they wait", async || long_polls(&world).await >= 200.0).await;
    let store = rusqlite::Connection::open(world.folder.path().join("quell.db")).expect("the file opens");
    let version =
        || -> i64 { store.query_row("PRAGMA data_version", [], |row| row.get(0)).expect("a number") };
    let before = version();
    let some_time = tokio::time::timeout(Duration::from_millis(500), std::future::pending::<()>());
    some_time.await.unwrap_err();
    assert_eq!(version(), before, "waiting writes to the store");
    for n in 0..5 {
        world.append("jobs", &format!("k{n}"), json!(n)).await;
        let (next, _, rest) = futures_util::future::select_all(polls).await;
        assert_eq!(next.expect("it is answered").len(), 1, "event {n}");
        polls = rest;
    }
    assert_eq!(polls.iter().filter(|poll| !poll.is_finished()).count(), 195);
    world.verify().await;
}

#[tokio::test]
async fn a_worker_that_waits_gets_a_burst_when_it_is_quiet() {
    let world = World::new().await;
    let body = json!({ "queues": ["chat"], "worker": "w", "wait_ms": 20_000 });
    let waiting = tokio::spawn(Reply::of(world.request(reqwest::Method::POST, "/v1/claims").json(&body)));
    for n in 0..4 {
        world.append("chat", "ada", json!(n)).await;
    }
    let reply = waiting.await.expect("it is answered").json();
    assert_eq!(reply["claims"][0]["events"].as_array().map(Vec::len), Some(4));
}

#[tokio::test]
async fn a_wait_that_is_over_is_answered_with_nothing() {
    let world = World::new().await;
    assert_eq!(poll(&world, 0, 50).await.expect("it is answered"), Vec::<Value>::new());
    // The next one gets what comes then.
    world.append("jobs", "k", json!(1)).await;
    assert_eq!(poll(&world, 0, 20_000).await.expect("it is answered").len(), 1);
}

#[tokio::test]
async fn a_claim_that_is_repeated_gets_the_same_runs() {
    let world = World::new().await;
    for key in ["a", "b", "c"] {
        world.append("jobs", key, json!(key)).await;
    }
    let claim =
        |id: &str, worker: &str| json!({ "queues": ["jobs"], "worker": worker, "max": 2, "claim_id": id });
    let ids = |reply: &Value| -> Vec<Value> {
        reply["claims"].as_array().expect("a list").iter().map(|run| run["run_id"].clone()).collect()
    };
    let first = world.post("/v1/claims", claim("one", "w")).await.json();
    let again = world.post("/v1/claims", claim("one", "w")).await.json();
    assert_eq!(ids(&first).len(), 2);
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(first["claims"][0]["token"], again["claims"][0]["token"]);
    assert_eq!(first["claims"][0]["attempt"], again["claims"][0]["attempt"]);
    let other = world.post("/v1/claims", claim("two", "w")).await.json();
    assert_eq!(ids(&other).len(), 1);
    world.verify().await;
}

#[tokio::test]
async fn a_leased_key_yields_no_second_batch_and_the_next_one_has_what_came_meanwhile() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    let run = world.claim("jobs", 1).await.remove(0);
    world.append("jobs", "k", json!(2)).await;
    world.append("jobs", "k", json!(3)).await;
    assert_eq!(world.claim_now("jobs").await, Vec::<Value>::new());
    let kept =
        world.post(&path(&run, "extend"), json!({ "token": run["token"], "lease_ms": 120_000 })).await.json();
    assert_eq!(
        (&kept["newer"], &kept["cancel"], &kept["interrupt"]),
        (&json!(2), &json!(false), &json!(false))
    );
    assert!(kept["lease_until"].as_str() > run["lease_until"].as_str());
    assert!(kept["held"].is_null());
    let settled = world
        .settle(&run, json!({ "outcome": "succeeded", "result": { "sent": 1 }, "usage": { "tokens": 7 } }))
        .await;
    assert_eq!((&settled.json()["state"], &settled.json()["repeated"]), (&json!("succeeded"), &json!(false)));
    let repeated = world
        .settle(&run, json!({ "outcome": "succeeded", "result": { "sent": 1 }, "usage": { "tokens": 7 } }))
        .await;
    assert_eq!(
        (repeated.status.as_u16(), &repeated.json()["repeated"]),
        (200, &json!(true)),
        "{}",
        repeated.text
    );
    let next = world.claim("jobs", 1).await.remove(0);
    assert_eq!(next["events"].as_array().map(Vec::len), Some(2));
    world.verify().await;
}

#[tokio::test]
async fn every_outcome_leads_where_it_says() {
    let world = World::new().await;
    for (outcome, state) in
        [("succeeded", "succeeded"), ("failed", "failed"), ("retry", "waiting"), ("release", "pending")]
    {
        world.append("jobs", outcome, json!(1)).await;
        let run = world.claim("jobs", 1).await.remove(0);
        let settled = world.settle(&run, json!({ "outcome": outcome, "error": "why\0" })).await;
        assert_eq!(settled.status, 200, "{outcome}: {}", settled.text);
        let found =
            world.get(&format!("/v1/runs/{}", run["run_id"].as_str().unwrap_or_default())).await.json();
        assert_eq!(found["state"], settled.json()["state"], "{outcome}");
        if matches!(outcome, "succeeded" | "failed") {
            assert_eq!(settled.json()["state"], state, "{outcome}");
            continue;
        }
        assert!(settled.json()["next_at"].is_string(), "{outcome}: {}", settled.text);
        let again = world.claim("jobs", 1).await.remove(0);
        let attempt = if outcome == "retry" { 2 } else { 1 };
        assert_eq!((&again["run_id"], &again["attempt"]), (&run["run_id"], &json!(attempt)), "{outcome}");
        assert!(again["token"].as_u64() > run["token"].as_u64(), "{outcome}");
        let late = world.settle(&run, json!({ "outcome": "succeeded" })).await;
        assert_eq!(
            (
                late.status.as_u16(),
                late.problem().as_str() == "stale-token" || late.problem() == "already-settled"
            ),
            (409, true),
            "{}",
            late.text
        );
        world.settle(&again, json!({ "outcome": "succeeded" })).await;
    }
    world.verify().await;
}

#[tokio::test]
async fn a_run_that_is_retried_too_often_is_a_dead_letter() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    for attempt in 1..=3 {
        let run = world.claim("jobs", 1).await.remove(0);
        assert_eq!((&run["attempt"], &run["max_attempts"]), (&json!(attempt), &json!(3)));
        let settled = world
            .settle(&run, json!({ "outcome": "retry", "error": "still away", "retry_after_ms": 1 }))
            .await;
        assert_eq!(settled.status, 200, "{}", settled.text);
    }
    let dead = world.get("/v1/dead?queue=jobs").await.json();
    assert_eq!(dead["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(dead["items"][0]["error"], "still away");
    world.verify().await;
}

#[tokio::test]
async fn a_gate_ends_an_attempt_when_something_newer_is_there() {
    let world = World::new().await;
    world.append("gate", "k", json!(1)).await;
    let run = world.claim("gate", 1).await.remove(0);
    world.append("gate", "k", json!(2)).await;
    let hold = json!({ "token": run["token"], "if_head": run["head_seq"] });
    let held = world.post(&path(&run, "hold"), hold).await;
    assert_eq!(held.json()["answer"], "superseded", "{}", held.text);
    let late = world.settle(&run, json!({ "outcome": "succeeded" })).await;
    assert_eq!(late.status, 409, "{}", late.text);
    let both = world.claim("gate", 1).await.remove(0);
    assert_eq!((both["events"].as_array().map(Vec::len), &both["attempt"]), (Some(2), &json!(1)));
    let held = world
        .post(&path(&both, "hold"), json!({ "token": both["token"], "if_head": both["head_seq"] }))
        .await;
    assert_eq!(held.json()["answer"], "held", "{}", held.text);
    world.append("gate", "k", json!(3)).await;
    // Behind the gate what is newer waits.
    assert_eq!(world.settle(&both, json!({ "outcome": "succeeded" })).await.json()["state"], "succeeded");
    world.verify().await;
}

#[tokio::test]
async fn success_on_condition_gives_way_to_what_is_newer() {
    let world = World::new().await;
    world.append("gate", "k", json!(1)).await;
    let run = world.claim("gate", 1).await.remove(0);
    world.append("gate", "k", json!(2)).await;
    let settled = world.settle(&run, json!({ "outcome": "succeeded", "if_head": run["head_seq"] })).await;
    assert_eq!((settled.status.as_u16(), settled.problem().as_str()), (409, "superseded"));
    let both = world.claim("gate", 1).await.remove(0);
    assert_eq!((both["events"].as_array().map(Vec::len), &both["attempt"]), (Some(2), &json!(1)));
    let settled = world.settle(&both, json!({ "outcome": "succeeded", "if_head": both["head_seq"] })).await;
    assert_eq!(settled.json()["state"], "succeeded", "{}", settled.text);
}

#[tokio::test]
async fn a_step_remembers_its_first_value_over_attempts() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    let run = world.claim("jobs", 1).await.remove(0);
    let step = |run: &Value, name: &str| path(run, &format!("steps/{name}"));
    let first = world
        .put(&step(&run, "ask%20once"), json!({ "token": run["token"], "value": { "n": 1 } }))
        .await
        .json();
    assert_eq!((&first["state"], &first["stored"]), (&json!("done"), &json!(true)));
    let second =
        world.put(&step(&run, "ask%20once"), json!({ "token": run["token"], "value": 2 })).await.json();
    assert_eq!((&second["value"], &second["stored"]), (&json!({ "n": 1 }), &json!(false)));
    let begun = world.put(&step(&run, "pay"), json!({ "token": run["token"], "begin": true })).await.json();
    assert_eq!(begun["state"], "begun");
    let null = world.put(&step(&run, "null"), json!({ "token": run["token"], "value": null })).await.json();
    assert_eq!((&null["state"], &null["value"]), (&json!("done"), &Value::Null));
    world.settle(&run, json!({ "outcome": "retry" })).await;
    let again = world.claim("jobs", 1).await.remove(0);
    let read = async |name: &str| {
        world.get(&format!("{}?token={}", step(&again, name), again["token"])).await.json()
    };
    assert_eq!(read("ask%20once").await["value"], json!({ "n": 1 }));
    assert_eq!(read("never").await["state"], "new");
    // The intent of an attempt that is over: nobody knows.
    assert_eq!(read("pay").await["state"], "unknown");
}

#[tokio::test]
async fn a_worker_is_told_that_its_run_was_cancelled() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    let run = world.claim("jobs", 1).await.remove(0);
    let cancelled = world.post("/v1/lanes/jobs/k/cancel", json!({})).await;
    assert_eq!(cancelled.json()["changed"], true, "{}", cancelled.text);
    let kept = world.post(&path(&run, "extend"), json!({ "token": run["token"] })).await.json();
    assert_eq!(kept["cancel"], true);
    let settled = world.settle(&run, json!({ "outcome": "release" })).await;
    assert_eq!(settled.json()["state"], "cancelled", "{}", settled.text);
}

#[tokio::test]
async fn a_lease_that_ends_frees_the_run_for_the_next_worker() {
    let world = World::new().await;
    world.append("jobs", "k", json!(1)).await;
    let body = json!({ "queues": ["jobs"], "worker": "slow", "lease_ms": 100 });
    let run = world.post("/v1/claims", body).await.json()["claims"][0].clone();
    let mut again = Vec::new();
    until("the lease is over", async || {
        again = world.claim_now("jobs").await;
        !again.is_empty()
    })
    .await;
    assert_eq!((&again[0]["run_id"], &again[0]["attempt"]), (&run["run_id"], &json!(2)));
    let late = world.settle(&run, json!({ "outcome": "succeeded" })).await;
    assert_eq!((late.status.as_u16(), late.problem().as_str()), (409, "stale-token"));
}

#[tokio::test]
async fn a_worker_that_goes_away_while_it_waits_takes_nothing_with_it() {
    let world = World::new().await;
    let body = json!({ "queues": ["jobs"], "worker": "gone", "wait_ms": 30_000 }).to_string();
    let head = format!(
        "POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    for round in 0..20 {
        let mut stream = world.raw().await;
        stream.write_all(format!("{head}{body}").as_bytes()).await.expect("it is sent");
        if round % 2 == 0 {
            // Before anything comes.
            drop(stream);
            world.append("jobs", &format!("k{round}"), json!(round)).await;
        } else {
            // At the same moment.
            let key = format!("k{round}");
            tokio::join!(world.append("jobs", &key, json!(round)), async { drop(stream) });
        }
    }
    // Those whose answer was already on its way wait for their lease; nobody else has lost an attempt.
    let mut got = Vec::new();
    let mut held = 0;
    until("every run is with somebody", async || {
        got.extend(world.claim_now("jobs").await);
        let lanes = world.get("/v1/lanes?queue=jobs&running=true&limit=100").await.json();
        held = lanes["items"].as_array().map_or(0, Vec::len);
        held == 20
    })
    .await;
    assert!(got.len() >= 10, "{} of {held}", got.len());
    assert!(got.iter().all(|run| run["attempt"] == 1), "{got:?}");
    world.verify().await;
}
