//! The kill loop: real processes on one store, killed at random moments, for as long as wanted.
//!
//! A store's test starts itself again as a child (an environment variable names role and log), opens the store and calls
//! [`child`]. The parent calls [`kill_loop`] with a closure that starts such a child. Children write every question and
//! answer to a log of their own (`record.rs`), one line per write, so that a kill leaves whole lines but for the last;
//! nothing is flushed to the disk, because it is the process that dies and not the machine. In the end everything is
//! drained, dumped, and judged by the independent checker.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quell_check::Summary;
use quell_check::history::{Record, read_processes};
use quell_core::batch::WorkerId;
use quell_core::inspect::LaneFilter;
use quell_core::outcome::Verdict;
use quell_core::store::{ControlAction, Store};

use super::courses::{LEASE, courses, policies};
use super::roles::{act, append_forever, claim_for, operate_forever, settled, wait, work_forever};
use crate::builders::settle_request;
use crate::chance::Chance;
use crate::reads::{all_lanes, verify};
use crate::record::{Recorded, whole_history};

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
    pub operators: usize,
    /// The longest a loop waits between two kills.
    pub pause_max: Duration,
    /// Of a hundred victims, so many are not killed but stopped for a while: they wake with leases that may be over.
    pub stopped: u64,
    /// Where the children's logs are; see [`log_path`]. Must be empty at the start.
    pub logs: PathBuf,
}

/// Starts children, kills random ones at random moments, drains what is left and checks everything.
///
/// `spawn` starts a child of a role (`append`, `work` or `operate`) with a number that is never used twice; the child
/// calls [`child`] with the log of [`log_path`]. `halfway` is called after half of the kills: to restart a server, for
/// instance. `open` opens the store after the last child was killed. Panics with the
/// first broken promise.
pub fn kill_loop(
    options: &KillLoop,
    spawn: impl Fn(&str, usize) -> Child,
    halfway: impl FnOnce(),
    open: impl AsyncFnOnce() -> Arc<dyn Store>,
) -> Summary {
    let mut chance = Chance::seeded(options.seed);
    let mut index = 0;
    let mut start = |role: &'static str| {
        index += 1;
        (role, spawn(role, index))
    };
    let mut running = Crew(Vec::new());
    let crew = [("append", options.appenders), ("work", options.workers), ("operate", options.operators)];
    for (role, count) in crew {
        running.0.extend((0..count).map(|_| start(role)));
    }
    // Nobody ever sends: receiving with a time limit is how to wait here.
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    let longest = u64::try_from(options.pause_max.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut halfway = Some(halfway);
    let mut stopped: Option<(usize, u64)> = None;
    for kill in 0..options.kills {
        if kill >= options.kills / 2
            && let Some(halfway) = halfway.take()
        {
            halfway();
        }
        let _ = pause.recv_timeout(Duration::from_millis(chance.below(longest)));
        let victim = usize::try_from(chance.below(running.0.len() as u64)).expect("a small index");
        if let Some((place, _)) = stopped.take_if(|(_, until)| *until <= kill) {
            signal(&running.0[place].1, rustix::process::Signal::CONT);
        }
        // One at a time is asleep, and keeps its place until it wakes.
        if stopped.is_none() && chance.percent(options.stopped) {
            signal(&running.0[victim].1, rustix::process::Signal::STOP);
            stopped = Some((victim, kill + 1 + chance.below(8)));
            continue;
        }
        if stopped.is_some_and(|(place, _)| place == victim) {
            continue;
        }
        let role = running.0[victim].0;
        end(role, &mut running.0[victim].1);
        running.0[victim] = start(role);
    }
    if let Some((place, _)) = stopped {
        signal(&running.0[place].1, rustix::process::Signal::CONT);
    }
    let _ = pause.recv_timeout(options.pause_max);
    while let Some((role, mut child)) = running.0.pop() {
        end(role, &mut child);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a test machine can start two threads").block_on(async {
        let store = open().await;
        judge(&options.logs, &store, async || ()).await
    })
}

/// The children that are alive. None outlives the loop, also when it fails.
pub(super) struct Crew(pub(super) Vec<(&'static str, Child)>);

impl Drop for Crew {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(super) fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a child has a process number");
    rustix::process::kill_process(pid, signal).expect("a child can be signalled");
}

pub(super) fn end(role: &str, child: &mut Child) {
    if let Some(status) = child.try_wait().expect("a child can be asked") {
        panic!("a child of role {role} ended by itself: {status}");
    }
    child.kill().expect("a child can be killed");
    child.wait().expect("a killed child ends");
}

/// Does the work of one role until it is killed, and writes down what it asked and was told.
///
/// Panics on an answer that the contract does not allow; the parent sees that the child ended by itself.
pub async fn child(role: &str, store: Arc<dyn Store>, log: &Path) {
    let name = log.file_stem().expect("a log has a name").to_string_lossy().into_owned();
    let number = name.rsplit('-').next().and_then(|n| n.parse::<u64>().ok()).expect("a log has a number");
    let mut file = OpenOptions::new().create(true).append(true).open(log).expect("a log can be opened");
    // Number 0 is nobody.
    let recorded = Recorded::new(store, number + 1, Box::new(move |record| write_line(&mut file, &record)));
    match role {
        "append" => append_forever(&recorded, &name).await,
        "work" => work_forever(&recorded, &name).await,
        "operate" => operate_forever(&recorded, &name).await,
        other => panic!("{other:?} is not a role; append, work and operate are"),
    }
}

/// One line in one write: it survives the death of its writer whole or not at all.
fn write_line(file: &mut File, record: &Record) {
    let mut line = serde_json::to_string(record).expect("a record is always JSON");
    line.push('\n');
    file.write_all(line.as_bytes()).expect("a line can be written");
}

/// Drains the store, puts all logs into one order, and has everything checked.
pub async fn judge(logs: &Path, store: &Arc<dyn Store>, advance: impl AsyncFn()) -> Summary {
    let last = Arc::new(Mutex::new(Vec::new()));
    let sink = last.clone();
    let push = move |record| sink.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    let recorder = Recorded::new(store.clone(), u64::MAX - 1, Box::new(push));
    drain(&recorder, advance).await;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(logs).expect("the logs are there") {
        files.push(std::fs::read(entry.expect("a folder can be listed").path()).expect("a log can be read"));
    }
    let told = read_processes(files.iter().map(Vec::as_slice)).expect("logs are whole lines");
    let mut records = policies();
    records.extend(told);
    records.extend(std::mem::take(&mut *last.lock().unwrap_or_else(PoisonError::into_inner)));
    let verified = verify(&**store).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    whole_history(records, store, true).await
}

/// Finishes everything that is left, under new claims. `advance` moves store time where it does not move by itself.
async fn drain(store: &Recorded, advance: impl AsyncFn()) {
    let me = Arc::new(WorkerId { name: "drain".into(), pid: 1, start: "drain".into() });
    let courses = courses();
    let mut listener = store.wakeups();
    let mut idle = 0;
    while idle < DRAIN_WAITS_MAX {
        let claimed = store.claim(claim_for(&me, &courses)).await.expect("nobody else is there");
        if claimed.batches.is_empty() {
            let lanes = all_lanes(store, LaneFilter::default()).await;
            let stuck: Vec<_> =
                lanes.into_iter().filter(|l| l.paused_by.is_some() || l.blocked_by.is_some()).collect();
            if stuck.is_empty() && claimed.next_at.is_none() {
                return;
            }
            for lane in stuck {
                act(store, ControlAction::ResumeLane(lane.lane)).await;
            }
            idle += 1;
            wait(&mut *listener, claimed.next_at.map_or(LEASE, |at| at.since(claimed.now))).await;
            advance().await;
        }
        for batch in &claimed.batches {
            settled(store, settle_request(batch, Verdict::Succeeded)).await;
        }
    }
    panic!("something is left that nobody can claim, after {DRAIN_WAITS_MAX} waits");
}
