//! Servers that stop, die and forget: nothing that was acknowledged is lost, nothing is told twice, and work goes on by
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quell_core::copy::{Frame, Portable};
use quell_core::error::{ErrorKind, StoreError};
use quell_core::limits::{RANGE_BITS, RANGE_JUMP, RANGES_FROM};
use quell_core::outcome::Verdict;
use quell_core::store::{AppendRequest, SettleRequest, Store};
use quell_core::tables::Cell;
use quell_store_redis::{Options, RedisStore};
use quell_store_tests::builders::{append_one, claim_request, event, settle, worker};
use quell_store_tests::reads;
use quell_test_servers::{Options as Server, Redis};

async fn opened(server: &Redis) -> Arc<RedisStore> {
    RedisStore::open(Options::parse(&server.url()).expect("a good address")).await.expect("the store opens")
}

/// Repeats a call until the server has answered: an unknown answer is resolved by repeating, never by guessing.
macro_rules! insisted {
    ($call:expr) => {{
        let began = Instant::now();
        loop {
            match $call.await {
                Ok(done) => break done,
                Err(error) => {
                    let error: StoreError = error;
                    assert!(error.is_temporary(), "only what will pass is repeated: {error}");
                    assert!(
                        began.elapsed() < Duration::from_secs(60),
                        "the server came back long ago: {error}"
                    );
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }};
}

/// Sends events of its own until it is told to stop; says which were acknowledged.
async fn sender(store: Arc<RedisStore>, name: usize, stop: Arc<AtomicBool>) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let id = format!("e{name}-{n}");
        let new = event("chat", &format!("k{}", n % 7)).id(&id).build();
        let mut repeat = false;
        let appended = insisted!(async {
            let request =
                AppendRequest { events: vec![new.clone()], repeat: std::mem::replace(&mut repeat, true) };
            store.append(request).await
        });
        acknowledged.push((id, appended.receipts[0].seq.expect("it is in its lane")));
    }
    acknowledged
}

/// Claims and settles until nothing is left after it is told to stop; says which events were handed to it, by token.
async fn claimer(store: Arc<RedisStore>, name: usize, stop: Arc<AtomicBool>) -> Vec<(u64, Vec<String>)> {
    let own = worker(&format!("w{name}"));
    let mut handled = Vec::new();
    let mut n = 0;
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        n += 1;
        let mut request = claim_request(&own);
        request.max = 3;
        request.claim_id = Some(format!("c{name}-{n}"));
        let claimed = insisted!(store.claim(request.clone()));
        if claimed.batches.is_empty() {
            if stopping {
                return handled;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for batch in claimed.batches {
            let ids = batch.events.iter().map(|event| event.id.as_str().to_owned()).collect();
            let request = SettleRequest::new(batch.run_id, batch.token, Verdict::Succeeded);
            insisted!(store.settle(request.clone()));
            handled.push((batch.token, ids));
        }
    }
}

/// Senders and claimers work while the server is hurt; in the end everything acknowledged has been handled once.
async fn work_through(server: &mut Redis, hurt: impl Fn(&mut Redis)) {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicBool::new(false));
    let stores = [opened(server).await, opened(server).await];
    let senders: Vec<_> =
        (0..3).map(|n| tokio::spawn(sender(stores[n % 2].clone(), n, stop.clone()))).collect();
    let claimers: Vec<_> =
        (0..2).map(|n| tokio::spawn(claimer(stores[n % 2].clone(), n, done.clone()))).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        tokio::task::block_in_place(|| hurt(server));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::SeqCst);
    let mut acknowledged = BTreeMap::new();
    for sender in senders {
        for (id, seq) in sender.await.expect("a sender ends well") {
            assert_eq!(acknowledged.insert(id.clone(), seq), None, "{id} twice");
        }
    }
    let seqs: BTreeSet<u64> = acknowledged.values().copied().collect();
    assert_eq!(seqs.len(), acknowledged.len(), "no number is told twice");
    done.store(true, Ordering::SeqCst);
    let (mut tokens, mut handled) = (BTreeSet::new(), BTreeMap::new());
    for claimer in claimers {
        for (token, ids) in claimer.await.expect("a claimer ends well") {
            assert!(tokens.insert(token), "token {token} was told twice");
            for id in ids {
                *handled.entry(id).or_insert(0) += 1;
            }
        }
    }
    assert!(acknowledged.len() > 50, "only {} events in all that time", acknowledged.len());
    for id in acknowledged.keys() {
        assert_eq!(handled.get(id), Some(&1), "{id} was acknowledged");
    }
    let verified = reads::verify(&*stores[0]).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_loses_nothing() {
    let mut server = Redis::start().expect("a server starts");
    work_through(&mut server, |server| {
        server.kill().expect("it can be killed");
        server.start_again().expect("it starts again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_loses_nothing() {
    let mut server = Redis::start().expect("a server starts");
    work_through(&mut server, |server| server.restart().expect("it starts again")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_a_server_forgot_are_told_again() {
    let mut server = Redis::start().expect("a server starts");
    let url = server.url();
    work_through(&mut server, |_| {
        let mut connection =
            redis::Client::open(url.as_str()).and_then(|c| c.get_connection()).expect("it answers");
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).expect("it forgets");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_away_calls_are_refused_and_then_served_again() {
    let mut server = Redis::start().expect("a server starts");
    let store = opened(&server).await;
    append_one(&*store, event("chat", "k1")).await;
    server.kill().expect("it can be killed");
    let request = AppendRequest { events: vec![event("chat", "k2").build()], repeat: false };
    let error = store.append(request).await.expect_err("nobody is there");
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(store.claim(claim_request(&worker("w"))).await.expect_err("nobody is there").is_temporary());
    server.start_again().expect("it starts again");
    let began = Instant::now();
    let claimed = insisted!(store.claim(claim_request(&worker("w"))));
    // Five seconds are the promise; a machine with something else to do gets three times as long.
    assert!(began.elapsed() < Duration::from_secs(15), "claims work again soon");
    assert_eq!(claimed.batches.len(), 1);
    settle(&*store, &claimed.batches[0], Verdict::Succeeded).await;
}

/// Counts in a key of an application.
async fn counted(store: &Arc<RedisStore>) -> Result<Vec<Cell>, StoreError> {
    let keys = store.clone().keys().expect("it has keys");
    keys.run("shop", "return { redis.call('INCR', KEYS[1]) }", &["sold"], vec![]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_of_applications_are_told_again_to_a_server_that_has_forgotten_them() {
    let mut server = Redis::start().expect("a server starts");
    let store = opened(&server).await;
    assert_eq!(counted(&store).await, Ok(vec![Cell::Int(1)]));
    let mut connection =
        redis::Client::open(server.url()).and_then(|c| c.get_connection()).expect("it answers");
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).expect("it forgets");
    assert_eq!(counted(&store).await, Ok(vec![Cell::Int(2)]));
    server.kill().expect("it can be killed");
    let error = counted(&store).await.expect_err("nobody is there");
    assert!(error.is_temporary(), "{error}");
    server.start_again().expect("it starts again");
    let answer = insisted!(counted(&store));
    assert_eq!(answer, [Cell::Int(3)], "a call that nobody heard was not done");
    // The server was opened on the way: the next number lies behind the jump.
    let receipt = append_one(&*store, event("chat", "k")).await;
    assert!(receipt.seq.is_some_and(|seq| seq > quell_core::limits::EPOCH_JUMP), "{receipt:?}");
}

/// What follows its range belongs to another database of the same store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_databases_stays_in_its_range_when_its_server_is_restarted() {
    let first = RANGES_FROM + (5 << RANGE_BITS);
    let mut server = Redis::start().expect("a server starts");
    let store = opened(&server).await;
    let frame = store.frame().await.expect("it has one");
    store.take_frame(&Frame { last_number: first, ..frame }).await.expect("nothing is stored in it yet");
    let seq = async || append_one(&*store, event("chat", "k")).await.seq.expect("it has entered its lane");
    let before = seq().await;
    assert!(before > first, "{before}");
    server.kill().expect("it can be killed");
    server.start_again().expect("it starts again");
    insisted!(store.claim(claim_request(&worker("w"))));
    let after = seq().await;
    assert!(after >= before + RANGE_JUMP && after < first + (1 << RANGE_BITS), "{before} {after}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("it is a folder") {
        let entry = entry.expect("it can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it has a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// The server comes back without its tail: what it told since is told to nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_its_tail_tells_no_number_twice() {
    let mut server =
        Redis::start_with(Server::default().setting("appendfsync", "everysec")).expect("a server starts");
    // Two processes, so that blocks of numbers are out when the tail is lost.
    let (store, other) = (opened(&server).await, opened(&server).await);
    append_one(&*store, event("chat", "k")).await;
    append_one(&*other, event("mail", "k")).await;
    let saved = tempfile::tempdir().expect("a temporary folder can be made");
    server.stop().expect("it stops");
    let log = server.folder().join("appendonlydir");
    copy(&log, saved.path());
    server.start_again().expect("it starts again");
    let (mut seqs, mut tokens) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..4 {
        let mut largest = (0, 0);
        for n in 0..20 {
            let store = if n % 2 == 0 { &store } else { &other };
            let id = format!("r{round}-{n}");
            let new = event("chat", "k").id(&id).build();
            let appended = insisted!(store.append(AppendRequest { events: vec![new.clone()], repeat: true }));
            let seq = appended.receipts[0].seq.expect("it is in its lane");
            assert!(seq > largest.0, "numbers of a lane rise");
            assert!(seqs.iter().all(|known| *known < seq), "beyond all that were ever told");
            largest.0 = seq;
            seqs.insert(seq);
            let claimed = insisted!(store.claim(claim_request(&worker("w"))));
            for batch in claimed.batches {
                assert!(
                    tokens.iter().all(|known| *known < batch.token),
                    "tokens rise, also over a lost tail"
                );
                assert!(tokens.insert(batch.token));
                largest.1 = batch.token;
                let request = SettleRequest::new(batch.run_id, batch.token, Verdict::Succeeded);
                insisted!(store.settle(request.clone()));
            }
        }
        server.kill().expect("it can be killed");
        std::fs::remove_dir_all(&log).expect("the log can be removed");
        copy(saved.path(), &log);
        server.start_again().expect("it starts again");
    }
}
