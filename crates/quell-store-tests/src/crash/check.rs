//! Checks the logs of killed processes against what the store has kept.
//!
//! From the logs alone comes what the outside was told: which events were acknowledged, which were sent at all, which
//! batches a handler saw. From the store comes what it thinks has happened. They must agree:
//!
//! - nothing acknowledged is lost: each such event is in exactly one succeeded or failed run, with the number told;
//! - nothing is invented: each stored event was sent by somebody;
//! - per lane the finished runs tile the events in order, without overlap and without a gap;
//! - a batch that was handed out twice is the same batch, and the earlier attempt has an end in the audit;
//! - a settle that was answered is in the audit, a settle that was refused lost its lease before;
//! - leases never overlap and tokens rise (`reads::check_trail`), and the totals hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quell_core::audit::AuditRecord;
use quell_core::batch::RunId;
use quell_core::inspect::{AuditFilter, LaneFilter, RunDetail, RunFilter};
use quell_core::lifecycle::{Change, RunState};
use quell_core::store::Store;
use serde_json::Value;

use crate::reads::{all_lanes, all_runs, check_trail, run_detail, stats, trail, verify};

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

/// What a kill loop has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Different events that were acknowledged.
    pub acknowledged: u64,
    /// Events in the store, acknowledged or not.
    pub stored: u64,
    /// Batches that handlers saw.
    pub delivered: u64,
    /// Of these, the ones seen before.
    pub redelivered: u64,
    /// Leases that were taken back.
    pub reclaimed: u64,
    /// Settles that were refused because the lease was lost.
    pub lost: u64,
    /// Events in the dead letter.
    pub dead: u64,
}

/// What the outside was told.
#[derive(Default)]
struct Logs {
    /// (key, id) of everything that was sent.
    sent: BTreeSet<(String, String)>,
    /// (key, id) to the sequence number of everything that was acknowledged.
    acknowledged: BTreeMap<(String, String), u64>,
    deliveries: Vec<Delivery>,
    /// (run, token) and the state that was answered.
    settled: Vec<(RunId, u64, RunState)>,
    lost: Vec<(RunId, u64)>,
}

struct Delivery {
    run: RunId,
    key: String,
    token: u64,
    events: Vec<(u64, String)>,
}

/// Checks everything after the store was drained; `drained` are the log lines of that. Panics on the first problem.
pub async fn check(folder: &Path, store: &dyn Store, drained: Vec<Value>) -> Report {
    let mut logs = Logs::default();
    for entry in std::fs::read_dir(folder).expect("the logs are there") {
        let path = entry.expect("a folder can be listed").path();
        logs.read(&std::fs::read_to_string(&path).expect("a log can be read"));
    }
    for line in &drained {
        logs.line(line);
    }
    let rows = all_runs(store, RunFilter { limit: 1_000, ..RunFilter::default() }).await;
    let mut runs = Vec::new();
    for row in &rows {
        runs.push(*run_detail(store, row.id).await.expect("a listed run is found"));
    }
    let audit = trail(store, AuditFilter::default()).await;
    check_trail(&audit, &rows);
    let stored = logs.check_events(&runs);
    check_tiling(&runs);
    logs.check_deliveries(&audit);
    logs.check_settles(&audit);
    let lanes = all_lanes(store, LaneFilter::default()).await;
    assert!(lanes.is_empty(), "after draining every lane is idle: {lanes:?}");
    let problems = verify(store).await.problems;
    assert!(problems.is_empty(), "{problems:?}");
    let mut report = logs.report(&audit);
    report.stored = stored;
    for queue in stats(store).await {
        assert!(queue.totals.hold(), "{queue:?}");
        assert_eq!(queue.totals.accepted, stored, "every stored event was counted once");
        report.dead += queue.totals.dead;
    }
    report
}

impl Logs {
    fn read(&mut self, text: &str) {
        for line in text.lines() {
            self.line(&serde_json::from_str(line).expect("one write is one whole line"));
        }
    }

    fn line(&mut self, line: &Value) {
        let text = |name: &str| line[name].as_str().expect("the driver wrote it").to_owned();
        let number = |name: &str| line[name].as_u64().expect("the driver wrote it");
        let run = |name: &str| text(name).parse::<RunId>().expect("the driver wrote a run id");
        if let Some(names) = line["sending"].as_array() {
            let pair = |n: &Value| Some((n.get(0)?.as_str()?.to_owned(), n.get(1)?.as_str()?.to_owned()));
            self.sent.extend(names.iter().map(|n| pair(n).expect("the driver wrote key and id")));
        } else if line.get("acknowledged").is_some() {
            let event = (text("key"), text("acknowledged"));
            let first = *self.acknowledged.entry(event.clone()).or_insert(number("seq"));
            assert_eq!(first, number("seq"), "{event:?}: a duplicate gets the first event's number");
        } else if line.get("begun").is_some() {
            let events = line["events"].as_array().expect("the driver wrote a list").iter();
            let events =
                events.map(|e| (e[0].as_u64().expect("a number"), e[1].as_str().expect("an id").to_owned()));
            let events = events.collect();
            let (run, token) = (run("begun"), number("token"));
            self.deliveries.push(Delivery { run, key: text("key"), token, events });
        } else if line.get("settled").is_some() {
            let state = serde_json::from_value(line["state"].clone()).expect("the driver wrote a state");
            self.settled.push((run("settled"), number("token"), state));
        } else if line.get("lost").is_some() {
            self.lost.push((run("lost"), number("token")));
        }
    }

    /// Nothing lost, nothing invented, nothing twice. Answers how many events are stored.
    fn check_events(&self, runs: &[RunDetail]) -> u64 {
        let mut found: BTreeMap<(String, String), u64> = BTreeMap::new();
        for run in runs {
            let state = run.row.state;
            assert!(state.is_final(), "after draining every run has ended: {:?}", run.row);
            assert_eq!(run.row.events, run.list.len() as u64, "a run keeps all its events: {:?}", run.row);
            for event in &run.list {
                let name = (run.row.lane.key.as_str().to_owned(), event.id.as_str().to_owned());
                assert!(self.sent.contains(&name), "{name:?} is stored but nobody sent it");
                let twice = found.insert(name.clone(), event.seq);
                assert!(twice.is_none(), "{name:?} is in two runs");
            }
        }
        for (name, seq) in &self.acknowledged {
            assert_eq!(found.get(name), Some(seq), "{name:?} was acknowledged and is lost");
        }
        found.len() as u64
    }

    fn check_deliveries(&self, audit: &[AuditRecord]) {
        let mut by_token: BTreeMap<(RunId, u64), Vec<Change>> = BTreeMap::new();
        for record in audit {
            if let Some(run) = record.run {
                by_token.entry((run, record.token)).or_default().push(record.change);
            }
        }
        let mut first_of: BTreeMap<RunId, &Delivery> = BTreeMap::new();
        let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
        let mut deliveries: Vec<&Delivery> = self.deliveries.iter().collect();
        deliveries.sort_by_key(|d| d.token);
        for delivery in deliveries {
            let told = by_token.get(&(delivery.run, delivery.token));
            let told =
                told.unwrap_or_else(|| panic!("token {} was handed out off the record", delivery.token));
            assert_eq!(told[0], Change::Claimed, "an attempt starts with its claim: {told:?}");
            assert!(told.len() == 2, "after draining each attempt has one end: {told:?}");
            let seqs: Vec<u64> = delivery.events.iter().map(|(seq, _)| *seq).collect();
            assert!(seqs.is_sorted_by(|a, b| a < b), "a batch is in order: {seqs:?}");
            match first_of.get(&delivery.run) {
                Some(first) => {
                    assert_eq!(delivery.events, first.events, "a batch is frozen: {}", delivery.run)
                }
                None => {
                    let before = highest.insert(&delivery.key, *seqs.last().expect("not empty")).unwrap_or(0);
                    assert!(seqs[0] > before, "{}: {seqs:?} after {before} goes backwards", delivery.key);
                    first_of.insert(delivery.run, delivery);
                }
            }
        }
    }

    fn check_settles(&self, audit: &[AuditRecord]) {
        let ends: BTreeMap<(RunId, u64), &AuditRecord> = audit
            .iter()
            .filter(|r| r.change != Change::Claimed)
            .filter_map(|r| Some(((r.run?, r.token), r)))
            .collect();
        for (run, token, state) in &self.settled {
            let end = ends.get(&(*run, *token)).unwrap_or_else(|| panic!("the settle of {run} is lost"));
            assert!(end.verdict.is_some() && end.to == Some(*state), "{run} answered {state}: {end:?}");
        }
        for (run, token) in &self.lost {
            let end = ends.get(&(*run, *token)).unwrap_or_else(|| panic!("{run} was refused for no reason"));
            assert!(
                matches!(end.change, Change::Reclaimed | Change::Expired),
                "{run} was refused, but its lease was not taken back: {end:?}"
            );
        }
    }

    fn report(&self, audit: &[AuditRecord]) -> Report {
        let different: BTreeSet<RunId> = self.deliveries.iter().map(|d| d.run).collect();
        let taken = |r: &&AuditRecord| matches!(r.change, Change::Reclaimed | Change::Expired);
        Report {
            acknowledged: self.acknowledged.len() as u64,
            stored: 0,
            delivered: self.deliveries.len() as u64,
            redelivered: (self.deliveries.len() - different.len()) as u64,
            reclaimed: audit.iter().filter(taken).count() as u64,
            lost: self.lost.len() as u64,
            dead: 0,
        }
    }
}

/// Per lane the runs, in the order in which they were first claimed, hold the events in order and without overlap.
fn check_tiling(runs: &[RunDetail]) {
    let mut of_lane: BTreeMap<_, Vec<&RunDetail>> = BTreeMap::new();
    for run in runs {
        of_lane.entry(&run.row.lane).or_default().push(run);
    }
    for (lane, mut runs) in of_lane {
        runs.sort_by_key(|r| r.row.token);
        let mut last = 0;
        for run in runs {
            for event in &run.list {
                assert!(event.seq > last, "{lane}: {} of {} comes after {last}", event.seq, run.row.id);
                last = event.seq;
            }
        }
    }
}
