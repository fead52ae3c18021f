//! Everything from one store to another, resumable and verified: the driver behind `quell store copy`.
//!
//! 1. While the source is in use, its lanes are copied in the order of their numbers, each with its events, runs and steps.
//!    After each page of lanes the target keeps the place, so a copy that was cut short goes on there.
//! 2. The source is **sealed**. From now on nothing changes in it, and what is left is bounded by what changed since the
//!    beginning: the trail and the events aside, and the lanes that have changed. A lane has changed when its row says so,
//!    when the trail names it since, or when somebody holds it; lanes that the source has no longer are removed. Only the
//!    retention takes rows out of lanes in silence: then the counts do not agree, and all lanes are compared.
//! 3. The target takes over what applications keep (`copy/applications.rs`), the totals, the pauses, the schedules and the
//!    sequence.
//! 4. Everything is read back from both sides and compared, by counts and by SHA-256 over all rows of each kind in order.
//!
//! The target is sealed while it is being filled, so that nobody works on half a store, and opened at the end. The source
//! stays sealed: two stores that both accept events are worse than none.
//!
//! Memory is bounded by pages; only the numbers of lanes that the trail names since the beginning are kept.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use quell_core::batch::{RunId, base32};
use quell_core::clock::Timestamp;
use quell_core::copy::{Counts, Frame, LaneRow, Portable, Row};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::totals::Totals;
use serde::{Deserialize, Serialize};

mod applications;
mod verify;

pub use applications::{Application, Belongings, CopiedTable, Rows, Table};
pub use verify::Digests;

use applications::AppPlace;

/// Lanes of one page: after each the target keeps its place.
const PAGE_LANES: usize = 200;
/// Rows of one page of everything else.
const PAGE_ROWS: usize = 1_000;
/// A page of events is complete when it has fewer than asked for and its payloads stay below this.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Rows and bytes that are put in one transaction.
const PUT_ROWS: usize = 2_000;
const PUT_BYTES: usize = 4 * 1024 * 1024;
/// Calls of one kind that are under way at once.
const AT_ONCE: usize = 16;
/// A change that was under way when the copy began may carry an earlier time.
const MARGIN: Duration = Duration::from_secs(60);
/// What a seal says that a copy has set on its source, and on its target.
const COPY_TO: &str = "a copy to ";
const COPY_FROM: &str = "a copy from ";

/// How the two stores are called: in what is told to people, and to recognise a copy that is continued. Without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The store that is copied, as its seal and the progress name it.
    pub from: String,
    /// The store that it is copied into.
    pub to: String,
}

/// What the copy is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Lanes, while the source is in use.
    Lanes,
    /// The trail and what is aside; the source is sealed from here on.
    Trail,
    /// Lanes that have changed since the beginning.
    Again,
    /// What applications keep.
    Applications,
    /// Both sides are read and compared.
    Verify,
}

impl Phase {
    /// For people and `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Lanes => "copying lanes",
            Phase::Trail => "copying the trail",
            Phase::Again => "copying what has changed",
            Phase::Applications => "copying what applications keep",
            Phase::Verify => "verifying",
        }
    }
}

/// How far it is: lanes, or records of the trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Rows that are done.
    pub done: u64,
    /// Of so many, as far as is known.
    pub of: u64,
}

/// What has been copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Rows in the target, by kind; the source has as many.
    pub counts: Counts,
    /// SHA-256 over all rows of a kind in order, the same on both sides.
    pub digests: Digests,
    /// What applications keep, by table.
    pub tables: Vec<CopiedTable>,
    /// An earlier copy was continued.
    pub resumed: bool,
    /// Lanes that were copied a second time, because they changed meanwhile.
    pub again: u64,
}

/// Why a copy was not made, or not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum CopyError {
    /// One of the stores did not do what it was asked.
    Store { which: String, problem: StoreError },
    /// There is something in the target, and it is not an unfinished copy of this source.
    NotEmpty { to: String, why: String },
    /// The source cannot be copied: it has been, or is itself unfinished, or was unsealed in the middle.
    Refused { from: String, why: String },
    /// The two sides are not the same. The target keeps its place.
    Differs { to: String, what: Vec<String> },
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyError::Store { which, problem } => write!(f, "{which}: {problem}"),
            CopyError::NotEmpty { to, why } => {
                write!(f, "{to} is not empty: {why}; a copy needs an empty store")
            }
            CopyError::Refused { from, why } => write!(f, "{from} cannot be copied: {why}"),
            CopyError::Differs { to, what } => {
                let what = what.join("; ");
                write!(f, "{to} is not the same as its source and must not be used: {what}")
            }
        }
    }
}

impl std::error::Error for CopyError {}

/// What the target keeps while it is being filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    from: String,
    /// Store time of the source when the copy began: what has changed since is copied again.
    began: Timestamp,
    /// Lanes up to this number have been copied once.
    lane: u64,
    /// What the source's seal says; nothing before it is sealed.
    seal: Option<String>,
    /// Records up to this number have been copied.
    trail: u64,
    #[serde(default)]
    applications: AppPlace,
}

impl Place {
    /// Tells this copy from others of the same source.
    fn id(&self) -> String {
        base32(u64::try_from(self.began.as_millis()).unwrap_or(0))
    }

    fn since(&self) -> Timestamp {
        self.began.before(MARGIN)
    }
}

/// Copies everything, or goes on where an earlier copy of the same source was cut short.
pub async fn copy(
    from: &dyn Portable,
    to: &dyn Portable,
    names: &Names,
    belongings: &[Belongings],
    progress: &mut (dyn FnMut(Progress) + Send + Sync),
) -> Result<Copied, CopyError> {
    let mut copier = Copier { from, to, names, progress, again: 0 };
    let Some((place, resumed)) = copier.begin(belongings).await? else {
        return copier.open_complete(belongings).await;
    };
    let mut place = place;
    if place.seal.is_none() {
        copier.first_pass(&mut place).await?;
        copier.seal_source(&mut place).await?;
    }
    let frame = copier.read(from.frame().await)?;
    let touched = copier.trail(&mut place, &frame).await?;
    copier.asides().await?;
    copier.cached().await?;
    copier.changed_lanes(&place, &frame, &touched).await?;
    copier.missed_lanes(&frame).await?;
    copier.copy_belongings(belongings, &mut place).await?;
    copier.wrote(to.take_frame(&frame).await)?;
    let digests = copier.verify(&frame).await?;
    let tables = copier.verify_belongings(belongings).await?;
    // In this order: a target that is open but still has its place would be overwritten by the next try.
    copier.wrote(to.set_place(None).await)?;
    copier.wrote(to.seal(None).await)?;
    Ok(Copied { counts: frame.counts, digests, tables, resumed, again: copier.again })
}

struct Copier<'a> {
    from: &'a dyn Portable,
    to: &'a dyn Portable,
    names: &'a Names,
    progress: &'a mut (dyn FnMut(Progress) + Send + Sync),
    again: u64,
}

impl Copier<'_> {
    /// An answer of the source.
    fn read<T>(&self, answer: StoreResult<T>) -> Result<T, CopyError> {
        answer.map_err(|problem| CopyError::Store { which: self.names.from.clone(), problem })
    }

    /// An answer of the target.
    fn wrote<T>(&self, answer: StoreResult<T>) -> Result<T, CopyError> {
        answer.map_err(|problem| CopyError::Store { which: self.names.to.clone(), problem })
    }

    fn refused(&self, why: impl Into<String>) -> CopyError {
        CopyError::Refused { from: self.names.from.clone(), why: why.into() }
    }

    fn not_empty(&self, why: impl Into<String>) -> CopyError {
        CopyError::NotEmpty { to: self.names.to.clone(), why: why.into() }
    }

    fn tell(&mut self, phase: Phase, done: u64, of: u64) {
        // Lanes come while they are counted.
        (self.progress)(Progress { phase, done, of: of.max(done) });
    }

    /// Where to begin, and whether that is in the middle. Nothing when the copy is complete and only not open yet.
    async fn begin(&mut self, belongings: &[Belongings]) -> Result<Option<(Place, bool)>, CopyError> {
        let (from, to) = (self.from, self.to);
        let sealed = self.read(from.sealed().await)?;
        if let Some(text) = self.wrote(to.place().await)? {
            let place = self.known_place(&text)?;
            match (&place.seal, &sealed) {
                (Some(seal), now) if now.as_ref() != Some(seal) => {
                    return Err(self.refused(
                        "its seal was lifted after the copy had begun, so what was copied may be out of date; empty \
                         the target and begin anew",
                    ));
                }
                (None, Some(by)) if by.starts_with(COPY_TO) && *by != self.seal_of(&place) => {
                    return Err(self.moved(by));
                }
                _ => {}
            }
            self.keep_out(&place).await?;
            return Ok(Some((place, true)));
        }
        if let (Some(on_source), Some(on_target)) = (&sealed, self.wrote(to.sealed().await)?)
            && let (Some(one), Some(other)) = (copy_of(on_source, COPY_TO), copy_of(&on_target, COPY_FROM))
            && one == other
        {
            return Ok(None);
        }
        if self.read(from.place().await)?.is_some() {
            return Err(self.refused("a copy into it has not been finished"));
        }
        if let Some(by) = sealed.filter(|by| by.starts_with(COPY_TO)) {
            return Err(self.moved(&by));
        }
        let there = self.wrote(to.frame().await)?;
        if let Some(what) = anything(&there) {
            return Err(self.not_empty(what));
        }
        self.check_belongings(belongings).await?;
        let began = self.read(from.frame().await)?.now;
        let place = Place {
            from: self.names.from.clone(),
            began,
            lane: 0,
            seal: None,
            trail: 0,
            applications: AppPlace::default(),
        };
        self.keep(&place).await?;
        self.keep_out(&place).await?;
        Ok(Some((place, false)))
    }

    fn moved(&self, by: &str) -> CopyError {
        self.refused(format!(
            "it was sealed by {by}, so that copy is the store now; to copy it all the same, lift its seal with `quell store \
             unseal --force`"
        ))
    }

    fn known_place(&self, text: &str) -> Result<Place, CopyError> {
        let place: Place = serde_json::from_str(text).map_err(|_| {
            self.not_empty("it holds the place of a copy that another version of Quell has begun")
        })?;
        if place.from != self.names.from {
            return Err(self.not_empty(format!("it holds an unfinished copy of {}", place.from)));
        }
        Ok(place)
    }

    async fn keep(&self, place: &Place) -> Result<(), CopyError> {
        let text = serde_json::to_string(place).expect("a place is plain data");
        self.wrote(self.to.set_place(Some(&text)).await)
    }

    /// Nobody works on half a store.
    async fn keep_out(&self, place: &Place) -> Result<(), CopyError> {
        let by = format!("{COPY_FROM}{} [{}]", self.names.from, place.id());
        self.wrote(self.to.seal(Some(&by)).await)
    }

    fn seal_of(&self, place: &Place) -> String {
        format!("{COPY_TO}{} [{}]", self.names.to, place.id())
    }

    /// The process ended between the last look and the opening: the look is repeated.
    async fn open_complete(&mut self, belongings: &[Belongings]) -> Result<Copied, CopyError> {
        let frame = self.read(self.from.frame().await)?;
        let digests = self.verify(&frame).await?;
        let tables = self.verify_belongings(belongings).await?;
        self.wrote(self.to.seal(None).await)?;
        Ok(Copied { counts: frame.counts, digests, tables, resumed: true, again: 0 })
    }

    async fn first_pass(&mut self, place: &mut Place) -> Result<(), CopyError> {
        // What an earlier copy had put behind its place is perhaps not whole.
        loop {
            let half = self.wrote(self.to.lanes(place.lane, PAGE_LANES).await)?;
            if half.is_empty() {
                break;
            }
            self.remove(half.iter().map(|row| row.lane.id).collect()).await?;
        }
        let counts = self.read(self.from.frame().await)?.counts;
        let mut done = self.wrote(self.to.frame().await)?.counts.lanes;
        self.tell(Phase::Lanes, done, counts.lanes);
        loop {
            let page = self.read(self.from.lanes(place.lane, PAGE_LANES).await)?;
            let Some(last) = page.last().map(|row| row.lane.id) else { return Ok(()) };
            done += page.len() as u64;
            // Steps that come meanwhile belong to a lane that is held and is copied again.
            self.copy_lanes(page, counts.steps > 0).await?;
            place.lane = last;
            self.keep(place).await?;
            self.tell(Phase::Lanes, done, counts.lanes);
        }
    }

    /// After this nothing changes in the source. A seal that somebody has set by hand becomes that of the copy.
    async fn seal_source(&mut self, place: &mut Place) -> Result<(), CopyError> {
        let by = self.seal_of(place);
        // Also when it is sealed already: an earlier try may have ended before the last change under way had.
        self.read(self.from.seal(Some(&by)).await)?;
        place.seal = Some(by);
        self.keep(place).await
    }

    /// Copies the trail, and says which lanes it names since the beginning.
    async fn trail(&mut self, place: &mut Place, frame: &Frame) -> Result<HashSet<u64>, CopyError> {
        let (mut touched, mut after, mut done) = (HashSet::new(), 0, 0);
        self.tell(Phase::Trail, 0, frame.counts.audit);
        loop {
            let page = self.read(self.from.trail(after, PAGE_ROWS).await)?;
            let Some(last) = page.last().map(|trail| trail.record.id) else { return Ok(touched) };
            after = last;
            done += page.len() as u64;
            let since = page.iter().filter(|trail| trail.record.at >= place.since());
            touched.extend(since.filter_map(|trail| trail.lane));
            let new = page.into_iter().filter(|trail| trail.record.id > place.trail);
            let rows: Vec<Row> = new.map(Row::Trail).collect();
            if !rows.is_empty() {
                self.wrote(self.to.put(rows).await)?;
                place.trail = last;
                self.keep(place).await?;
            }
            self.tell(Phase::Trail, done, frame.counts.audit);
        }
    }

    /// What is aside is copied from a sealed source only, so there is never one too many.
    async fn asides(&mut self) -> Result<(), CopyError> {
        let mut after = 0;
        loop {
            let page = self.read(self.from.asides(after, PAGE_ROWS).await)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.number;
            self.wrote(self.to.put(page.into_iter().map(Row::Aside).collect()).await)?;
        }
    }

    /// Kept answers of sources: worth a request each, so whatever expires on the way is no difference.
    async fn cached(&mut self) -> Result<(), CopyError> {
        let mut after = None;
        loop {
            let page = self.read(self.from.cached(after, PAGE_ROWS).await)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.source, last.key.clone()));
            self.wrote(self.to.put(page.into_iter().map(Row::Cached).collect()).await)?;
        }
    }

    /// Walks both sides by the numbers of their lanes.
    async fn changed_lanes(
        &mut self,
        place: &Place,
        frame: &Frame,
        touched: &HashSet<u64>,
    ) -> Result<(), CopyError> {
        let of = frame.counts.lanes;
        let (mut after, mut done) = (0, 0);
        self.tell(Phase::Again, 0, of);
        loop {
            let page = self.read(self.from.lanes(after, PAGE_LANES).await)?;
            let upto = page.last().map_or(u64::MAX, |row| row.lane.id);
            let there = self.target_lanes(after, upto).await?;
            let is_new = |row: &LaneRow| {
                let lane = &row.lane;
                let known = there.binary_search_by_key(&lane.id, |known| known.lane.id);
                known.map_or(true, |known| there[known] != *row)
                    || lane.updated_at >= place.since()
                    || lane.lease_at().is_some()
                    || touched.contains(&lane.id)
            };
            let in_source = |id: u64| page.binary_search_by_key(&id, |row| row.lane.id);
            let gone = |known: &LaneRow| in_source(known.lane.id).map_or(true, |at| is_new(&page[at]));
            let gone = there.iter().filter(|known| gone(known)).map(|known| known.lane.id).collect();
            self.remove(gone).await?;
            if page.is_empty() {
                return Ok(());
            }
            done += page.len() as u64;
            let changed: Vec<LaneRow> = page.iter().filter(|row| is_new(row)).cloned().collect();
            self.again += changed.len() as u64;
            self.copy_lanes(changed, frame.counts.steps > 0).await?;
            after = upto;
            self.tell(Phase::Again, done, of);
        }
    }

    /// The lanes of the target after a number and up to another. It may have more of them than the source.
    async fn target_lanes(&self, mut after: u64, upto: u64) -> Result<Vec<LaneRow>, CopyError> {
        let mut lanes = Vec::new();
        loop {
            let page = self.wrote(self.to.lanes(after, PAGE_LANES).await)?;
            let Some(last) = page.last().map(|row| row.lane.id) else { return Ok(lanes) };
            after = last;
            lanes.extend(page.into_iter().filter(|row| row.lane.id <= upto));
            if last >= upto {
                return Ok(lanes);
            }
        }
    }

    /// The retention removes rows of lanes that nobody has touched. It does not run on a sealed store, and the target has
    /// never less than the source, so equal counts say that there is nothing of that kind.
    async fn missed_lanes(&mut self, frame: &Frame) -> Result<(), CopyError> {
        let there = self.wrote(self.to.frame().await)?.counts;
        let of_lanes = |counts: &Counts| (counts.events, counts.runs, counts.steps);
        if of_lanes(&there) == of_lanes(&frame.counts) {
            return Ok(());
        }
        let mut after = 0;
        loop {
            let page = self.read(self.from.lanes(after, PAGE_LANES).await)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.lane.id;
            let (from, to, names) = (self.from, self.to, self.names);
            let compared: Vec<Option<LaneRow>> = stream::iter(page)
                .map(|row| async move {
                    let (one, other) = verify::both(from, to, names, &row, &row).await?;
                    Ok::<_, CopyError>((one != other).then_some(row))
                })
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            let missed: Vec<LaneRow> = compared.into_iter().flatten().collect();
            self.again += missed.len() as u64;
            self.remove(missed.iter().map(|row| row.lane.id).collect()).await?;
            self.copy_lanes(missed, true).await?;
        }
    }

    async fn remove(&self, lanes: Vec<u64>) -> Result<(), CopyError> {
        let to = self.to;
        let removed: StoreResult<Vec<()>> =
            stream::iter(lanes).map(|lane| to.remove_lane(lane)).buffered(AT_ONCE).try_collect().await;
        self.wrote(removed).map(|_| ())
    }

    /// Copies these lanes with everything that belongs to them.
    async fn copy_lanes(&self, lanes: Vec<LaneRow>, with_steps: bool) -> Result<(), CopyError> {
        let from = self.from;
        let mut put = Put { to: self.to, rows: Vec::new(), bytes: 0 };
        let mut rest = lanes.into_iter();
        loop {
            let some: Vec<LaneRow> = rest.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            // The first page of each is read ahead: most lanes have only one. All of these are awaited before anything
            // else is asked of the source, because a read that nobody polls keeps its connection.
            let first: StoreResult<Vec<_>> = stream::iter(some)
                .map(|row| async move {
                    let id = row.lane.id;
                    let first = try_join(from.events(id, 0, PAGE_ROWS), from.runs(id, 0, PAGE_ROWS));
                    let (events, runs) = first.await?;
                    Ok((row, events, runs))
                })
                .buffered(AT_ONCE)
                .try_collect()
                .await;
            for (row, mut events, mut runs) in self.read(first)? {
                let lane = row.lane.id;
                let mut numbers = if with_steps { live_runs(&row) } else { Vec::new() };
                self.wrote(put.add(Row::Lane(row), 500).await)?;
                loop {
                    let next = next_event(&events);
                    for kept in events {
                        let bytes = kept.event.payload.len();
                        self.wrote(put.add(Row::Event(lane, kept), bytes).await)?;
                    }
                    let Some(after) = next else { break };
                    events = self.read(from.events(lane, after, PAGE_ROWS).await)?;
                }
                loop {
                    let next =
                        runs.last().filter(|_| runs.len() >= PAGE_ROWS).map(|run| run.ended.run.number);
                    if with_steps {
                        numbers.extend(runs.iter().map(|run| run.ended.run.number));
                        self.copy_steps(&mut put, lane, std::mem::take(&mut numbers)).await?;
                    }
                    for run in runs {
                        self.wrote(put.add(Row::Run(run), 500).await)?;
                    }
                    let Some(after) = next else { break };
                    runs = self.read(from.runs(lane, after, PAGE_ROWS).await)?;
                }
            }
        }
        self.wrote(put.flush().await)
    }

    async fn copy_steps(&self, put: &mut Put<'_>, lane: u64, runs: Vec<u64>) -> Result<(), CopyError> {
        let from = self.from;
        let mut steps = stream::iter(runs)
            .map(|number| async move {
                let run = RunId { lane, number };
                from.steps(run).await.map(|steps| (run, steps))
            })
            .buffered(AT_ONCE);
        while let Some(of_run) = steps.next().await {
            let (run, steps) = self.read(of_run)?;
            for step in steps {
                let bytes = step.value.as_ref().map_or(0, |value| value.to_string().len());
                self.wrote(put.add(Row::Step(run, step), bytes).await)?;
            }
        }
        Ok(())
    }
}

/// Rows on their way into the target, in transactions of a bounded size.
struct Put<'a> {
    to: &'a dyn Portable,
    rows: Vec<Row>,
    bytes: usize,
}

impl Put<'_> {
    async fn add(&mut self, row: Row, bytes: usize) -> StoreResult<()> {
        self.rows.push(row);
        self.bytes += bytes;
        if self.rows.len() >= PUT_ROWS || self.bytes >= PUT_BYTES {
            return self.flush().await;
        }
        Ok(())
    }

    async fn flush(&mut self) -> StoreResult<()> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() { Ok(()) } else { self.to.put(rows).await }
    }
}

/// Where the next page of events begins, if this one is not the last.
fn next_event(page: &[quell_core::working_set::Kept]) -> Option<u64> {
    let bytes: usize = page.iter().map(|kept| kept.event.payload.len()).sum();
    let full = page.len() >= PAGE_ROWS || bytes >= PAGE_BYTES;
    page.last().filter(|_| full).map(|kept| kept.event.seq)
}

/// The runs of a lane that have not ended.
fn live_runs(row: &LaneRow) -> Vec<u64> {
    let fixed = row.lane.fixed_runs().map(|run| run.number);
    fixed.chain(row.lane.open.map(|open| open.number)).collect()
}

/// What is in a store that should be empty.
fn anything(frame: &Frame) -> Option<String> {
    let Counts { lanes, events, runs, steps, aside, audit } = frame.counts;
    let used = frame.totals.iter().any(|(_, _, totals)| *totals != Totals::default());
    let sources = frame.declarations.len() + frame.sources.len();
    let documents = frame.documents.iter().filter(|(_, document)| document.is_live(frame.now)).count();
    let frame_rows = frame.pauses.len() + frame.schedules.len() + sources + documents;
    if lanes + events + runs + steps + aside + audit > 0 {
        return Some(format!("it has {lanes} lanes, {events} events, {runs} runs and {audit} audit records"));
    }
    (used || frame_rows > 0).then(|| "it has counters, pauses, schedules, sources or documents".to_owned())
}

/// The copy that a seal names, if it is one of this kind.
fn copy_of<'s>(seal: &'s str, kind: &str) -> Option<&'s str> {
    seal.strip_prefix(kind)?.rsplit_once(" [")?.1.strip_suffix(']')
}

/// Who sealed a store by hand must not look like a copy.
pub fn check_sealer(by: &str) -> StoreResult<()> {
    if by.starts_with(COPY_TO) || by.starts_with(COPY_FROM) {
        return Err(StoreError::new(ErrorKind::Invalid, "a seal by hand cannot be in the name of a copy"));
    }
    Ok(())
}
