//! What happens, as it happens.

use futures_util::StreamExt;
use quell::tokens::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{LONG, World};

/// One who listens.
struct Listener {
    bytes: futures_util::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    text: String,
}

/// One thing that was told.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    event: String,
    id: Option<u64>,
    data: Value,
}

impl Listener {
    async fn open(world: &World, query: &str, last: Option<u64>, token: Option<&str>) -> Listener {
        let mut request = world.request(Method::GET, &format!("/v1/stream{query}"));
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last.to_string());
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.expect("the server answers");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Listener { bytes: response.bytes_stream().boxed(), text: String::new() }
    }

    /// The next thing that is told; nothing at the end.
    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let told = field("event: ").map(|event| Told {
                    event,
                    id: field("id: ").and_then(|id| id.parse().ok()),
                    data: serde_json::from_str(&field("data: ").unwrap_or_default()).unwrap_or_default(),
                });
                self.text = rest.to_owned();
                if told.is_some() {
                    return told;
                }
                continue;
            }
            let piece = tokio::time::timeout(LONG, self.bytes.next()).await.expect("something comes")?;
            self.text.push_str(&String::from_utf8_lossy(&piece.ok()?));
        }
    }

    /// Transitions up to and with the one of this change.
    async fn until(&mut self, change: &str) -> Vec<Told> {
        let mut seen = Vec::new();
        loop {
            let told = self.next().await.expect("the stream goes on");
            assert_ne!(told.event, "gap");
            if told.event != "transition" {
                continue;
            }
            let is_last = told.data["change"] == change;
            seen.push(told);
            if is_last {
                return seen;
            }
        }
    }
}

async fn one_run(world: &World, queue: &str, key: &str) {
    world.append(queue, key, json!(1)).await;
    let run = world.claim(queue, 1).await.remove(0);
    world.settle(&run, json!({ "outcome": "succeeded" })).await;
}

#[tokio::test]
async fn transitions_are_told_in_order_and_completely() {
    let world = World::new().await;
    let mut listener = Listener::open(&world, "", None, None).await;
    one_run(&world, "jobs", "k").await;
    let seen = listener.until("succeeded").await;
    let ids: Vec<u64> = seen.iter().map(|told| told.id.expect("an id")).collect();
    assert!(ids.is_sorted_by(|older, newer| older < newer), "{ids:?}");
    let trail = world.get("/v1/audit?limit=1000").await.json();
    let mut written: Vec<Value> = trail["items"].as_array().expect("a list").clone();
    written.reverse();
    let told: Vec<Value> = seen.into_iter().map(|told| told.data).collect();
    assert_eq!(told, written, "what is told is what is written");
}

#[tokio::test]
async fn one_who_comes_back_gets_what_was_missed() {
    let world = World::new().await;
    let mut listener = Listener::open(&world, "", None, None).await;
    one_run(&world, "jobs", "a").await;
    let last = listener.until("succeeded").await.pop().expect("something").id;
    drop(listener);
    one_run(&world, "jobs", "b").await;
    let mut back = Listener::open(&world, "", last, None).await;
    one_run(&world, "jobs", "c").await;
    let mut seen = back.until("succeeded").await;
    seen.extend(back.until("succeeded").await);
    let keys: Vec<&Value> = seen.iter().map(|told| &told.data["key"]).collect();
    assert!(keys.iter().all(|key| **key == "b" || **key == "c"), "{keys:?}");
    let ids: Vec<Option<u64>> = seen.iter().map(|told| told.id).collect();
    assert!(ids.is_sorted_by(|older, newer| older < newer) && ids[0] > last, "{ids:?}");
}

#[tokio::test]
async fn one_who_comes_back_to_a_server_that_nobody_listened_to_misses_nothing() {
    let world = World::new().await;
    one_run(&world, "jobs", "a").await;
    one_run(&world, "jobs", "b").await;
    let mut listener = Listener::open(&world, "", Some(0), None).await;
    let seen = [listener.until("succeeded").await, listener.until("succeeded").await].concat();
    let trail = world.get("/v1/audit?limit=1000").await.json();
    assert_eq!(Some(seen.len()), trail["items"].as_array().map(Vec::len));
}

#[tokio::test]
async fn too_much_to_be_told_is_a_gap() {
    let world = World::new().await;
    let events: Vec<Value> = (0..2_000).map(|n| json!({ "key": format!("k{n}"), "payload": n })).collect();
    let stored = world.post("/v1/queues/jobs/events", json!(events)).await;
    assert_eq!(stored.status, 202, "{}", stored.text);
    let cancelled = world.post("/v1/lanes/cancel", json!({ "queue": "jobs" })).await;
    assert_eq!(cancelled.json()["changed"], 1_000, "{}", cancelled.text);
    let cursor = cancelled.json()["next"].clone();
    world.post("/v1/lanes/cancel", json!({ "queue": "jobs", "cursor": cursor })).await;
    let mut listener = Listener::open(&world, "", Some(0), None).await;
    assert_eq!(listener.next().await.map(|told| told.event), Some("gap".to_owned()));
    // From there on it goes on without one.
    let next = listener.next().await.expect("the latest are told");
    assert_eq!(next.event, "transition");
}

#[tokio::test]
async fn listeners_get_what_they_asked_for_and_may_see() {
    let world = World::new().await;
    let bob = world.token("bob", &[Scope::Read], &["bob"], &[]).await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let mut his = Listener::open(&world, "", None, Some(&bob)).await;
    let mut of_chat = Listener::open(&world, "?queue=chat&key=k&tenant=bob", None, Some(&admin)).await;
    let append = async |queue: &str, tenant: &str, key: &str| {
        let body = json!({ "key": key, "payload": 1, "tenant": tenant });
        let request = world
            .request(Method::POST, &format!("/v1/queues/{queue}/events"))
            .bearer_auth(&admin)
            .json(&body);
        assert_eq!(request.send().await.expect("the server answers").status(), 202);
        let cancel = format!("/v1/lanes/{queue}/{key}/cancel?tenant={tenant}");
        let request = world.request(Method::POST, &cancel).bearer_auth(&admin);
        assert_eq!(request.send().await.expect("the server answers").status(), 200);
    };
    append("jobs", "ada", "hers").await;
    append("chat", "ada", "k").await;
    append("chat", "bob", "other").await;
    append("jobs", "bob", "k").await;
    append("chat", "bob", "k").await;
    let seen =
        [his.until("cancelled").await, his.until("cancelled").await, his.until("cancelled").await].concat();
    assert!(seen.iter().all(|told| told.data["tenant"] == "bob"), "{seen:?}");
    let seen = of_chat.until("cancelled").await;
    let right =
        |told: &Told| told.data["tenant"] == "bob" && told.data["queue"] == "chat" && told.data["key"] == "k";
    assert!(seen.iter().all(right), "{seen:?}");
    let named = world.get_as(&bob, "/v1/stream?tenant=ada").await;
    assert_eq!(named.status, 403, "{}", named.text);
}

#[tokio::test]
async fn a_key_with_lines_in_it_is_one_line_of_the_stream() {
    let world = World::new().await;
    let mut listener = Listener::open(&world, "", None, None).await;
    let key = "a\n\nevent: gap\ndata: {}\n\nb";
    one_run(&world, "jobs", key).await;
    let seen = listener.until("succeeded").await;
    assert!(seen.iter().all(|told| told.data["key"] == key), "{seen:?}");
}

#[tokio::test]
async fn a_token_that_is_taken_away_takes_its_stream_along() {
    let world = World::new().await;
    let token = world.token("watcher", &[Scope::Read], &[], &[]).await;
    world.token("other", &[Scope::Admin], &[], &[]).await;
    let mut listener = Listener::open(&world, "", None, Some(&token)).await;
    let about = world.engine.tokens().await.expect("tokens");
    let id = &about.iter().find(|token| token.name == "watcher").expect("it was made").id;
    assert!(world.engine.revoke_token(id).await.expect("it can be taken away"));
    // A silent stream is looked at when it says that it is still there.
    while listener.next().await.is_some() {}
}
