//! Reads the whole store through its own reads, when nothing goes on any more, in the words of the checker.

use std::collections::BTreeMap;

use quell_check::history::{AuditEntry, Dump, DumpEvent, DumpRun, Name, Place, QueueTotals};
use quell_core::audit::AuditRecord;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{Event, LaneKey};
use quell_core::inspect::{AuditFilter, RunFilter, RunRow};
use quell_core::lifecycle::RunState;
use quell_core::store::Store;

use super::{Recorded, hash, lane_name, owner, same_word};
use crate::reads::{all_runs, run_detail, stats, trail};

/// What the checker judges. Events that are still aside cannot be listed: whoever wants them judged drains first, and
/// the counters tell whether that was done.
pub async fn dump(recorder: &Recorded, drained: bool) -> StoreResult<Dump> {
    let store: &dyn Store = &*recorder.inner;
    let rows = all_runs(store, RunFilter { limit: 1_000, ..RunFilter::default() }).await?;
    let mut events = Vec::new();
    for row in rows.iter().filter(|row| row.events > 0) {
        let Some(detail) = run_detail(store, row.id).await? else {
            let detail = format!("run {} is listed and cannot be read", row.id);
            return Err(StoreError::new(ErrorKind::Corrupt, detail));
        };
        for event in &detail.list {
            recorder.made_itself(&row.lane, event.id.as_str(), &event.payload);
            events.push(dump_event(&row.lane, event, row));
        }
    }
    let mut audit = trail(store, AuditFilter::default()).await?;
    audit.sort_by_key(|record| record.id);
    let names: BTreeMap<u64, Name> = rows.iter().map(|row| (row.id.lane, lane_name(&row.lane))).collect();
    let mut queues = stats(store).await?;
    queues.sort_by(|a, b| (&a.tenant, &a.queue).cmp(&(&b.tenant, &b.queue)));
    Ok(Dump {
        drained,
        queues: queues
            .iter()
            .map(|s| QueueTotals {
                queue: owner(&s.tenant, &s.queue),
                accepted: s.totals.accepted,
                succeeded: s.totals.succeeded,
                dead: s.totals.dead,
                discarded: s.totals.discarded,
                delayed: s.totals.delayed,
                buffered: s.totals.buffered,
                in_flight: s.totals.in_flight,
            })
            .collect(),
        events,
        runs: rows.iter().map(dump_run).collect(),
        audit: audit.into_iter().map(|record| audit_entry(record, &names)).collect(),
        audit_from: None,
        trails: Vec::new(),
    })
}

fn dump_event(lane: &LaneKey, event: &Event, run: &RunRow) -> DumpEvent {
    let place = match run.state {
        RunState::Succeeded => Place::Succeeded,
        RunState::Failed => Place::Dead,
        RunState::Cancelled => Place::Discarded,
        // Halves of a split were in flight before; everything else that nobody has claimed is buffered.
        RunState::Pending if run.claims == 0 && run.links.split_from.is_none() => Place::Buffered,
        RunState::Pending | RunState::Running | RunState::Retryable => Place::InFlight,
    };
    DumpEvent {
        queue: owner(&lane.tenant, &lane.queue),
        lane: lane_name(lane),
        seq: Some(event.seq),
        id: event.id.as_str().into(),
        hash: hash(event.payload.as_str()),
        place,
        run: Some(run.id.number),
        received_at: event.received_at.as_millis(),
        was_seq: event.was_seq,
    }
}

fn dump_run(row: &RunRow) -> DumpRun {
    DumpRun {
        lane: lane_name(&row.lane),
        run: row.id.number,
        state: same_word(&row.state),
        count: row.events,
        lo: row.lo,
        hi: row.hi,
        attempts: row.attempts,
        claims: row.claims,
        revision: row.revision,
        held: false,
        merged_into: row.links.merged_into.map(|run| run.number),
        split_from: row.links.split_from.map(|run| run.number),
        redriven_from: row.links.redriven_from.map(|run| run.number),
        first_at: Some(row.created_at.as_millis()),
    }
}

fn audit_entry(record: AuditRecord, names: &BTreeMap<u64, Name>) -> AuditEntry {
    let AuditRecord { tenant, queue, key, .. } = record;
    let own = key.map(|key| lane_name(&LaneKey { tenant, queue, key }));
    AuditEntry {
        lane: own.or_else(|| names.get(&record.run?.lane).cloned()),
        run: record.run.map(|run| run.number),
        from: record.from.map(|state| same_word(&state)),
        to: record.to.map(|state| same_word(&state)),
        attempt: record.attempt,
        token: record.token,
        worker: record.worker.map(Name::from),
        prior_worker: record.prior_worker.map(Name::from),
        upto_seq: record.upto_seq,
        next_at: record.next_at.map(|at| at.as_millis()),
        other_run: record.other_run.map(|run| run.number),
        verdict: record.verdict.map(|verdict| same_word(&verdict)),
        actor: record.actor.map(Name::from),
        ..AuditEntry::new(record.id, record.at.as_millis(), record.change.as_str())
    }
}
