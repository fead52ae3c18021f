//! What the processes of `governed.rs` do, and how they and their parent hear of each other: each writes lines to a log of
//! its own, and goes on when the parent has put up a sign, which is a file beside the logs.

use std::fs::{File, OpenOptions};
use std::future::pending;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::{Batch, RunId, WorkerId};
use quell_core::clock::Timestamp;
use quell_core::error::ErrorKind;
use quell_core::source::SourceReport;
use quell_core::store::{ClaimQueue, ClaimQueues, ClaimRequest, Claimed, RunPolicy, SettleRequest};
use quell_core::store::{SourceAction, SourceAnswer, Store};
use quell_torture::pause;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::governed::{COURSES, FLIGHTS, SHOP};
use crate::builders::{SUCCEEDED, ask, claim_request_by, extend, queue, settle, settle_request};
use crate::reads::health;

/// Short: whoever was stopped wakes without its leases, and the lanes of one that was killed come back while others work.
const WORK_LEASE: Duration = Duration::from_millis(400);
/// Lanes of one claim: few, so that a burst is shared between processes.
pub(super) const WORK_LANES: i64 = 3;
/// What the probe that dies claims with, and what it asks for while it still lives.
const PROBE_LEASE: Duration = Duration::from_millis(1_000);
const PROBE_EXTENDED: Duration = Duration::from_millis(3_000);
/// Longer than any test: it decides nothing.
const LONG_LEASE: Duration = Duration::from_secs(120);
/// Between two looks for a sign.
const LOOK: Duration = Duration::from_millis(2);
/// A process whose parent has died does not stay: a minute or two.
const LOOKS_MAX: u32 = 30_000;

/// A line of a process's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(super) enum Line {
    /// The store is open.
    Ready,
    /// A claim found nothing.
    Nothing {
        now: Timestamp,
    },
    Handed(Handed),
    /// The lease was kept.
    Kept {
        until: Timestamp,
    },
    /// From now on a good verdict may be known.
    Settling {
        now: Timestamp,
    },
    /// What became of the question for a kept answer.
    Told {
        round: usize,
        answer: Told,
    },
}

/// A lane that was handed out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Handed {
    pub(super) queue: String,
    pub(super) run: RunId,
    pub(super) token: u64,
    /// The store's time of the claim. A claim that had to wait for the source reads its time before and gets its token
    /// after that, so this is the earliest moment of the token.
    pub(super) at: Timestamp,
    /// Store time when the answer was there: the latest.
    pub(super) upto: Timestamp,
    /// The token is given back: no request is made.
    pub(super) unused: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    Fetch,
    Fetching,
    Kept,
    Forgot,
    Hit(serde_json::Value),
}

/// Where a process of this name writes.
pub(super) fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.jsonl"))
}

/// Whole lines; the last one of a process that was killed may be cut.
pub(super) fn read_log(folder: &Path, name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(log_of(folder, name)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a process writes lines")).collect()
}

pub(super) fn put_up(folder: &Path, sign: &str) {
    std::fs::write(folder.join(sign), []).expect("a sign can be put up");
}

/// One process: its store, its log, and the folder of signs.
pub(super) struct Process {
    store: Arc<dyn Store>,
    worker: Arc<WorkerId>,
    name: String,
    folder: PathBuf,
    log: File,
}

impl Process {
    pub(super) fn new(store: Arc<dyn Store>, folder: &Path, name: &str) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(log_of(folder, name));
        Process {
            store,
            worker: Arc::new(WorkerId { name: name.into(), pid: std::process::id(), start: name.into() }),
            name: name.to_owned(),
            folder: folder.to_owned(),
            log: log.expect("a log can be opened"),
        }
    }

    pub(super) async fn run(mut self, errand: &str) {
        self.write(&Line::Ready);
        match errand {
            "work" => self.work().await,
            "probe" => self.probe().await,
            "follow" => self.follow().await,
            "recall" => self.recall().await,
            other => panic!("{other:?} is not an errand; work, probe, follow and recall are"),
        }
    }

    fn write(&mut self, line: &Line) {
        self.write_all(std::slice::from_ref(line));
    }

    /// In one write: what was written before a kill is there.
    fn write_all(&mut self, lines: &[Line]) {
        let mut text = String::new();
        for line in lines {
            text.push_str(&serde_json::to_string(line).expect("a line is always JSON"));
            text.push('\n');
        }
        self.log.write_all(text.as_bytes()).expect("a line can be written");
    }

    fn sees(&self, sign: &str) -> bool {
        self.folder.join(sign).exists()
    }

    async fn until(&self, sign: &str) {
        for _ in 0..LOOKS_MAX {
            if self.sees(sign) {
                return;
            }
            pause(LOOK).await;
        }
        panic!("{} waits for {sign:?} in vain", self.name);
    }

    async fn now(&self) -> Timestamp {
        health(&*self.store).await.now
    }

    async fn claim(&self, request: ClaimRequest) -> Claimed {
        loop {
            match self.store.claim(request.clone()).await {
                Ok(claimed) => return claimed,
                Err(error) => assert!(error.is_temporary(), "claim: {error}"),
            }
            pause(LOOK).await;
        }
    }

    /// What a claim was handed, as it is written down.
    async fn handed(&self, batches: &[Batch]) -> Vec<Handed> {
        let upto = self.now().await;
        let made = |batch: &Batch| Handed {
            queue: batch.lane.queue.to_string(),
            run: batch.run_id,
            token: batch.token,
            at: batch.claimed_at,
            upto,
            unused: false,
        };
        batches.iter().map(made).collect()
    }

    /// Claims lanes of every course and settles at once, as fast as it can. Whoever finds nothing waits for the next token,
    /// as all others do, so that they meet there.
    async fn work(&mut self) {
        let max = usize::try_from(WORK_LANES).expect("a small number");
        let policy = Arc::new(RunPolicy { lease: WORK_LEASE, max_attempts: 100, ..RunPolicy::default() });
        let of = |name: &str| ClaimQueue::new(queue(name), policy.clone(), max);
        let request = ClaimRequest {
            queues: ClaimQueues::Listed(COURSES.iter().map(|course| of(course.name)).collect()),
            max,
            ..claim_request_by(&self.worker, (*policy).clone())
        };
        self.until("go").await;
        for _ in 0..LOOKS_MAX {
            if self.sees("stop") {
                return;
            }
            let Claimed { batches, now, next_at, .. } = self.claim(request.clone()).await;
            if batches.is_empty() {
                self.write(&Line::Nothing { now });
                let wait = next_at.map_or(LOOK, |at| at.since(now));
                pause(wait.clamp(Duration::from_millis(1), Duration::from_millis(25))).await;
            } else {
                let mut handed = self.handed(&batches).await;
                for one in &mut handed {
                    let course = COURSES.iter().find(|course| course.name == one.queue);
                    one.unused = course.is_some_and(|course| course.gives_back && one.token % 3 == 0);
                }
                self.write_all(&handed.iter().cloned().map(Line::Handed).collect::<Vec<_>>());
                for (batch, one) in batches.iter().zip(&handed) {
                    let source = if one.unused { SourceReport::Unused } else { SourceReport::Fine };
                    self.settled(SettleRequest { source, ..settle_request(batch, SUCCEEDED) }).await;
                }
            }
        }
        panic!("{} is told by nobody to stop", self.name);
    }

    /// Settles until the answer is known; a lease that ran out while this process was stopped is lost.
    async fn settled(&self, request: SettleRequest) {
        while let Err(error) = self.store.settle(request.clone()).await {
            if !error.is_temporary() {
                assert_eq!(error.kind, ErrorKind::LostLease, "settle: {error}");
                return;
            }
            pause(LOOK).await;
        }
    }

    /// Becomes the probe, keeps its lease once, and is killed.
    async fn probe(&mut self) {
        self.until("probe").await;
        let policy = RunPolicy { lease: PROBE_LEASE, ..RunPolicy::default() };
        let batches = self.claimed_at_last(claim_request_by(&self.worker, policy)).await;
        for batch in &batches {
            let until = extend(&*self.store, batch, PROBE_EXTENDED).await.lease_until;
            self.write(&Line::Kept { until });
        }
        let _ = tokio::time::timeout(LONG_LEASE, pending::<()>()).await;
    }

    async fn claimed_at_last(&mut self, request: ClaimRequest) -> Vec<Batch> {
        for _ in 0..LOOKS_MAX {
            let Claimed { batches, now, .. } = self.claim(request.clone()).await;
            if !batches.is_empty() {
                let lines: Vec<_> = self.handed(&batches).await.into_iter().map(Line::Handed).collect();
                self.write_all(&lines);
                return batches;
            }
            self.write(&Line::Nothing { now });
            pause(LOOK).await;
        }
        panic!("{} finds nothing", self.name);
    }

    /// Tries to get a lane all the time, and holds what it gets until it is told that the source is well.
    async fn follow(&mut self) {
        let policy = RunPolicy { lease: LONG_LEASE, ..RunPolicy::default() };
        let request = claim_request_by(&self.worker, policy);
        self.until("follow").await;
        for _ in 0..LOOKS_MAX {
            if self.sees("stop") {
                return;
            }
            let Claimed { batches, now, .. } = self.claim(request.clone()).await;
            if batches.is_empty() {
                self.write(&Line::Nothing { now });
                pause(LOOK).await;
                continue;
            }
            let lines: Vec<_> = self.handed(&batches).await.into_iter().map(Line::Handed).collect();
            self.write_all(&lines);
            self.until("well").await;
            let now = self.now().await;
            self.write(&Line::Settling { now });
            for batch in &batches {
                settle(&*self.store, batch, SUCCEEDED).await;
            }
        }
        panic!("{} is told by nobody to stop", self.name);
    }

    /// Holds one run and wants the same answers as all others, at the same moments.
    async fn recall(&mut self) {
        let policy = RunPolicy { lease: LONG_LEASE, ..RunPolicy::default() };
        let request = ClaimRequest { max: 1, ..claim_request_by(&self.worker, policy) };
        let batch = self.claimed_at_last(request).await.remove(0);
        for round in 0..FLIGHTS {
            self.until(&format!("recall-{round}")).await;
            let mut waits = false;
            let mut fetches = 0;
            loop {
                let key = format!("price of {round} in {SHOP}");
                let asked = SourceAction::Recall { key: key.clone(), ttl: None };
                match ask(&*self.store, &batch, asked).await {
                    SourceAnswer::Hit(value) => {
                        self.write(&Line::Told { round, answer: Told::Hit(value) });
                        break;
                    }
                    SourceAnswer::Fetch { until: Some(_) } => {
                        self.write(&Line::Told { round, answer: Told::Fetch });
                        fetches += 1;
                        if self.forgets(round, fetches).await {
                            ask(&*self.store, &batch, SourceAction::Forget { key }).await;
                            self.write(&Line::Told { round, answer: Told::Forgot });
                        } else {
                            let value = json!({ "round": round, "by": self.name });
                            ask(&*self.store, &batch, SourceAction::Keep { key, value, ttl: None }).await;
                            self.write(&Line::Told { round, answer: Told::Kept });
                        }
                    }
                    SourceAnswer::Fetching { .. } if !waits => {
                        self.write(&Line::Told { round, answer: Told::Fetching });
                        waits = true;
                    }
                    SourceAnswer::Fetching { .. } => pause(LOOK).await,
                    other => panic!("not an answer to a recall: {other:?}"),
                }
                assert!(fetches < 10, "an answer that was kept is there");
            }
        }
        settle(&*self.store, &batch, SUCCEEDED).await;
    }

    /// Whoever fetches waits until it is told how that ends. Only the first flight of a round brings nothing.
    async fn forgets(&self, round: usize, fetches: u32) -> bool {
        let (keep, forget) = (format!("keep-{round}"), format!("forget-{round}-{}", self.name));
        for _ in 0..LOOKS_MAX {
            if self.sees(&keep) {
                return false;
            }
            if fetches == 1 && self.sees(&forget) {
                return true;
            }
            pause(LOOK).await;
        }
        panic!("{} fetches and is told nothing", self.name);
    }
}
