//! How fast this store is by itself, on the server that the first argument names: bulk appends, appends of many callers
//! at once, and a drain. For finding out what a change of a statement did; `quell bench` measures the whole product.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use quell_core::event::{EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName};
use quell_core::outcome::Verdict;
use quell_core::store::{
    AppendRequest, ClaimQueues, ClaimRequest, RunPolicy, SettleRequest, Store, SweepRequest,
};
use quell_core::window::Window;
use quell_store_postgres::PostgresStore;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn event(queue: &str, key: String, n: usize) -> Result<NewEvent, Failure> {
    let lane = LaneKey::new(QueueName::new(queue)?, Key::new(key)?);
    let id = NewEventId::Made(EventId::new(format!("018f3c2e-7b1a-7c3d-9e4f-{n:012x}"))?);
    let text = "x".repeat(80);
    let payload = Payload::of(&serde_json::json!({ "n": n, "text": text }));
    let policy = quell_core::event::AppendPolicy { window: Window::none(), ..Default::default() };
    Ok(NewEvent::new(lane, id, payload, Arc::new(policy)))
}

fn told(what: &str, count: usize, took: Duration) {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = count as f64 / took.as_secs_f64();
    println!("{what:<44} {count:>7} in {took:>8.2?}  {rate:>8.0}/s");
}

async fn bulk(store: &Arc<dyn Store>, queue: &str, requests: usize, keys: usize) -> Result<(), Failure> {
    let since = Instant::now();
    for r in 0..requests {
        let events: Result<Vec<_>, _> = (0..1_000)
            .map(|n| {
                event(
                    queue,
                    format!("key-{:024x}", ((r * 1_000 + n) % keys).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                    r * 1_000 + n,
                )
            })
            .collect();
        store.append(AppendRequest { events: events?, repeat: false }).await?;
    }
    told(&format!("bulk of 1,000, {keys} keys"), requests * 1_000, since.elapsed());
    Ok(())
}

async fn concurrent(store: &Arc<dyn Store>, callers: usize, each: usize) -> Result<(), Failure> {
    let since = Instant::now();
    let mut tasks = Vec::new();
    for caller in 0..callers {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..each {
                let event = event("single", format!("key-{caller}-{n}"), caller * each + n)?;
                store.append(AppendRequest { events: vec![event], repeat: false }).await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    told(&format!("{callers} callers, one event each"), callers * each, since.elapsed());
    Ok(())
}

async fn drain(store: &Arc<dyn Store>, max: usize, workers: usize) -> Result<(), Failure> {
    let since = Instant::now();
    let mut tasks = Vec::new();
    for w in 0..workers {
        let store = store.clone();
        let worker = Arc::new(format!("w{w}:1:speed").parse()?);
        tasks.push(tokio::spawn(async move {
            let (mut lanes, mut settling) = (0, tokio::task::JoinSet::new());
            loop {
                let queues = ClaimQueues::Any(Arc::new(RunPolicy::default()));
                let worker = Arc::clone(&worker);
                let request =
                    ClaimRequest { worker, queues, tenant: None, max, reclaim: true, claim_id: None };
                let claimed = store.claim(request).await?;
                if claimed.batches.is_empty() {
                    break;
                }
                lanes += claimed.batches.len();
                for batch in claimed.batches {
                    let store = store.clone();
                    settling.spawn(async move {
                        store.settle(SettleRequest::new(batch.run_id, batch.token, Verdict::Succeeded)).await
                    });
                }
                while settling.len() > max {
                    if let Some(done) = settling.join_next().await {
                        done??;
                    }
                }
            }
            while let Some(done) = settling.join_next().await {
                done??;
            }
            Ok::<_, Failure>(lanes)
        }));
    }
    let mut lanes = 0;
    for task in tasks {
        lanes += task.await??;
    }
    told(&format!("drain, {workers} workers, claims of {max}"), lanes, since.elapsed());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args()
        .nth(1)
        .ok_or("name a server: postgres://user:password@host/database?schema=speed")?;
    let store: Arc<dyn Store> = PostgresStore::open_url(&url).await?;
    bulk(&store, "distinct", 60, usize::MAX).await?;
    drain(&store, 256, 1).await?;
    bulk(&store, "distinct", 60, 60_000).await?;
    drain(&store, 256, 2).await?;
    bulk(&store, "few", 40, 500).await?;
    bulk(&store, "few", 40, 500).await?;
    drain(&store, 256, 1).await?;
    concurrent(&store, 64, 600).await?;
    drain(&store, 256, 1).await?;
    let since = Instant::now();
    store.sweep(SweepRequest { reclaim: true, retention: Some(Duration::from_secs(3600)) }).await?;
    told("a sweep", 1, since.elapsed());
    Ok(())
}
