//! The kill loop: real processes on one store, killed at random moments, for as long as wanted.
//!
//! A store's test starts itself again as a child (an environment variable names role and log), opens the store and calls
//! [`child`]. The parent calls [`kill_loop`] with a closure that starts such a child. What children do and write down, and how
//! everything is drained, dumped and judged by the independent checker, is `quell-torture`, which `quell torture` uses too.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use quell_check::Summary;
use quell_core::store::Store;
use quell_torture::Role;

use crate::chance::Chance;

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
    /// Where the children's logs are; see [`quell_torture::log_path`]. Must be empty at the start.
    pub logs: PathBuf,
}

/// Starts children, kills random ones at random moments, drains what is left and checks everything.
///
/// `spawn` starts a child of a role (`append`, `work` or `operate`) with a number that is never used twice; the child
/// calls [`child`] with the log of [`quell_torture::log_path`]. `halfway` is called after half of the kills: to restart a server, for
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
    quell_torture::signal(child, signal).expect("a child can be signalled");
}

pub(super) fn end(role: &str, child: &mut Child) {
    quell_torture::end(child).unwrap_or_else(|error| panic!("a child of role {role}: {error}"));
}

/// Does the work of one role until it is killed, and writes down what it asked and was told.
///
/// Panics on an answer that the contract does not allow; the parent sees that the child ended by itself.
pub async fn child(role: &str, store: Arc<dyn Store>, log: &Path) {
    let role = Role::of(role).unwrap_or_else(|| panic!("{role:?} is not a role"));
    quell_torture::child(role, store, log).await.unwrap_or_else(|broken| panic!("{broken}"));
}

/// Drains the store, puts all logs into one order, and has everything checked. `advance` moves store time where it does not
/// move by itself.
pub async fn judge(logs: &Path, store: &Arc<dyn Store>, advance: impl AsyncFn()) -> Summary {
    let judged = quell_torture::judge(logs, store, advance).await;
    judged.unwrap_or_else(|broken| panic!("{broken}")).summary
}
