//! A server that is restarted and killed in the middle of everything: nothing acknowledged is lost, unknown answers are
//! resolved by repeating, and work goes on by itself soon after.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quell_core::error::ErrorKind;
use quell_core::store::{AppendRequest, ClaimRequest, Store};
use quell_store_postgres::PostgresStore;
use quell_store_tests::builders::{
    SUCCEEDED, append_one, append_request, claim_request, event, settle_request, worker,
};
use quell_store_tests::reads::{totals, verify};
use quell_test_servers::{Options, Postgres};

/// After the server is back, a claim works within this time. The promise is five seconds; a machine with something else to do gets
/// three times as long.
const SOON: Duration = Duration::from_secs(15);

#[derive(Default)]
struct Books {
    /// Acknowledged ids by key, in the order of their numbers.
    stored: Mutex<BTreeMap<String, BTreeMap<u64, String>>>,
    handled: Mutex<BTreeMap<String, Vec<String>>>,
    unknown: AtomicU64,
    /// Nothing more is sent.
    stop: AtomicBool,
    /// Nothing more will be sent: the last sender has its answer. Whoever handles may go when it finds nothing.
    all_sent: AtomicBool,
}

/// Repeats a request until it is known what became of it.
async fn send(store: &dyn Store, mut request: AppendRequest, books: &Books) -> u64 {
    loop {
        match store.append(request.clone()).await {
            Ok(done) => return done.receipts[0].seq.expect("it is in its lane"),
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                if error.is_unknown() {
                    request.repeat = true;
                    books.unknown.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn sender(store: Arc<dyn Store>, books: Arc<Books>, nth: usize) {
    for n in 0.. {
        if books.stop.load(Ordering::SeqCst) {
            return;
        }
        let (key, id) = (format!("k{}", (nth + n) % 5), format!("e-{nth}-{n}"));
        let seq = send(&*store, append_request([event("chat", &key).made(&id)]), &books).await;
        books.stored.lock().expect("no task panics").entry(key).or_default().insert(seq, id);
    }
}

async fn handler(store: Arc<dyn Store>, books: Arc<Books>, nth: usize) {
    let worker = worker(&format!("w{nth}"));
    loop {
        // Read before the claim: what it does not find then is not there.
        let last_look = books.all_sent.load(Ordering::SeqCst);
        let claimed = match store.claim(claim_request(&worker)).await {
            Ok(claimed) => claimed,
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        if claimed.batches.is_empty() && last_look {
            return;
        }
        if claimed.batches.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for batch in claimed.batches {
            let ids: Vec<String> = batch.events.iter().map(|e| e.id.to_string()).collect();
            books
                .handled
                .lock()
                .expect("no task panics")
                .entry(batch.lane.key.to_string())
                .or_default()
                .extend(ids);
            loop {
                match store.settle(settle_request(&batch, SUCCEEDED)).await {
                    Ok(_) => break,
                    Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(20)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// Waits until a claim is answered.
async fn works_again(store: &dyn Store) -> Duration {
    let since = Instant::now();
    loop {
        let request = ClaimRequest { max: 0, ..claim_request(&worker("probe")) };
        match store.claim(request).await {
            Ok(_) => return since.elapsed(),
            Err(error) => assert_eq!(error.kind, ErrorKind::Unavailable, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_server_that_is_restarted_and_killed_loses_nothing_and_is_used_again_by_itself() {
    let mut server = Postgres::start(Options::default()).expect("PostgreSQL is installed");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let books = Arc::new(Books::default());
    let store: Arc<dyn Store> = runtime.block_on(PostgresStore::open_url(&server.url())).expect("it opens");
    let (mut senders, mut handlers) = (Vec::new(), Vec::new());
    for nth in 0..4 {
        senders.push(runtime.spawn(sender(store.clone(), books.clone(), nth)));
    }
    for nth in 0..2 {
        handlers.push(runtime.spawn(handler(store.clone(), books.clone(), nth)));
    }
    let pause = |ms| runtime.block_on(async { tokio::time::sleep(Duration::from_millis(ms)).await });
    for round in 0..6 {
        pause(400);
        if round % 2 == 0 {
            server.kill().expect("it can be killed");
        } else {
            server.stop().expect("it can be stopped");
        }
        pause(100);
        server.start_again().expect("it starts again");
        let took = runtime.block_on(works_again(&*store));
        assert!(took < SOON, "round {round}: claims work again after {took:?}");
    }
    pause(300);
    books.stop.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        for task in senders {
            task.await.expect("no task panics");
        }
        books.all_sent.store(true, Ordering::SeqCst);
        for task in handlers {
            task.await.expect("no task panics");
        }
        let stored = books.stored.lock().unwrap().clone();
        let handled = books.handled.lock().unwrap().clone();
        let mut events = 0;
        for (key, of_key) in &stored {
            let sent: Vec<&String> = of_key.values().collect();
            let got: Vec<&String> = handled[key].iter().collect();
            // Nobody died, so every batch was handled once, and a lane in order.
            assert_eq!(sent, got, "lane {key}");
            events += sent.len() as u64;
        }
        let totals = totals(&*store, "chat").await;
        assert_eq!((totals.accepted, totals.succeeded), (events, events), "{totals:?}");
        assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
        println!("{events} events, {} unknown answers", books.unknown.load(Ordering::Relaxed));
        append_one(&*store, event("chat", "last")).await;
    });
    drop(store);
    runtime.shutdown_timeout(Duration::from_secs(5));
}
