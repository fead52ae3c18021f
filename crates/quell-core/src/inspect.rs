//! What can be asked of a store, and the answers: listings, one lane with the reason it waits, totals, health.
//!
//! Listings are pages by cursor: they read a bounded number of rows and never scan history.

use serde::Serialize;

use crate::attempt::ReportedAttempt;
use crate::audit::AuditRecord;
use crate::batch::RunId;
use crate::clock::Timestamp;
use crate::event::{Event, EventId, Key, LaneKey, QueueName, SourceName, Tenant};
use crate::lane::{Attention, CurrentRun, Finished, Lane, Links};
use crate::lifecycle::RunState;
use crate::schedule::ScheduleRow;
use crate::source::{Because, Breaker, Readiness, Source, SourceRules, Standing};
use crate::store::{Description, StepRow};
use crate::totals::Totals;
use crate::window::{FiredBy, OpenWindow};

/// A read.
#[derive(Debug, Clone)]
pub enum Inspect {
    /// One lane with its buffered events, or nothing when it is idle and forgotten.
    Lane(LaneKey),
    /// A page of lanes.
    Lanes(LaneFilter),
    /// One run with its events, whatever its state.
    Run(RunId),
    /// A page of runs.
    Runs(RunFilter),
    /// Where an event is now.
    Event(LaneKey, EventId),
    /// A page of the trail.
    Audit(AuditFilter),
    /// All schedules with their next fire.
    Schedules,
    /// Sources by name, then tenant, with their state.
    Sources(SourceFilter),
    /// Totals and lane counts per tenant and queue.
    Stats,
    /// The leases of every queue that has any, per tenant.
    Leases,
    /// The no-loss equation checked against the rows themselves. Reads everything: for `doctor`, not for a hot path.
    Verify,
    /// The store's clock, sizes and settings.
    Health,
}

/// The answer to the read of the same name.
#[derive(Debug, Clone)]
pub enum Inspected {
    /// The lane, if anything is known of it.
    Lane(Option<Box<LaneDetail>>),
    /// The lanes that the filter let through.
    Lanes(Page<LaneRow>),
    /// The run, if it is known.
    Run(Option<Box<RunDetail>>),
    /// The runs that the filter let through.
    Runs(Page<RunRow>),
    /// Where the event is, if its lane knows it.
    Event(Option<EventPlace>),
    /// The records that the filter let through.
    Audit(Page<AuditRecord>),
    /// All schedules.
    Schedules(Vec<ScheduleRow>),
    /// The sources that the filter let through.
    Sources(Page<SourceRow>),
    /// All queues.
    Stats(Vec<QueueStats>),
    /// The queues that have leases.
    Leases(Vec<QueueLeases>),
    /// What the rows say.
    Verify(Verified),
    /// How the store is.
    Health(Health),
}

/// One page; `next` continues it.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// What is on this page.
    pub items: Vec<T>,
    /// To be given as `cursor` for the next one; nothing on the last.
    pub next: Option<String>,
}

/// Which lanes; those that have something to do unless it says otherwise.
#[derive(Debug, Clone, Default)]
pub struct LaneFilter {
    /// Only of this tenant.
    pub tenant: Option<Tenant>,
    /// Only of this queue.
    pub queue: Option<QueueName>,
    /// Only lanes whose key starts with this.
    pub key_prefix: Option<String>,
    /// Only lanes that are held by a worker.
    pub running: bool,
    /// Also lanes that have nothing to do.
    pub idle: bool,
    /// Go on behind an earlier page.
    pub cursor: Option<String>,
    /// Rows at the most.
    pub limit: usize,
}

/// Which runs.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only of this tenant.
    pub tenant: Option<Tenant>,
    /// Only of this queue.
    pub queue: Option<QueueName>,
    /// Only of this key.
    pub key: Option<Key>,
    /// Only in this state.
    pub state: Option<RunState>,
    /// Go on behind an earlier page.
    pub cursor: Option<String>,
    /// Rows at the most.
    pub limit: usize,
}

/// Which records of the trail.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only of this tenant.
    pub tenant: Option<Tenant>,
    /// Only of this queue.
    pub queue: Option<QueueName>,
    /// Only of this key.
    pub key: Option<Key>,
    /// Only of this run.
    pub run: Option<RunId>,
    /// Go on behind an earlier page.
    pub cursor: Option<String>,
    /// Rows at the most.
    pub limit: usize,
}

/// Both together name one source.
#[derive(Debug, Clone, Default)]
pub struct SourceFilter {
    /// Only of this tenant.
    pub tenant: Option<Tenant>,
    /// Only of this name.
    pub name: Option<SourceName>,
    /// Go on behind an earlier page.
    pub cursor: Option<String>,
    /// Rows at the most.
    pub limit: usize,
}

/// One source of a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceRow {
    /// By which queues and events name it.
    pub name: SourceName,
    /// Empty for a shared one, and for those who have no tenant.
    pub tenant: Tenant,
    /// Whether its keys may go.
    pub enabled: bool,
    /// Why not, if they may not.
    pub standing: Standing,
    /// Who changed that last.
    pub changed_by: Option<String>,
    /// What the breaker is at this moment.
    pub breaker: Breaker,
    /// Faults in a row.
    pub failure_streak: u32,
    /// When it last did what was asked.
    pub last_success_at: Option<Timestamp>,
    /// When it last failed.
    pub last_failure_at: Option<Timestamp>,
    /// Until when nobody is let go.
    pub paused_until: Option<Timestamp>,
    /// The source asked for silence until then.
    pub not_before: Option<Timestamp>,
    /// The run that tries whether it works again.
    pub probe: Option<RunId>,
    /// Whole tokens in the bucket; missing when there is no limit.
    pub tokens: Option<u64>,
    /// Lanes whose next batch asks it and that no worker holds.
    pub waiting: u64,
    /// Answers that are kept.
    pub cached: u64,
    /// Its limits.
    #[serde(flatten)]
    pub rules: SourceRules,
}

impl SourceRow {
    /// The row of a source at this moment, with so many keys that wait and answers that are kept.
    pub fn of(source: &Source, now: Timestamp, waiting: u64, cached: u64) -> Self {
        SourceRow {
            name: source.name.clone(),
            tenant: source.tenant.clone(),
            enabled: source.standing == Standing::Enabled,
            standing: source.standing,
            changed_by: source.hand.as_ref().map(|hand| hand.by.clone()),
            breaker: source.breaker(now),
            failure_streak: source.streak,
            last_success_at: source.last_success_at,
            last_failure_at: source.last_failure_at,
            paused_until: source.paused_until,
            not_before: source.not_before.filter(|until| *until > now),
            probe: source.probe.filter(|probe| probe.until > now).map(|probe| probe.run),
            tokens: source.tokens(now),
            waiting,
            cached,
            rules: source.rules,
        }
    }
}

/// One lane of a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LaneRow {
    /// Whose lane it is.
    #[serde(flatten)]
    pub lane: LaneKey,
    /// Missing when idle.
    pub state: Option<RunState>,
    /// Events in its open run.
    pub buffered: u64,
    /// Events in its current run.
    pub in_flight: u64,
    /// 0 to 9: the highest over its events.
    pub priority: u8,
    /// The number of its newest event.
    pub head_seq: u64,
    /// When it can be claimed.
    pub due_at: Option<Timestamp>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// The failed run for which the lane waits.
    pub blocked_by: Option<RunId>,
    /// Who holds it.
    pub worker: Option<String>,
    /// Under this token.
    pub token: Option<u64>,
    /// Since then.
    pub claimed_at: Option<Timestamp>,
    /// Until then, unless the lease is extended.
    pub lease_until: Option<Timestamp>,
    /// When anything last happened to it.
    pub updated_at: Timestamp,
    /// When the oldest event arrived that it still has to do something with.
    pub since: Option<Timestamp>,
    /// The window that collects, if one does.
    pub window: Option<WindowMarks>,
    /// The first of the reasons for which it waits, as a word.
    pub reason: Reason,
    /// Why it waits, in one sentence.
    pub why: String,
}

/// The moments of an open window, to draw how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WindowMarks {
    /// Its first event.
    pub opened_at: Timestamp,
    /// The latest event: with it the quiet period began anew.
    pub latest_at: Timestamp,
    /// When it fires, if nothing more comes.
    pub due_at: Timestamp,
    /// What makes it fire then.
    pub due_by: FiredBy,
    /// When it fires at the latest.
    pub capped_at: Timestamp,
}

impl WindowMarks {
    fn of(window: &OpenWindow) -> Self {
        let (due_at, due_by) = window.due();
        let OpenWindow { first_at, latest_at, .. } = *window;
        WindowMarks { opened_at: first_at, latest_at, due_at, due_by, capped_at: window.capped_at() }
    }
}

/// What a lane waits for, as one word: the first that its sentence names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Reason {
    /// Its run: a worker has it.
    Running,
    /// The next claim, which takes it back: its lease has run out.
    Expired,
    /// Somebody who redrives the failed run that blocks it, or resumes the lane.
    Blocked,
    /// Somebody who resumes it.
    Paused,
    /// Somebody who resumes its queue.
    QueuePaused,
    /// Its source.
    Source,
    /// The end of its backoff.
    Backoff,
    /// The end of its window.
    Window,
    /// A worker: it is due.
    Due,
    /// Nothing.
    Idle,
}

impl Reason {
    /// All of them, in the order in which a sentence names them.
    pub const ALL: [Reason; 10] = [
        Reason::Running,
        Reason::Expired,
        Reason::Blocked,
        Reason::Paused,
        Reason::QueuePaused,
        Reason::Source,
        Reason::Backoff,
        Reason::Window,
        Reason::Due,
        Reason::Idle,
    ];

    /// As filters and JSON have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Running => "running",
            Reason::Expired => "expired",
            Reason::Blocked => "blocked",
            Reason::Paused => "paused",
            Reason::QueuePaused => "queue_paused",
            Reason::Source => "source",
            Reason::Backoff => "backoff",
            Reason::Window => "window",
            Reason::Due => "due",
            Reason::Idle => "idle",
        }
    }
}

/// One lane in full.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LaneDetail {
    /// What listings show.
    #[serde(flatten)]
    pub row: LaneRow,
    /// The store's time at which all of this was so.
    pub now: Timestamp,
    /// Why it waits.
    pub waiting: Waiting,
    /// The run that collects events.
    pub open_run: Option<RunId>,
    /// The run that is being processed, is in backoff, or waits to be claimed again.
    pub current_run: Option<RunId>,
    /// Frozen runs that wait behind the current one, the next first.
    pub queued_runs: Vec<RunId>,
    /// Events of this key that are kept aside.
    pub delayed: u64,
    /// The first buffered events, bounded; payloads are for those who may see them.
    pub events: Vec<Event>,
}

/// Why is this key waiting? Each reason by itself, so that a program can act on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// Events in its open run.
    pub buffered: u64,
    /// When its window closes.
    pub due_at: Option<Timestamp>,
    /// What will close it then.
    pub due_by: Option<FiredBy>,
    /// When it closes at the latest.
    pub capped_at: Option<Timestamp>,
    /// When the current run can be claimed again: after its backoff, or at once after a crash or a hand-back.
    pub again_at: Option<Timestamp>,
    /// Who paused the lane.
    pub lane_paused_by: Option<String>,
    /// Who paused its queue.
    pub queue_paused_by: Option<String>,
    /// The failed run for which the lane waits.
    pub blocked_by: Option<RunId>,
    /// The holder was asked to stop: by newer events, or by an operator.
    pub interrupting: bool,
    /// The holder was asked to stop, and the run is cancelled when it does.
    pub cancelling: bool,
    /// Who holds it.
    pub held_by: Option<String>,
    /// Under this token.
    pub token: Option<u64>,
    /// Until then, unless the lease is extended.
    pub lease_until: Option<Timestamp>,
    /// The lease is over: the next claim takes the lane back.
    pub expired: bool,
    /// The governed party that does not let it go.
    pub source: Option<WaitingForSource>,
}

/// A source that keeps a lane waiting.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WaitingForSource {
    /// Which source.
    pub name: SourceName,
    /// What of it the lane waits for.
    pub because: Because,
    /// Missing when somebody has to change that.
    pub until: Option<Timestamp>,
    /// Who made it so, for a standing.
    pub by: Option<String>,
}

impl WaitingForSource {
    /// Nothing when the lane would wait as long without it.
    fn of(lane: &Lane, now: Timestamp, source: &Source) -> Option<Self> {
        let due = lane.again_at().or(lane.open.map(|o| o.window.due().0))?;
        let idle = lane.lease_at().is_none() && lane.source() == Some(source.id);
        let (because, until) = match source.readiness(now) {
            Readiness::Wait(until, because) if until > due => (because, Some(until)),
            Readiness::Held(because) => (because, None),
            _ => return None,
        };
        let by = source.hand.as_ref().filter(|_| until.is_none()).map(|hand| hand.by.clone());
        idle.then(|| WaitingForSource { name: source.name.clone(), because, until, by })
    }
}

impl Waiting {
    /// Reads the reasons off a lane; the store adds whether the queue is paused, and the lane's source
    /// ([`Lane::source`]).
    pub fn of(lane: &Lane, now: Timestamp, queue_paused_by: Option<String>, source: Option<&Source>) -> Self {
        let current = lane.current.as_ref();
        let running = current.filter(|c| c.state == RunState::Running);
        Waiting {
            buffered: lane.open.map_or(0, |o| o.count),
            due_at: lane.open.map(|o| o.window.due().0),
            due_by: lane.open.map(|o| o.window.due().1),
            capped_at: lane.open.map(|o| o.window.capped_at()),
            again_at: lane.again_at(),
            lane_paused_by: lane.paused.as_ref().map(|p| p.by.clone()),
            queue_paused_by,
            blocked_by: lane.blocked.map(|b| lane.run_id(b.run)),
            interrupting: running.is_some_and(|c| c.interrupt_requested),
            cancelling: running.is_some_and(|c| c.cancel_requested),
            held_by: running.and_then(|c| c.worker.as_ref()).map(|w| w.to_string()),
            token: running.map(|c| c.token),
            lease_until: running.map(|c| c.lease_until),
            expired: lane.attention(now) == Attention::Expired,
            source: source.and_then(|source| WaitingForSource::of(lane, now, source)),
        }
    }

    /// The first of the reasons.
    pub fn reason(&self, now: Timestamp) -> Reason {
        match self {
            _ if self.held_by.is_some() && self.expired => Reason::Expired,
            _ if self.held_by.is_some() => Reason::Running,
            _ if self.blocked_by.is_some() => Reason::Blocked,
            _ if self.lane_paused_by.is_some() => Reason::Paused,
            _ if self.queue_paused_by.is_some() => Reason::QueuePaused,
            _ if self.source.is_some() => Reason::Source,
            Waiting { again_at: Some(at), .. } => {
                if *at > now {
                    Reason::Backoff
                } else {
                    Reason::Due
                }
            }
            Waiting { due_at: Some(at), .. } => {
                if *at > now {
                    Reason::Window
                } else {
                    Reason::Due
                }
            }
            _ => Reason::Idle,
        }
    }

    /// The reasons as one sentence for people.
    pub fn sentence(&self, now: Timestamp) -> String {
        let mut parts = Vec::new();
        if let (Some(by), Some(until)) = (&self.held_by, self.lease_until) {
            let token = self.token.unwrap_or(0);
            parts.push(if self.expired {
                format!(
                    "lease of {by} (token {token}) ran out {} ago, next claim takes it back",
                    span(now, until)
                )
            } else {
                format!("running on {by} with token {token}, lease {} left", span(until, now))
            });
        }
        if self.cancelling {
            parts.push("its holder was asked to cancel".to_owned());
        } else if self.interrupting {
            parts.push("its holder was asked to stop for newer events".to_owned());
        }
        if let Some(run) = self.blocked_by {
            parts.push(format!("blocked by the failed {run}: redrive it, or resume the lane"));
        }
        if let Some(by) = &self.lane_paused_by {
            parts.push(format!("lane paused by {by}"));
        }
        if let Some(by) = &self.queue_paused_by {
            parts.push(format!("queue paused by {by}"));
        }
        if let Some(source) = &self.source {
            let mut text = format!("source {} {}", source.name, source.because.phrase());
            if let Some(until) = source.until {
                text += &format!(" for {}", span(until, now));
            } else if let Some(by) = &source.by {
                text += &format!(" by {by}");
            }
            parts.push(text);
        }
        if let Some(until) = self.again_at {
            parts.push(if until > now {
                format!("its run is tried again in {}", span(until, now))
            } else {
                "its run is due again and waits for a worker".to_owned()
            });
        }
        if self.buffered > 0 {
            let mut text = format!("buffered {}", self.buffered);
            if let (Some(due), Some(by)) = (self.due_at, self.due_by) {
                if due > now {
                    text += &format!(", due in {} ({})", span(due, now), by.as_str());
                    if let Some(cap) = self.capped_at.filter(|&cap| cap > due) {
                        text += &format!(", at the latest in {}", span(cap, now));
                    }
                } else {
                    text += &format!(", due since {} ({})", span(now, due), by.as_str());
                }
            }
            parts.push(text);
        }
        if parts.is_empty() { "idle".to_owned() } else { parts.join("; ") }
    }
}

/// A duration as people say it: `340ms`, `12.4s`, `3m20s`, `2h05m`, `3d04h`.
pub fn span(later: Timestamp, earlier: Timestamp) -> String {
    let ms = later.since(earlier).as_millis();
    let (s, m, h) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
    match () {
        () if ms < 1_000 => format!("{ms}ms"),
        () if s < 60 => format!("{}.{}s", s, ms % 1_000 / 100),
        () if m < 60 => format!("{m}m{:02}s", s % 60),
        () if h < 48 => format!("{h}h{:02}m", m % 60),
        () => format!("{}d{:02}h", h / 24, h % 24),
    }
}

/// One run of a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunRow {
    /// The run's id: the same for all its attempts.
    pub id: RunId,
    /// Whose run it is.
    #[serde(flatten)]
    pub lane: LaneKey,
    /// Where it is in its life.
    pub state: RunState,
    /// Events that are still its own.
    pub events: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// The number of the first event of its range.
    pub lo: u64,
    /// The number of the last event of its range.
    pub hi: u64,
    /// Attempts that count.
    pub attempts: u32,
    /// How often it was claimed, refunded attempts included.
    pub claims: u32,
    /// How often it was put back for another attempt.
    pub retries: u32,
    /// How often it gave way to newer events.
    pub interrupts: u32,
    /// Raised by every merge with newer events.
    pub revision: u32,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// Of its latest claim; 0 before the first.
    pub token: u64,
    /// Why it was handed over.
    pub fired_by: Option<FiredBy>,
    /// Who held it last.
    pub worker: Option<String>,
    /// When its first event came.
    pub created_at: Timestamp,
    /// When its last event came.
    pub last_at: Timestamp,
    /// When it was claimed last.
    pub claimed_at: Option<Timestamp>,
    /// The last sign of life of its holder.
    pub heartbeat_at: Option<Timestamp>,
    /// Until when it is its holder's.
    pub lease_until: Option<Timestamp>,
    /// When it is tried again.
    pub next_at: Option<Timestamp>,
    /// When anything last happened to it.
    pub updated_at: Timestamp,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// The text of the last error.
    pub error: Option<String>,
    /// Runs that it came from or went into.
    #[serde(flatten)]
    pub links: RunLinks,
}

/// Where a run's events came from or went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunLinks {
    /// The run that has what a claim left over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_in: Option<RunId>,
    /// The run that took it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<RunId>,
    /// Its halves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub split_into: Vec<RunId>,
    /// The run that it is a half of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_from: Option<RunId>,
    /// The run whose events it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redriven_from: Option<RunId>,
    /// The run that was given its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redriven_into: Option<RunId>,
}

impl RunLinks {
    /// The links of a run of this lane.
    pub fn of(lane: u64, links: &Links) -> Self {
        let id = |number: u64| RunId { lane, number };
        RunLinks {
            continued_in: links.continued_in.map(id),
            merged_into: links.merged_into.map(id),
            split_into: links.split_into.map_or_else(Vec::new, |(left, right)| vec![id(left), id(right)]),
            split_from: links.split_from.map(id),
            redriven_from: links.redriven_from.map(id),
            redriven_into: links.redriven_into.map(id),
        }
    }
}

/// One run in full.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunDetail {
    /// What listings show.
    #[serde(flatten)]
    pub row: RunRow,
    /// What its handler reported.
    pub result: Option<serde_json::Value>,
    /// Amounts that its handler reported.
    pub usage: std::collections::BTreeMap<String, f64>,
    /// Its events, in order.
    pub list: Vec<Event>,
    /// What its steps have stored.
    pub steps: Vec<StepRow>,
    /// What its latest attempts asked and were answered, in their order.
    pub reports: Vec<ReportedAttempt>,
    /// Its life, newest first.
    pub audit: Vec<AuditRecord>,
}

impl RunRow {
    /// A run whose batch is fixed and that has not ended, as a listing shows it.
    pub fn of_fixed(lane: &Lane, c: &CurrentRun, key: &LaneKey) -> RunRow {
        let running = c.state == RunState::Running;
        let is_current = lane.current.as_ref().is_some_and(|current| current.number == c.number);
        RunRow {
            lease_until: running.then_some(c.lease_until),
            next_at: if is_current { lane.again_at() } else { Some(c.due_at) },
            ..RunRow::of_run(lane.id, c, key, lane.updated_at)
        }
    }

    /// A run that ended, as a listing shows it.
    pub fn of_finished(lane: u64, ended: &Finished, key: &LaneKey) -> RunRow {
        RunRow {
            state: ended.state,
            completed_at: Some(ended.at),
            ..RunRow::of_run(lane, &ended.run, key, ended.at)
        }
    }

    /// What is told of every run whose batch is fixed, whether or not it has ended.
    fn of_run(lane: u64, c: &CurrentRun, key: &LaneKey, updated_at: Timestamp) -> RunRow {
        RunRow {
            id: RunId { lane, number: c.number },
            lane: key.clone(),
            state: c.state,
            events: c.count,
            bytes: c.bytes,
            lo: c.lo,
            hi: c.hi,
            attempts: c.attempt(),
            claims: c.claims,
            retries: c.retries,
            interrupts: c.interrupts,
            revision: c.revision,
            priority: c.priority,
            token: c.token,
            fired_by: Some(c.fired_by),
            worker: c.worker.as_ref().map(|w| w.to_string()),
            created_at: c.first_at,
            last_at: c.last_at,
            claimed_at: (c.claims > 0).then_some(c.claimed_at),
            heartbeat_at: (c.claims > 0).then_some(c.heartbeat_at),
            lease_until: None,
            next_at: None,
            updated_at,
            completed_at: None,
            error: c.error.clone(),
            links: RunLinks::of(lane, &c.links),
        }
    }

    /// The open run of a lane as a listing shows it.
    pub fn of_open(lane: &Lane, key: &LaneKey) -> Option<RunRow> {
        let o = lane.open?;
        Some(RunRow {
            id: lane.run_id(o.number),
            lane: key.clone(),
            state: RunState::Pending,
            events: o.count,
            bytes: o.bytes,
            lo: o.lo,
            hi: lane.head_seq,
            attempts: 0,
            claims: 0,
            retries: 0,
            interrupts: 0,
            revision: 0,
            priority: o.priority,
            token: 0,
            fired_by: None,
            worker: None,
            created_at: o.window.first_at,
            last_at: o.window.latest_at,
            claimed_at: None,
            heartbeat_at: None,
            lease_until: None,
            next_at: Some(o.window.due().0),
            updated_at: lane.updated_at,
            completed_at: None,
            error: None,
            links: RunLinks::default(),
        })
    }
}

impl LaneRow {
    /// Puts together what is known of a run.
    pub fn of(
        lane: &Lane,
        key: &LaneKey,
        now: Timestamp,
        queue_paused_by: Option<String>,
        source: Option<&Source>,
    ) -> LaneRow {
        let waiting = Waiting::of(lane, now, queue_paused_by, source);
        let running = lane.current.as_ref().filter(|c| c.state == RunState::Running);
        // Counted as the totals count: redriven events are buffered until they are claimed.
        let fixed = |buffered: bool| -> u64 {
            lane.fixed_runs().filter(|c| c.is_buffered() == buffered).map(|c| c.count).sum()
        };
        LaneRow {
            lane: key.clone(),
            state: lane.state(),
            buffered: waiting.buffered + fixed(true),
            in_flight: fixed(false),
            priority: lane.priority(),
            head_seq: lane.head_seq,
            due_at: lane.due_at(),
            paused_by: waiting.lane_paused_by.clone(),
            blocked_by: waiting.blocked_by,
            worker: waiting.held_by.clone(),
            token: waiting.token,
            claimed_at: running.map(|c| c.claimed_at),
            lease_until: waiting.lease_until,
            updated_at: lane.updated_at,
            since: lane.fixed_runs().map(|c| c.first_at).chain(lane.open.map(|o| o.window.first_at)).min(),
            window: lane.open.map(|open| WindowMarks::of(&open.window)),
            reason: waiting.reason(now),
            why: waiting.sentence(now),
        }
    }
}

/// Where one event is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventPlace {
    /// For an event aside the sequence number is 0: it has none yet.
    pub event: Event,
    /// When it enters its lane, while it is kept aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// The run that has it; nothing while it is kept aside.
    pub run_id: Option<RunId>,
    /// The state of the run it belongs to.
    pub state: Option<RunState>,
}

/// One queue of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueueStats {
    /// Whose part of the queue this is.
    pub tenant: Tenant,
    /// The queue.
    pub queue: QueueName,
    /// Where all events are that were ever accepted.
    #[serde(flatten)]
    pub totals: Totals,
    /// Lanes held by workers now.
    pub running: u64,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// How long the longest waiting due lane has been due, in milliseconds.
    pub oldest_due_ms: Option<u64>,
}

/// The leases of one queue of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueLeases {
    /// Whose queue.
    pub tenant: Tenant,
    /// Its name.
    pub queue: QueueName,
    /// How long ago the lane that has been held longest was claimed, in milliseconds.
    pub oldest_ms: u64,
    /// Lanes whose lease is over and which nobody has taken back: no heartbeat of their holder came for longer than a lease.
    pub silent: u64,
}

impl QueueLeases {
    /// Of the lanes of one queue; nothing when none of them is held.
    pub fn of<'l>(
        (tenant, queue): (&Tenant, &QueueName),
        now: Timestamp,
        lanes: impl Iterator<Item = &'l Lane>,
    ) -> Option<Self> {
        let (mut oldest, mut silent) = (None, 0);
        for lane in lanes {
            let Some(held) = lane.current.as_ref().filter(|c| c.state == RunState::Running) else { continue };
            oldest = [oldest, Some(held.claimed_at)].into_iter().flatten().min();
            silent += u64::from(lane.attention(now) == Attention::Expired);
        }
        Some(QueueLeases::counted((tenant, queue), now, oldest?, silent))
    }

    /// As a store counted them.
    pub fn counted(
        (tenant, queue): (&Tenant, &QueueName),
        now: Timestamp,
        oldest: Timestamp,
        silent: u64,
    ) -> Self {
        let oldest_ms = u64::try_from(now.since(oldest).as_millis()).unwrap_or(u64::MAX);
        QueueLeases { tenant: tenant.clone(), queue: queue.clone(), oldest_ms, silent }
    }
}

/// The equation checked against the rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verified {
    /// Queues that were compared, those of each tenant by themselves.
    pub queues: u64,
    /// Events that are accounted for.
    pub events: u64,
    /// What does not agree, in words; empty when all is well.
    pub problems: Vec<String>,
}

/// How the store is.
#[derive(Debug, Clone, Serialize)]
pub struct Health {
    /// What the store says of itself.
    pub description: Description,
    /// Its time.
    pub now: Timestamp,
    /// Store time minus this host's wall clock, in milliseconds.
    pub wall_divergence_ms: i64,
    /// Named facts: file sizes, settings, counts.
    pub facts: Vec<(String, String)>,
    /// What an operator should look at; empty when all is well.
    pub warnings: Vec<Concern>,
}

/// Something about a store that an operator should look at, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Concern {
    /// What is so.
    pub text: String,
    /// What to do about it.
    pub fix: String,
}

impl Concern {
    /// What is so, and what to do about it.
    pub fn new(text: impl Into<String>, fix: impl Into<String>) -> Self {
        Concern { text: text.into(), fix: fix.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Lane;
    use crate::window::Window;
    use std::time::Duration;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn event(window: Window) -> crate::event::NewEvent {
        use crate::event::{AppendPolicy, NewEvent, NewEventId, Payload};
        let lane = LaneKey::new(QueueName::new("q").unwrap(), Key::new("k").unwrap());
        let policy = AppendPolicy { window, ..AppendPolicy::default() };
        let id = NewEventId::Made(EventId::new("e").unwrap());
        NewEvent::new(lane, id, Payload::of(&serde_json::json!("12345678")), policy.into())
    }

    #[test]
    fn the_reason_of_waiting_is_one_readable_sentence() {
        let mut lane = Lane::new(1, at(0));
        assert_eq!(Waiting::of(&lane, at(0), None, None).sentence(at(0)), "idle");
        let window = Window::quiet_capped(Duration::from_secs(2), Duration::from_secs(10));
        lane.append(at(0), 1, &event(window), None, || 7);
        lane.append(at(800), 2, &event(window), None, || 8);
        assert_eq!(
            Waiting::of(&lane, at(1_000), None, None).sentence(at(1_000)),
            "buffered 2, due in 1.8s (quiet), at the latest in 9.0s"
        );
        let key = LaneKey::new(QueueName::new("q").unwrap(), Key::new("k").unwrap());
        let row = LaneRow::of(&lane, &key, at(1_000), None, None);
        let marks = WindowMarks {
            opened_at: at(0),
            latest_at: at(800),
            due_at: at(2_800),
            due_by: FiredBy::Quiet,
            capped_at: at(10_000),
        };
        assert_eq!((row.reason, row.window, row.since), (Reason::Window, Some(marks), Some(at(0))));
        assert_eq!(LaneRow::of(&lane, &key, at(3_000), None, None).reason, Reason::Due);
        lane.pause(at(1_000), "ada");
        assert_eq!(LaneRow::of(&lane, &key, at(3_000), None, None).reason, Reason::Paused);
        assert!(
            Waiting::of(&lane, at(5_000), None, None)
                .sentence(at(5_000))
                .starts_with("lane paused by ada; buffered 2")
        );
    }

    #[test]
    fn a_run_that_was_handed_back_or_lost_its_worker_is_not_called_idle() {
        use crate::lane::{Claimer, Settlement, Taken};
        use crate::outcome::Verdict;
        let mut lane = Lane::new(1, at(0));
        lane.append(at(0), 1, &event(Window::none()), None, || 7);
        lane.cut(at(0), Taken { count: 1, bytes: 10, hi: 1, last_at: at(0), rest: None }, || 8);
        let worker = "w:1:a".parse().map(std::sync::Arc::new).unwrap();
        let lease = Duration::from_secs(10);
        let policy = crate::store::RunPolicy { lease, max_attempts: 3, ..Default::default() }.into();
        lane.claim(at(0), &Claimer { worker, token: 9, policy, claim_id: None, probe: false });
        let mut retried = lane.clone();
        let retry =
            Settlement { delay: Duration::from_secs(5), ..Settlement::of(Verdict::Retry { after: None }) };
        retried.settle(at(0), 7, 9, &retry, None).unwrap();
        assert_eq!(
            Waiting::of(&retried, at(1_000), None, None).sentence(at(1_000)),
            "its run is tried again in 4.0s"
        );
        lane.reclaim(at(10_000));
        let sentence = Waiting::of(&lane, at(10_000), None, None).sentence(at(10_000));
        assert_eq!(sentence, "its run is due again and waits for a worker");
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(at(340), at(0)), "340ms");
        assert_eq!(span(at(12_440), at(0)), "12.4s");
        assert_eq!(span(at(200_000), at(0)), "3m20s");
        assert_eq!(span(at(7_500_000), at(0)), "2h05m");
        assert_eq!(span(at(273_600_000), at(0)), "3d04h");
    }
}
