//! The kill loop: real processes on one store, killed at random moments, for as long as wanted.
//!
//! A store's test starts itself again as a child (an environment variable names role and log), opens the store and calls
//! [`child`]. The parent calls [`kill_loop`] with a closure that starts such a child. Children write what they were told
//! to a log of their own, one line per write, so that a kill leaves whole lines; nothing is flushed to the disk, because
//! it is the process that dies and not the machine.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::{Batch, WorkerId};
use quell_core::error::ErrorKind;
use quell_core::event::LaneKey;
use quell_core::outcome::Verdict;
use quell_core::store::{AppendRequest, ClaimQueues, ClaimRequest, RunPolicy, SettleRequest, Store, Wakeups};
use quell_core::window::Window;
use serde_json::{Value, json};

use super::check::{Report, check};
use super::verdict_for;
use crate::builders::{EventBuilder, append_request, event, extend_request, lane, settle_request};
use crate::chance::Chance;

/// The lanes that all children share: few, so that they meet.
const LANES: u64 = 4;
/// Short, so that a killed worker's lane comes back while the loop still runs.
const LEASE: Duration = Duration::from_millis(400);
const ATTEMPTS: u32 = 6;
/// Waits of at most 100 ms each while a store is drained.
const DRAIN_WAITS_MAX: u32 = 600;

/// Where a child of this role and number writes.
pub fn log_path(folder: &Path, role: &str, index: usize) -> PathBuf {
    folder.join(format!("{role}-{index}.jsonl"))
}

/// How to run the loop.
#[derive(Debug, Clone)]
pub struct KillLoop {
    /// Children killed before the store is drained and checked.
    pub kills: u64,
    /// Decides which child dies and when.
    pub seed: u64,
    pub appenders: usize,
    pub workers: usize,
    /// The longest a loop waits between two kills.
    pub pause_max: Duration,
    /// Where the children's logs are; see [`log_path`]. Must be empty at the start.
    pub logs: PathBuf,
}

/// Starts children, kills random ones at random moments, drains what is left and checks everything.
///
/// `spawn` starts a child of a role (`append` or `work`) with a number that is never used twice; the child calls
/// [`child`] with the log of [`log_path`]. `open` opens the store after the last child was killed. Panics when anything
/// that was acknowledged is lost, doubled without a reason, or out of order.
pub fn kill_loop(
    options: &KillLoop,
    spawn: impl Fn(&str, usize) -> Child,
    open: impl AsyncFnOnce() -> Arc<dyn Store>,
) -> Report {
    let mut chance = Chance::seeded(options.seed);
    let mut index = 0;
    let mut start = |role: &'static str| {
        index += 1;
        (role, spawn(role, index))
    };
    let mut running: Vec<(&'static str, Child)> = Vec::new();
    for _ in 0..options.appenders {
        running.push(start("append"));
    }
    for _ in 0..options.workers {
        running.push(start("work"));
    }
    // Nobody ever sends: receiving with a time limit is how to wait here.
    let (_never, wait) = std::sync::mpsc::channel::<()>();
    let longest = u64::try_from(options.pause_max.as_millis()).unwrap_or(u64::MAX).max(1);
    for _ in 0..options.kills {
        let _ = wait.recv_timeout(Duration::from_millis(chance.below(longest)));
        let victim = usize::try_from(chance.below(running.len() as u64)).expect("a small index");
        let (role, mut child) = running.swap_remove(victim);
        end(role, &mut child);
        running.push(start(role));
    }
    let _ = wait.recv_timeout(options.pause_max);
    for (role, mut child) in running {
        end(role, &mut child);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a test machine can start two threads").block_on(async {
        let store = open().await;
        let drained = drain(&*store, async || ()).await;
        check(&options.logs, &*store, drained).await
    })
}

fn end(role: &str, child: &mut Child) {
    if let Some(status) = child.try_wait().expect("a child can be asked") {
        panic!("a child of role {role} ended by itself: {status}");
    }
    child.kill().expect("a child can be killed");
    child.wait().expect("a killed child ends");
}

/// Does the work of one role until it is killed, and writes down what it was told.
///
/// Panics on an answer that the contract does not allow; the parent sees that the child ended by itself.
pub async fn child(role: &str, store: Arc<dyn Store>, log: &Path) {
    let log = Log::open(log);
    match role {
        "append" => append_forever(&*store, log).await,
        "work" => work_forever(&*store, log).await,
        other => panic!("{other:?} is not a role; append and work are"),
    }
}

/// Lines that survive the death of their writer.
struct Log {
    name: String,
    file: File,
}

impl Log {
    fn open(path: &Path) -> Log {
        let name = path.file_stem().expect("a log has a name").to_string_lossy().into_owned();
        let file = OpenOptions::new().create(true).append(true).open(path).expect("a log can be opened");
        Log { name, file }
    }

    fn write(&mut self, line: &Value) {
        let line = format!("{line}\n");
        self.file.write_all(line.as_bytes()).expect("a line can be written");
    }
}

/// The lane of number `n`.
fn shared_lane(n: u64) -> LaneKey {
    lane("torture", &format!("lane-{n}"))
}

fn shared_event(n: u64, id: &str) -> EventBuilder {
    let event = event("torture", shared_lane(n).key.as_str()).id(id).lane_events(2_000);
    match n {
        0 => event,
        1 => event.window(Window::none().max_events(3)),
        2 => event.window(Window::quiet_capped(Duration::from_millis(5), Duration::from_millis(20))),
        _ => event.window(Window::fixed(Duration::from_millis(10)).max_bytes(100)),
    }
}

async fn append_forever(store: &dyn Store, mut log: Log) {
    let mut chance = Chance::seeded(seed_of(&log.name));
    let mut sent: Vec<(u64, String)> = Vec::new();
    for number in 0u64.. {
        let n = chance.below(LANES);
        let mut events: Vec<(u64, String)> = vec![(n, format!("{}-{number}", log.name))];
        if chance.percent(20) {
            events.push((chance.below(LANES), format!("{}-{number}b", log.name)));
        }
        if chance.percent(15) && !sent.is_empty() {
            events.push(chance.pick(&sent).clone());
        }
        let names: Vec<_> = events.iter().map(|(n, id)| json!([shared_lane(*n).key, id])).collect();
        log.write(&json!({ "sending": names }));
        let mut request = append_request(events.iter().map(|(n, id)| shared_event(*n, id)));
        let receipts = loop {
            match store.append(request.clone()).await {
                Ok(appended) => break Some(appended.receipts),
                Err(error) if error.is_unknown() => request = AppendRequest { repeat: true, ..request },
                Err(error) if error.kind == ErrorKind::Limit => break None,
                Err(error) if error.is_temporary() => pause(Duration::from_millis(5)).await,
                Err(error) => panic!("append: {error}"),
            }
        };
        let Some(receipts) = receipts else {
            log.write(&json!({ "refused": names }));
            pause(Duration::from_millis(20)).await;
            continue;
        };
        for ((n, id), receipt) in events.iter().zip(&receipts) {
            let key = shared_lane(*n).key;
            log.write(&json!({ "key": key, "acknowledged": id, "seq": receipt.seq, "duplicate": receipt.duplicate }));
        }
        sent.extend(events);
        // A store in memory answers without ever waiting; give the others a turn.
        tokio::task::yield_now().await;
    }
}

async fn work_forever(store: &dyn Store, mut log: Log) {
    let me = Arc::new(WorkerId { name: log.name.clone(), pid: std::process::id(), start: log.name.clone() });
    let mut listener = store.wakeups();
    loop {
        let claimed = match store.claim(claim_for(&me)).await {
            Ok(claimed) => claimed,
            Err(error) if error.is_temporary() => {
                pause(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => panic!("claim: {error}"),
        };
        if claimed.batches.is_empty() {
            let until_due = claimed.next_at.map_or(LEASE, |at| at.since(claimed.now));
            wait(&mut *listener, until_due).await;
        }
        for batch in &claimed.batches {
            handle(store, &mut log, batch).await;
        }
    }
}

fn claim_for(worker: &Arc<WorkerId>) -> ClaimRequest {
    let policy = RunPolicy { lease: LEASE, max_attempts: ATTEMPTS, ..RunPolicy::default() };
    ClaimRequest {
        worker: worker.clone(),
        queues: ClaimQueues::Any(Arc::new(policy)),
        tenant: None,
        max: 2,
        reclaim: true,
        claim_id: None,
    }
}

async fn handle(store: &dyn Store, log: &mut Log, batch: &Batch) {
    log.write(&begun(batch));
    if batch.token.is_multiple_of(3) {
        let extended = store.extend(extend_request(batch, LEASE)).await;
        if let Err(error) = extended {
            assert!(error.is_temporary() || error.kind == ErrorKind::LostLease, "extend: {error}");
        }
    }
    tokio::task::yield_now().await;
    let verdict = verdict_for(batch.token);
    log.write(&json!({ "ended": batch.run_id, "token": batch.token }));
    log.write(&settled(store, batch, verdict).await);
}

/// Settles until the answer is known, and says what it was.
async fn settled(store: &dyn Store, batch: &Batch, verdict: Verdict) -> Value {
    let request = SettleRequest { delay: Duration::from_millis(10), ..settle_request(batch, verdict) };
    loop {
        match store.settle(request.clone()).await {
            Ok(settled) => {
                return json!({ "settled": batch.run_id, "token": batch.token, "state": settled.state });
            }
            Err(error) if error.is_temporary() => pause(Duration::from_millis(5)).await,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::LostLease, "settle: {error}");
                return json!({ "lost": batch.run_id, "token": batch.token });
            }
        }
    }
}

fn begun(batch: &Batch) -> Value {
    let events: Vec<_> = batch.events.iter().map(|e| json!([e.seq, e.id])).collect();
    json!({
        "begun": batch.run_id,
        "key": batch.lane.key,
        "token": batch.token,
        "attempt": batch.attempt,
        "events": events,
    })
}

/// Finishes everything that is left, under new claims, and gives back log lines of what was delivered on the way.
///
/// `advance` moves store time where it does not move by itself.
pub async fn drain(store: &dyn Store, advance: impl AsyncFn()) -> Vec<Value> {
    let me = Arc::new(WorkerId { name: "drain".into(), pid: 1, start: "drain".into() });
    let mut lines = Vec::new();
    let mut listener = store.wakeups();
    let mut idle = 0;
    while idle < DRAIN_WAITS_MAX {
        let claimed = store.claim(claim_for(&me)).await.expect("nobody else is there");
        if claimed.batches.is_empty() && claimed.next_at.is_none() {
            return lines;
        }
        if claimed.batches.is_empty() {
            idle += 1;
            wait(&mut *listener, claimed.next_at.map_or(LEASE, |at| at.since(claimed.now))).await;
            advance().await;
        }
        for batch in &claimed.batches {
            lines.push(begun(batch));
            lines.push(settled(store, batch, Verdict::Succeeded).await);
        }
    }
    panic!("something is left that nobody can claim, after {DRAIN_WAITS_MAX} waits");
}

/// Waits for a wake-up, at most so long and never long.
async fn wait(listener: &mut dyn Wakeups, at_most: Duration) {
    let bounded = at_most.clamp(Duration::from_millis(1), Duration::from_millis(100));
    let _ = tokio::time::timeout(bounded, listener.woken()).await;
}

async fn pause(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Every child has a course of its own.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(7, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}
