//! What the pages of lanes, runs and dead letters cost and what they answer: without a browser.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::Payload;
use quell::quell_core::inspect::{AuditFilter, Inspect, Inspected};
use quell::quell_core::shelf::{ShelfAnswer, ShelfRequest};
use quell::quell_core::store::{
    AppendRequest, Appended, ClaimRequest, Claimed, Control, Controlled, Description, ExtendRequest,
    Extended, Held, HoldRequest, SettleRequest, Settled, SourceAnswer, SourceRequest, StepAnswer,
    StepRequest, Store, SweepRequest, Swept, Wakeups,
};
use quell::{Engine, Incoming};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::{CONFIG, Reply, World, settings, until};

/// The real store, and how often it was read and how much it gave.
pub(crate) struct Counted {
    store: Arc<dyn Store>,
    reads: AtomicUsize,
    rows: AtomicUsize,
}

impl Counted {
    /// Since it was last asked.
    fn taken(&self) -> (usize, usize) {
        (self.reads.swap(0, Ordering::SeqCst), self.rows.swap(0, Ordering::SeqCst))
    }
}

#[async_trait]
impl Store for Counted {
    async fn append(&self, request: AppendRequest) -> StoreResult<Appended> {
        self.store.append(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Claimed> {
        self.store.claim(request).await
    }

    async fn extend(&self, request: ExtendRequest) -> StoreResult<Extended> {
        self.store.extend(request).await
    }

    async fn hold(&self, request: HoldRequest) -> StoreResult<Held> {
        self.store.hold(request).await
    }

    async fn step(&self, request: StepRequest) -> StoreResult<StepAnswer> {
        self.store.step(request).await
    }

    async fn source(&self, request: SourceRequest) -> StoreResult<SourceAnswer> {
        self.store.source(request).await
    }

    async fn settle(&self, request: SettleRequest) -> StoreResult<Settled> {
        self.store.settle(request).await
    }

    async fn shelf(&self, request: ShelfRequest) -> StoreResult<ShelfAnswer> {
        self.store.shelf(request).await
    }

    async fn sweep(&self, request: SweepRequest) -> StoreResult<Swept> {
        self.store.sweep(request).await
    }

    async fn inspect(&self, request: Inspect) -> StoreResult<Inspected> {
        let answer = self.store.inspect(request).await?;
        let rows = match &answer {
            Inspected::Lanes(page) => page.items.len(),
            Inspected::Runs(page) => page.items.len(),
            Inspected::Audit(page) => page.items.len(),
            // The server looks at its totals by itself every few seconds, and nobody can say when.
            Inspected::Stats(_) => return Ok(answer),
            // The clock of the store is asked once in a while for all who look.
            Inspected::Health(_) => return Ok(answer),
            _ => 1,
        };
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.rows.fetch_add(rows, Ordering::SeqCst);
        Ok(answer)
    }

    async fn control(&self, request: Control) -> StoreResult<Controlled> {
        self.store.control(request).await
    }

    fn wakeups(&self) -> Box<dyn Wakeups> {
        self.store.wakeups()
    }

    fn description(&self) -> Description {
        self.store.description()
    }
}

pub(crate) async fn counted() -> (World, Arc<Counted>) {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let settings = settings(CONFIG, &folder);
    let store = quell::open::open(&settings.store, Duration::from_secs(5)).await.unwrap();
    let counted = Arc::new(Counted { store, reads: AtomicUsize::default(), rows: AtomicUsize::default() });
    let engine = Engine::with_store(counted.clone(), settings);
    (World::over(folder, engine, |options| options).await, counted)
}

/// What one look of a page's script costs.
pub(crate) async fn cost(world: &World, counted: &Counted, path: &str) -> (usize, usize) {
    counted.taken();
    let reply = Reply::of(world.request(Method::GET, path).header("HX-Request", "true")).await;
    assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
    counted.taken()
}

pub(crate) async fn fill(world: &World, keys: std::ops::Range<usize>) {
    let one = |n: usize| Incoming::new("jobs", &format!("key-{n:04}"), Payload::of(&json!(n))).unwrap();
    for part in keys.collect::<Vec<_>>().chunks(500) {
        world.engine.append(part.iter().map(|n| one(*n)).collect()).await.unwrap();
    }
}

#[tokio::test]
async fn a_look_at_a_page_costs_the_same_whatever_the_number_of_lanes() {
    let (world, counted) = counted().await;
    let pages = ["/ui/lanes", "/ui/lanes?q=queue%3Ajobs+key%3Akey-*", "/ui/lanes/jobs/key-0001", "/ui/dead"];
    fill(&world, 0..60).await;
    let mut few = Vec::new();
    for page in pages {
        few.push(cost(&world, &counted, page).await);
    }
    fill(&world, 60..2_000).await;
    for (page, few) in pages.into_iter().zip(few) {
        let many = cost(&world, &counted, page).await;
        assert_eq!(many, few, "{page}: reads and rows");
        assert!(many.0 <= 4 && many.1 <= 60, "{page}: {many:?}");
    }
    // What no index knows is looked for among a bounded number.
    let (reads, rows) = cost(&world, &counted, "/ui/lanes?q=why%3Apaused").await;
    assert!(reads <= 12 && rows <= 1_001, "{reads} reads, {rows} rows");
}

/// As a form of our own page sends it.
async fn post(world: &World, path: &str, fields: &[(&str, &str)]) -> Reply {
    let body: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = world.request(Method::POST, path).header("Sec-Fetch-Site", "same-origin");
    Reply::of(request.header("Content-Type", "application/x-www-form-urlencoded").body(body)).await
}

#[tokio::test]
async fn many_lanes_are_changed_by_an_operation_that_is_recorded_with_its_reason() {
    let world = World::new().await;
    for n in 0..12 {
        world.engine.send("chat", &format!("key-{n:02}"), json!(n)).await.unwrap();
    }
    let all = [("action", "pause"), ("scope", "all"), ("q", "queue:chat key:key-0*"), ("why", "a test")];
    let preview = post(&world, "/ui/lanes/preview", &all).await;
    assert!(preview.text.contains("<b>10</b> lanes would be changed"), "{}", preview.text);
    let trail = async || {
        let filter = AuditFilter { limit: 100, ..AuditFilter::default() };
        world.engine.audit(filter).await.unwrap().items
    };
    assert!(trail().await.is_empty(), "a preview does nothing");
    let begun = post(&world, "/ui/lanes/begin", &all).await;
    assert_eq!(begun.status, StatusCode::SEE_OTHER);
    let place = begun.header("location").to_owned();
    until("the operation to end", async || world.get(&place).await.text.contains("10 done, 10 changed"))
        .await;
    let trail = trail().await;
    assert_eq!(trail.len(), 10);
    assert!(trail.iter().all(|r| r.who() == Some("api") && r.reason() == Some("a test")), "{trail:?}");

    let again = post(&world, "/ui/lanes/preview", &all).await;
    assert!(again.text.contains("No lane would change"), "{}", again.text);
    let none = post(&world, "/ui/lanes/preview", &[("action", "pause")]).await;
    assert!(none.text.contains("none was ticked"), "{}", none.text);
    for wrong in [("action", "explode"), ("lane", "nonsense")] {
        let fields = [("action", "pause"), wrong];
        let fields = if wrong.0 == "action" { &fields[1..] } else { &fields[..] };
        assert!(post(&world, "/ui/lanes/preview", fields).await.status.is_client_error(), "{wrong:?}");
    }
    assert_eq!(world.get("/ui/operations/99").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_api_call_says_why_in_a_header() {
    let world = World::new().await;
    world.engine.send("chat", "ada", json!(1)).await.unwrap();
    let request = world.request(Method::POST, "/v1/lanes/chat/ada/pause").header("Quell-Reason", "it rains");
    assert_eq!(Reply::of(request).await.status, StatusCode::OK);
    let trail = world.get("/v1/audit?queue=chat").await.json();
    assert_eq!(trail["items"][0]["actor"], "api: it rains");
}
