//! Both sides are read from the first row to the last and compared.
//!
//! Rows are put into one form of bytes, MessagePack by position, in which two stores that keep the same thing in other
//! ways agree: fields that mean nothing any more (the lease of a run that ended) and keys that records only show are left
//! out. A digest per lane says where a difference is; the digest of a kind is that of the digests of its lanes.

use futures_util::future::join;
use futures_util::{StreamExt, stream};
use quell_core::aside::Aside;
use quell_core::batch::RunId;
use quell_core::copy::{Counts, Frame, LaneRow, Portable};
use quell_core::error::StoreResult;
use quell_core::lane::Finished;
use quell_core::limits;
use quell_core::totals::Totals;
use quell_core::working_set::{FinishedRun, Kept, Trail};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{Copier, CopyError, Names, PAGE_LANES, PAGE_ROWS, Phase, live_runs, next_event};

/// Differences that are told by name; of the others only how many there are.
const TOLD: usize = 5;
/// Lanes that are read at once on each side.
const LANES_AT_ONCE: usize = 8;

/// SHA-256 in hexadecimal over all rows of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Digests {
    /// Over all lanes.
    pub lanes: String,
    /// Over all events.
    pub events: String,
    /// Over all runs that have ended.
    pub runs: String,
    /// Over all steps.
    pub steps: String,
    /// Over what waits aside: delayed events, notices, follow-up work.
    pub aside: String,
    /// Over the audit trail.
    pub audit: String,
}

/// Rows of one kind, how many and which.
#[derive(Clone, Default)]
struct Rows {
    count: u64,
    hash: Sha256,
}

impl Rows {
    fn add(&mut self, row: &impl Serialize) {
        self.count += 1;
        let bytes = rmp_serde::to_vec(row).expect("rows of a store always have a form in bytes");
        // The length in front, so that no two sequences of rows have the same bytes.
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    fn sum(self) -> Sum {
        Sum { count: self.count, digest: self.hash.finalize().into() }
    }
}

/// A finished digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    count: u64,
    digest: [u8; 32],
}

impl Sum {
    fn hex(&self) -> String {
        self.digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Everything that belongs to a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaneSum {
    row: Sum,
    events: Sum,
    runs: Sum,
    steps: Sum,
}

/// One lane on both sides.
pub(super) async fn both(
    from: &dyn Portable,
    to: &dyn Portable,
    names: &Names,
    source: &LaneRow,
    target: &LaneRow,
) -> Result<(LaneSum, LaneSum), CopyError> {
    let failed = |which: &str| {
        let which = which.to_owned();
        move |problem| CopyError::Store { which, problem }
    };
    let (one, other) = join(lane(from, source, true), lane(to, target, true)).await;
    Ok((one.map_err(failed(&names.from))?, other.map_err(failed(&names.to))?))
}

async fn lane(side: &dyn Portable, row: &LaneRow, with_steps: bool) -> StoreResult<LaneSum> {
    let id = row.lane.id;
    let (mut lane, mut events, mut runs, mut steps) =
        (Rows::default(), Rows::default(), Rows::default(), Rows::default());
    lane.add(row);
    let mut after = 0;
    loop {
        let page = side.events(id, after, PAGE_ROWS).await?;
        page.iter().for_each(|kept| events.add(&event_form(kept)));
        match next_event(&page) {
            Some(last) => after = last,
            None => break,
        }
    }
    let mut numbers = live_runs(row);
    let mut after = 0;
    loop {
        let page = side.runs(id, after, PAGE_ROWS).await?;
        for run in &page {
            runs.add(&run_form(run));
            numbers.push(run.ended.run.number);
        }
        match page.last() {
            Some(last) if page.len() >= PAGE_ROWS => after = last.ended.run.number,
            _ => break,
        }
    }
    if with_steps {
        numbers.sort_unstable();
        for number in numbers {
            for step in side.steps(RunId { lane: id, number }).await? {
                steps.add(&(number, step));
            }
        }
    }
    Ok(LaneSum { row: lane.sum(), events: events.sum(), runs: runs.sum(), steps: steps.sum() })
}

fn event_form(kept: &Kept) -> impl Serialize + '_ {
    (&kept.event, kept.mark, kept.priority, kept.print.0, kept.source)
}

/// Of a run that has ended, nobody asks any more what its next attempt would have been.
fn run_form(run: &FinishedRun) -> impl Serialize + '_ {
    let Finished { run: mut ended, state, at, .. } = run.ended.clone();
    ended.state = state;
    ended.releases_in_row = 0;
    ended.max_attempts = 0;
    ended.rules.max_interrupts = limits::INTERRUPTS_DEFAULT;
    ended.claimed_head = ended.hi;
    ended.claim_id = None;
    ended.lease_until = at;
    ended.due_at = at;
    (run.lane, &run.key, ended, at, &run.result, &run.usage)
}

/// An event that has been accepted has no wishes about being accepted.
fn aside_form(aside: &Aside) -> Aside {
    let mut aside = aside.clone();
    aside.event.delay = None;
    aside.event.only_if_idle = false;
    aside
}

fn trail_form(trail: &Trail) -> impl Serialize {
    let mut record = trail.record.clone();
    record.key = None;
    (trail.lane, record)
}

/// What belongs to no lane, in an order and without queues that never had anything.
fn frame_form(
    frame: &Frame,
) -> (impl PartialEq, impl PartialEq, impl PartialEq, impl PartialEq, impl PartialEq) {
    let used = frame.totals.iter().filter(|(_, _, totals)| *totals != Totals::default());
    let mut totals: Vec<_> = used.cloned().collect();
    totals.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let mut pauses = frame.pauses.clone();
    pauses.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let mut schedules = frame.schedules.clone();
    schedules
        .sort_by(|a, b| (&a.schedule.tenant, &a.schedule.name).cmp(&(&b.schedule.tenant, &b.schedule.name)));
    let (mut declarations, mut sources) = (frame.declarations.clone(), frame.sources.clone());
    declarations.sort_by(|a, b| a.name.cmp(&b.name));
    sources.sort_by_key(|source| source.id);
    let mut documents = frame.documents.clone();
    documents.sort_by(|(shelf, a), (other, b)| (shelf, &a.name).cmp(&(other, &b.name)));
    (totals, pauses, schedules, (declarations, sources), documents)
}

/// What was found not to be the same.
#[derive(Default)]
struct Differences {
    told: Vec<String>,
    more: u64,
}

impl Differences {
    fn add(&mut self, what: impl FnOnce() -> String) {
        if self.told.len() < TOLD { self.told.push(what()) } else { self.more += 1 }
    }
}

impl Copier<'_> {
    pub(super) async fn verify(&mut self, frame: &Frame) -> Result<Digests, CopyError> {
        let mut found = Differences::default();
        let there = self.wrote(self.to.frame().await)?;
        compare_counts(&frame.counts, &there.counts, &mut found);
        let (totals, pauses, schedules, sources, documents) = frame_form(frame);
        let (totals_there, pauses_there, schedules_there, sources_there, documents_there) =
            frame_form(&there);
        for (same, what) in [
            (totals == totals_there, "the counters of the queues"),
            (pauses == pauses_there, "the pauses of queues"),
            (schedules == schedules_there, "the schedules"),
            (sources == sources_there, "the sources"),
            (documents == documents_there, "the documents on shelves"),
        ] {
            if !same {
                found.add(|| format!("{what} differ"));
            }
        }
        if there.last_number < frame.last_number {
            let (source, target) = (frame.last_number, there.last_number);
            found.add(|| format!("its numbers go on after {target} and not after {source}"));
        }
        let ([lanes, events, runs, steps], mut read) = self.verify_lanes(frame, &mut found).await?;
        let aside = self.verify_asides(&mut found).await?;
        let audit = self.verify_trail(&mut found).await?;
        (read.aside, read.audit) = (aside.count, audit.count);
        if found.told.is_empty() && read != frame.counts {
            let counts = frame.counts;
            found.add(|| format!("the source has told {counts:?} and has given {read:?}"));
        }
        if !found.told.is_empty() {
            if found.more > 0 {
                found.told.push(format!("and {} more", found.more));
            }
            return Err(CopyError::Differs { to: self.names.to.clone(), what: found.told });
        }
        let [lanes, events, runs, steps, aside, audit] =
            [lanes, events, runs, steps, aside, audit].map(|sum| sum.hex());
        Ok(Digests { lanes, events, runs, steps, aside, audit })
    }

    /// The digests of the source's lanes, events, runs and steps, and how many rows were read.
    async fn verify_lanes(
        &mut self,
        frame: &Frame,
        found: &mut Differences,
    ) -> Result<([Sum; 4], Counts), CopyError> {
        let with_steps = frame.counts.steps > 0;
        let mut sums: [Rows; 4] = std::array::from_fn(|_| Rows::default());
        let mut read = Counts::default();
        let (mut after, mut done, of) = (0, 0, frame.counts.lanes);
        self.tell(Phase::Verify, 0, of);
        loop {
            let (page, there) =
                join(self.from.lanes(after, PAGE_LANES), self.to.lanes(after, PAGE_LANES)).await;
            let (page, there) = (self.read(page)?, self.wrote(there)?);
            let ids = |page: &[LaneRow]| page.iter().map(|row| row.lane.id).collect::<Vec<_>>();
            if ids(&page) != ids(&there) {
                let at = ids(&page).iter().zip(&ids(&there)).take_while(|(a, b)| a == b).count();
                let (one, other) = (page.get(at), there.get(at));
                let lane = one.or(other).map_or_else(String::new, |row| row.key.to_string());
                found.add(|| format!("the lanes are not the same from {lane} on"));
                break;
            }
            let Some(last) = page.last().map(|row| row.lane.id) else { break };
            after = last;
            done += page.len() as u64;
            let (from, to) = (self.from, self.to);
            let mut pairs = stream::iter(page.into_iter().zip(there))
                .map(|(source, target)| async move {
                    // Steps that only the target has are found by their count.
                    let sums = join(lane(from, &source, with_steps), lane(to, &target, with_steps)).await;
                    (source, sums)
                })
                .buffered(LANES_AT_ONCE);
            while let Some((source, (one, other))) = pairs.next().await {
                let (one, other) = (self.read(one)?, self.wrote(other)?);
                let of = |sum: &LaneSum| [sum.row, sum.events, sum.runs, sum.steps];
                let kinds = ["its own row", "its events", "its runs", "its steps"];
                for ((one, other), what) in of(&one).into_iter().zip(of(&other)).zip(kinds) {
                    if one != other {
                        let lane = (&source.key, source.lane.id);
                        found.add(|| format!("lane {} (number {}): {what} differ", lane.0, lane.1));
                    }
                }
                read.lanes += 1;
                read.events += one.events.count;
                read.runs += one.runs.count;
                read.steps += one.steps.count;
                for (sum, of_lane) in sums.iter_mut().zip(of(&one)) {
                    sum.add(&(source.lane.id, of_lane.count, of_lane.digest));
                }
            }
            drop(pairs);
            self.tell(Phase::Verify, done, of);
        }
        Ok((sums.map(Rows::sum), read))
    }

    async fn verify_asides(&mut self, found: &mut Differences) -> Result<Sum, CopyError> {
        let (mut one, mut other) = (Rows::default(), Rows::default());
        let mut after = 0;
        loop {
            let page = self.read(self.from.asides(after, PAGE_ROWS).await)?;
            let Some(last) = page.last() else { break };
            after = last.number;
            page.iter().for_each(|aside| one.add(&aside_form(aside)));
        }
        let mut after = 0;
        loop {
            let page = self.wrote(self.to.asides(after, PAGE_ROWS).await)?;
            let Some(last) = page.last() else { break };
            after = last.number;
            page.iter().for_each(|aside| other.add(&aside_form(aside)));
        }
        let (one, other) = (one.sum(), other.sum());
        if one != other {
            found.add(|| "the events aside differ".to_owned());
        }
        Ok(one)
    }

    async fn verify_trail(&mut self, found: &mut Differences) -> Result<Sum, CopyError> {
        let mut sum = Rows::default();
        let mut after = 0;
        loop {
            let (page, there) =
                join(self.from.trail(after, PAGE_ROWS), self.to.trail(after, PAGE_ROWS)).await;
            let (page, there) = (self.read(page)?, self.wrote(there)?);
            let (mut one, mut other) = (Rows::default(), Rows::default());
            page.iter().for_each(|trail| one.add(&trail_form(trail)));
            there.iter().for_each(|trail| other.add(&trail_form(trail)));
            page.iter().for_each(|trail| sum.add(&trail_form(trail)));
            if one.sum() != other.sum() {
                found.add(|| format!("the audit records after number {after} differ"));
                break;
            }
            let Some(last) = page.last() else { break };
            after = last.record.id;
        }
        Ok(sum.sum())
    }
}

fn compare_counts(source: &Counts, target: &Counts, found: &mut Differences) {
    let of = |c: &Counts| [c.lanes, c.events, c.runs, c.steps, c.aside, c.audit];
    let kinds = ["lanes", "events", "runs", "steps", "events aside", "audit records"];
    for ((source, target), what) in of(source).into_iter().zip(of(target)).zip(kinds) {
        if source != target {
            found.add(|| format!("it has {target} {what} and not {source}"));
        }
    }
}
