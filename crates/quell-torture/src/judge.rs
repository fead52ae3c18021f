//! The end of a history: everything is drained, the store is dumped, and the independent checker judges.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quell_check::Summary;
use quell_check::history::{Answer, Op, Phase, Record, read_processes};
use quell_core::batch::WorkerId;
use quell_core::error::StoreError;
use quell_core::inspect::LaneFilter;
use quell_core::outcome::Verdict;
use quell_core::store::{ControlAction, Store};

use crate::courses::{LEASE, courses, policies};
use crate::reads::{all_lanes, verify};
use crate::record::{Recorded, with_dump};
use crate::requests::settle_request;
use crate::roles::{act, claim_for, pause, settled, wait};

/// Waits of at most 100 ms each while a store is drained.
const DRAIN_WAITS_MAX: u32 = 600;

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A promise of the contract, told by the checker.
    #[error("{0}")]
    Promise(Box<quell_check::Violation>),
    /// The store's own count does not agree with its rows.
    #[error("the store finds itself in disorder: {}", .0.join("; "))]
    Disorder(Vec<String>),
    /// Nobody is left, and still something waits.
    #[error("something is left that nobody can claim, after {DRAIN_WAITS_MAX} waits of up to 100 ms: {0}")]
    Stuck(String),
    /// The store refused what it must do.
    #[error("{doing}: {problem}")]
    Store { doing: &'static str, problem: StoreError },
    /// A process ended by itself.
    #[error("a process of role {role} ended by itself ({status}):\n{said}")]
    Ended { role: &'static str, status: String, said: String },
    /// The logs of the processes are not what they should be.
    #[error("the logs cannot be read: {0}")]
    Logs(String),
    /// What the torture itself needs does not work.
    #[error("{0}")]
    Tool(String),
}

impl Broken {
    /// Whether something of Quell's is broken, and not what torture itself needs.
    pub fn is_finding(&self) -> bool {
        !matches!(self, Broken::Tool(_) | Broken::Logs(_))
    }
}

/// A history that kept every promise.
#[derive(Debug, Clone)]
pub struct Judged {
    /// What the checker counted.
    pub summary: Summary,
    /// Events whose sender was told that they are stored.
    pub acknowledged: u64,
    /// Runs in the end.
    pub runs: u64,
    /// Calls whose outcome nobody knew.
    pub unknown: u64,
}

/// Drains the store in this process, puts all logs into one order, and has everything checked. `advance` moves store time
/// where it does not move by itself.
pub async fn judge(logs: &Path, store: &Arc<dyn Store>, advance: impl AsyncFn()) -> Result<Judged, Broken> {
    let last = Arc::new(Mutex::new(Vec::new()));
    let sink = last.clone();
    let push = move |record| sink.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    let recorder = Recorded::new(store.clone(), u64::MAX - 1, Box::new(push));
    drain(&recorder, advance).await?;
    let last = std::mem::take(&mut *last.lock().unwrap_or_else(PoisonError::into_inner));
    judge_drained(logs, last, store).await
}

/// Judges a store in which nothing is left to do. `last` is what the logs do not have.
pub(crate) async fn judge_drained(
    logs: &Path,
    last: Vec<Record>,
    store: &Arc<dyn Store>,
) -> Result<Judged, Broken> {
    let mut files = Vec::new();
    let unread = |error: std::io::Error| Broken::Logs(error.to_string());
    for entry in std::fs::read_dir(logs).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(std::fs::read(path).map_err(unread)?);
        }
    }
    let told = read_processes(files.iter().map(Vec::as_slice)).map_err(|e| Broken::Logs(e.to_string()))?;
    drop(files);
    let mut records = policies();
    records.extend(told);
    records.extend(last);
    let failed = |doing| move |problem| Broken::Store { doing, problem };
    let verified = verify(&**store).await.map_err(failed("verify"))?;
    if !verified.problems.is_empty() {
        return Err(Broken::Disorder(verified.problems));
    }
    let records = with_dump(records, store, true).await.map_err(failed("dump"))?;
    let summary = quell_check::check(&records).map_err(Broken::Promise)?;
    let (mut acknowledged, mut unknown, mut runs) = (0, 0, 0);
    for record in &records {
        if let Some(Answer::Appended { receipts }) = &record.answer {
            acknowledged += receipts.iter().filter(|receipt| !receipt.duplicate).count() as u64;
        }
        if let Some(Op::Dump(dump)) = &record.op {
            runs = dump.runs.len() as u64;
        }
        unknown += u64::from(record.phase == Phase::Info);
    }
    Ok(Judged { summary, acknowledged, runs, unknown })
}

/// Finishes everything that is left, under new claims.
pub(crate) async fn drain(store: &Recorded, advance: impl AsyncFn()) -> Result<(), Broken> {
    let me = Arc::new(WorkerId { name: "drain".into(), pid: 1, start: "drain".into() });
    let courses = courses();
    let mut listener = store.wakeups();
    let mut idle = 0;
    let mut left = String::new();
    while idle < DRAIN_WAITS_MAX {
        let claimed = match store.claim(claim_for(&me, &courses)).await {
            Ok(claimed) => claimed,
            // A server that was just started again, or a connection that was cut before.
            Err(error) if error.is_temporary() => {
                idle += 1;
                left = error.to_string();
                pause(LEASE / 4).await;
                continue;
            }
            Err(problem) => return Err(Broken::Store { doing: "claim", problem }),
        };
        if claimed.batches.is_empty() {
            let lanes = all_lanes(store, LaneFilter::default()).await;
            let lanes = lanes.map_err(|problem| Broken::Store { doing: "list lanes", problem })?;
            let stuck: Vec<_> =
                lanes.iter().filter(|l| l.paused_by.is_some() || l.blocked_by.is_some()).collect();
            if stuck.is_empty() && claimed.next_at.is_none() {
                return Ok(());
            }
            for lane in stuck {
                act(store, ControlAction::ResumeLane(lane.lane.clone())).await;
            }
            idle += 1;
            left = lanes
                .iter()
                .map(|row| format!("{} {:?}", row.lane, row.state))
                .collect::<Vec<_>>()
                .join(", ");
            wait(&mut *listener, claimed.next_at.map_or(LEASE, |at| at.since(claimed.now))).await;
            advance().await;
        }
        for batch in &claimed.batches {
            settled(store, settle_request(batch, Verdict::Succeeded)).await;
        }
    }
    Err(Broken::Stuck(left))
}
