//! Workers whose queues are handled by a service, and services that are told how runs ended: from `quell.toml` to the
//! request, over the memory store and over SQLite, in real time.

#![expect(clippy::unwrap_used, reason = "what a test builds for itself is there, or the test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell::clock::SteppedTime;
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::handlers;
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::memory::MemoryStore;
use quell::quell_core::store::{Store, SweepRequest};
use quell::{Engine, Shutdown, Worker, WorkerOptions, WorkerReport};
use serde_json::json;
use standardwebhooks::Webhook;

use crate::receiver::{Answer, Receiver, ok, say};
use crate::support::{File, TestStore, key, run_of, send, start, until};

const SECRET: &str = "whsec_cXVlbGwtZml4dHVyZS1zdGFuZGFyZC1zZWNyZXQtMDE=";

fn env() -> BTreeMap<String, String> {
    BTreeMap::from([("PUSH_SECRET".to_owned(), SECRET.to_owned())])
}

/// As a program with this `quell.toml` has it.
fn engine(store: Arc<dyn Store>, text: &str) -> (Engine, WorkerOptions) {
    (Engine::with_store(store, settings(text)), WorkerOptions { env: env(), ..WorkerOptions::default() })
}

fn settings(text: &str) -> Settings {
    let config = Config::parse(text, "quell.toml").unwrap();
    let config = Some((config, SourceText::new("quell.toml", text)));
    Settings::resolve(SettingsInput { config, env: &env(), flags: Flags::default() }).unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SteppedTime::new())))
}

async fn until_idle(engine: &Engine, options: &WorkerOptions) -> WorkerReport {
    let options = WorkerOptions { until_idle: true, ..options.clone() };
    Worker::new(engine.clone(), options).unwrap().run(Shutdown::new()).await
}

fn handler(receiver: &Receiver, rest: &str) -> String {
    format!(
        "window = \"none\"\nhandler = {{ http = \"{}\", secret_env = \"PUSH_SECRET\" }}\n{rest}\n",
        receiver.url("/in")
    )
}

#[tokio::test]
async fn all_handlers_of_a_process_share_their_connections() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let one = handler(&receiver, "concurrency = 1");
    let (engine, options) = engine(memory(), &format!("[queues.a]\n{one}[queues.b]\n{one}"));
    for n in 0..10 {
        for queue in ["a", "b"] {
            engine.send(queue, &format!("k{n}"), json!({ "n": n })).await.unwrap();
        }
    }
    let report = until_idle(&engine, &options).await;
    assert_eq!((report.settled, receiver.heard().len()), (20, 20));
    assert!(receiver.connections() <= 3, "two at once, and seldom one more: {}", receiver.connections());
    for heard in receiver.heard() {
        Webhook::new(SECRET).unwrap().verify(&heard.body, &heard.headers).unwrap();
        assert_eq!(heard.json()["events"][0]["payload"]["n"].to_string(), heard.header("quell-key")[1..]);
    }
}

#[tokio::test]
async fn newer_events_interrupt_the_request_and_go_out_together_with_the_older_ones() {
    let receiver = Receiver::start(|number, _| if number == 0 { Answer::Hold("200 OK") } else { ok() }).await;
    let text = handler(&receiver, "during_run = \"interrupt\"");
    let (engine, options) = engine(memory(), &format!("[queues.q]\n{text}"));
    let worker = start(&engine, &options);
    let receipt = send(&engine, "k").await;
    until("the first batch is sent", async || receiver.heard().len() == 1).await;
    send(&engine, "k").await;
    until("the service sees the connection close", async || receiver.closed() == 1).await;
    until("both go out", async || run_of(&engine, &receipt).await.row.state == RunState::Succeeded).await;
    let heard = receiver.heard();
    let counts: Vec<usize> = heard.iter().map(|h| h.json()["events"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [1, 2]);
    assert_ne!(heard[0].header("webhook-id"), heard[1].header("webhook-id"), "another batch");
    worker.stop().await;
}

#[tokio::test]
async fn a_service_gives_way_with_409_if_there_is_something_newer() {
    let receiver = Receiver::start(|number, heard| match (heard.header("quell-key"), number) {
        ("alone", _) => say("409 Conflict", &[], "there is something newer"),
        (_, 0) => Answer::Hold("409 Conflict"),
        _ => ok(),
    })
    .await;
    let (engine, options) = engine(memory(), &format!("[queues.q]\n{}", handler(&receiver, "")));
    let worker = start(&engine, &options);
    let receipt = send(&engine, "k").await;
    until("it is sent", async || receiver.heard().len() == 1).await;
    send(&engine, "k").await;
    receiver.release();
    until("both go out", async || run_of(&engine, &receipt).await.row.state == RunState::Succeeded).await;
    assert_eq!(receiver.heard()[1].json()["events"].as_array().unwrap().len(), 2);
    let alone = send(&engine, "alone").await;
    until("it is answered", async || receiver.heard().len() == 3).await;
    until("it waits", async || run_of(&engine, &alone).await.row.error.is_some()).await;
    let run = run_of(&engine, &alone).await.row;
    assert_eq!(run.error.as_deref(), Some("the service answered 409 Conflict: there is something newer"));
    assert_eq!((run.state, run.attempts), (RunState::Retryable, 1), "nothing to give way to: tried again");
    worker.stop().await;
}

/// A worker whose lease somebody else has taken back, while the service still works on the batch.
async fn stale(answer_late: bool) -> (Arc<TestStore>, Receiver) {
    const LEASE: Duration = Duration::from_secs(3);
    let receiver = Receiver::start(|_, _| Answer::Hold("200 OK")).await;
    let store = TestStore::new();
    let (engine, options) =
        engine(store.clone(), &format!("[queues.q]\n{}", handler(&receiver, "lease = \"3s\"")));
    let worker = start(&engine, &options);
    let receipt = send(&engine, "k").await;
    until("it is sent", async || receiver.heard().len() == 1).await;
    engine.pause(key("k"), "test").await.unwrap();
    store.jump(LEASE);
    let swept = engine.sweep(SweepRequest { reclaim: true, retention: None }).await.unwrap();
    assert_eq!(swept.reclaimed.len(), 1);
    if answer_late {
        receiver.release();
        // It is refused at the settle, or by a heartbeat in the same moment.
        until("the worker hears", async || store.calls_of("settle") == 1 || receiver.closed() == 1).await;
    } else {
        until("the service sees the connection close", async || receiver.closed() == 1).await;
    }
    assert_eq!(worker.stop().await.lost, 1);
    assert_eq!(run_of(&engine, &receipt).await.row.state, RunState::Pending, "nothing was settled");
    (store, receiver)
}

#[tokio::test]
async fn a_good_answer_after_the_lease_was_lost_is_discarded() {
    let (_, receiver) = stale(true).await;
    assert_eq!(receiver.heard().len(), 1);
}

#[tokio::test]
async fn a_lost_lease_closes_the_connection() {
    let (store, _) = stale(false).await;
    assert_eq!(store.calls_of("settle"), 0);
}

#[tokio::test]
async fn a_missing_or_bad_secret_ends_the_start_of_a_worker_and_is_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("push.secret");
    let text = format!(
        "[queues.a]\nhandler = {{ http = \"https://example.com/\", secret_file = {:?} }}\n[queues.b]\n\
         notify = {{ url = \"https://example.com/\", secret_env = \"NOTIFY_SECRET\" }}\n",
        file.display().to_string()
    );
    let (engine, options) = engine(memory(), &text);
    let refused =
        |options: &WorkerOptions| Worker::new(engine.clone(), options.clone()).err().map(|e| e.to_string());
    let missing = refused(&options).unwrap();
    let place = format!("the secret from file {}", file.display());
    assert!(
        missing.starts_with("queue \"a\": ") && missing.contains(&format!("{place} cannot be read")),
        "{missing}"
    );
    let problems = handlers::problems(&engine.settings(), &options.env);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[1].starts_with("queue notify.b: the secret from environment NOTIFY_SECRET is not set"),
        "{problems:?}"
    );

    std::fs::write(&file, "too short\n").unwrap();
    let bad = refused(&options).unwrap();
    assert!(bad.contains(&format!("{place} is no signing secret: ")) && !bad.contains("too short"), "{bad}");

    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let mut whole = options.clone();
    whole.env.insert("NOTIFY_SECRET".to_owned(), SECRET.to_owned());
    assert_eq!(refused(&whole), None);
    assert_eq!(handlers::problems(&engine.settings(), &whole.env), Vec::<String>::new());
}

#[tokio::test]
async fn the_end_of_a_run_is_told_to_a_url_signed_until_it_is_heard_and_never_of_itself() {
    let receiver = Receiver::start(|number, _| match number {
        0 => say("503 Service Unavailable", &[("retry-after", "1")], "busy"),
        _ => ok(),
    })
    .await;
    let text = format!(
        "[queues.orders]\nwindow = \"none\"\nnotify = {{ url = \"{}\", secret_env = \"PUSH_SECRET\" }}\n",
        receiver.url("/ended")
    );
    let file = File::new();
    let (engine, options) = engine(file.open(), &text);
    let receipt = engine.send("orders", "customer-7", json!({})).await.unwrap();
    let report = until_idle(&engine, &options).await;
    assert_eq!(report.settled, 3, "the order, a notice in vain and the same notice again");
    let heard = receiver.heard();
    assert_eq!(heard.len(), 2, "a notice is not told of");
    for heard in &heard {
        Webhook::new(SECRET).unwrap().verify(&heard.body, &heard.headers).unwrap();
        assert_eq!((heard.header("quell-queue"), heard.header("quell-key")), ("notify.orders", "customer-7"));
    }
    assert_eq!(heard[0].header("webhook-id"), heard[1].header("webhook-id"));
    let notice = &heard[1].json()["events"][0]["payload"];
    assert_eq!(notice["state"], "succeeded");
    assert_eq!(notice["queue"], "orders");
    assert_eq!(notice["run_id"], receipt.run_id.unwrap().to_string());
    let run: quell::quell_core::batch::RunId = heard[1].header("quell-run").parse().unwrap();
    let run = engine.run(run).await.unwrap().unwrap();
    assert_eq!((run.row.state, run.row.attempts), (RunState::Succeeded, 2));
}

#[tokio::test]
async fn only_the_ends_that_are_asked_for_are_told() {
    let receiver = Receiver::start(|_, heard| {
        if heard.line.contains("/in") { say("400 Bad Request", &[], "no such key") } else { ok() }
    })
    .await;
    let text = format!(
        "[queues.bad]\n{}notify = {{ url = \"{}\", on = [\"failed\"] }}\n[queues.good]\nwindow = \"none\"\n\
         notify = {{ url = \"{}\", on = [\"failed\"] }}\n",
        handler(&receiver, ""),
        receiver.url("/ended"),
        receiver.url("/ended")
    );
    let (engine, options) = engine(memory(), &text);
    for queue in ["bad", "good"] {
        engine.send(queue, "k", json!({})).await.unwrap();
    }
    until_idle(&engine, &options).await;
    let heard = receiver.heard();
    assert_eq!(
        heard.iter().map(|h| h.line.as_str()).collect::<Vec<_>>(),
        ["POST /in HTTP/1.1", "POST /ended HTTP/1.1"]
    );
    let notice = &heard[1].json()["events"][0]["payload"];
    assert_eq!((&notice["state"], &notice["queue"]), (&json!("failed"), &json!("bad")));
    assert_eq!(notice["error"], "the service answered 400 Bad Request: no such key");
    assert_eq!(heard[1].header("webhook-signature"), "");
}
