//! What will happen in a schedule, decided before it runs.
//!
//! A plan is made from a seed alone ([`Plan::of`]) and consists of *items*: a worker, a rule of a queue, a habit of the
//! handlers, something a sender or an operator does at some moment, a fault. Every item can be taken away without
//! touching the others, so a failing plan is shrunk by leaving items out, and "seed and the numbers of the items that
//! are kept" is all that a replay needs.

use std::fmt;
use std::time::Duration;

use quell_core::event::{Key, LaneKey, QueueName, SourceName, Tenant};
use quell_core::lane::{DuringRun, OnFailed};
use quell_core::source::SourceRules;
use quell_core::window::WindowPolicy;

mod databases;
mod draw;
mod items;
mod network;
mod policy;
mod sources;
mod versions;

pub use policy::QueuePolicy;

/// Everything that a schedule is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub shape: Shape,
    /// In the order in which they were drawn; a replay names them by their place.
    pub items: Vec<Item>,
}

/// What is not taken away when a plan is shrunk.
#[derive(Debug, Clone)]
pub struct Shape {
    pub queues: Vec<QueueShape>,
    /// Declared before anything else.
    pub sources: Vec<SourceShape>,
    /// With the place of their queue.
    pub lanes: Vec<(LaneKey, usize)>,
    /// Until here faults happen and people act; then everything heals.
    pub span: u64,
    /// After the faults an operator lifts every pause and block.
    pub resume_all: bool,
    /// A worker that knows every queue starts after the faults; otherwise the planned ones have to do.
    pub closer: bool,
    pub retention: Option<Duration>,
    /// Handlers apply their batches at a fenced resource.
    pub sink: bool,
    /// At least one. The lanes are spread over all of them. A failing plan is tried over fewer.
    pub databases: Vec<DatabaseShape>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct DatabaseShape {
    /// How far its clock is ahead of the others', in milliseconds.
    pub ahead: u64,
}

#[derive(Debug, Clone)]
pub struct QueueShape {
    pub name: QueueName,
    pub tenant: Tenant,
}

#[derive(Debug, Clone)]
pub struct SourceShape {
    pub name: SourceName,
    pub rules: SourceRules,
}

impl QueueShape {
    pub fn lane(&self, key: &Key) -> LaneKey {
        LaneKey { tenant: self.tenant.clone(), queue: self.name.clone(), key: key.clone() }
    }
}

#[derive(Debug, Clone)]
pub enum Item {
    Worker(WorkerPlan),
    Puller(PullerPlan),
    Rule {
        queue: usize,
        rule: Rule,
    },
    /// What a queue is by the newer settings, which some of the processes have.
    Newer {
        queue: usize,
        rule: Rule,
    },
    Habit {
        habit: Habit,
        percent: u64,
    },
    Send {
        at: u64,
        send: SendPlan,
    },
    Hand {
        at: u64,
        hand: Hand,
    },
    Fault {
        at: u64,
        fault: Fault,
    },
    /// Was taken away; the places of the others stay.
    Absent {
        node: bool,
    },
}

/// A worker process: the shipped loop, drivers and sweeper.
#[derive(Debug, Clone)]
pub struct WorkerPlan {
    /// Which queues it takes lanes of; empty means all by name.
    pub queues: Vec<usize>,
    pub concurrency: usize,
    /// How much faster its clock runs, in millionths.
    pub skew: i64,
    pub idle_max: u64,
    pub sweep_every: u64,
    pub error_wait: u64,
    pub grace: u64,
}

/// A worker in another language: claims with its own ids and settles itself.
#[derive(Debug, Clone)]
pub struct PullerPlan {
    pub poll: u64,
    pub max: usize,
}

/// One way in which a queue is not plain.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    Window(WindowPolicy),
    MaxEvents(u32),
    MaxBytes(u64),
    During(DuringRun),
    MaxInterrupts(u32),
    RetryNewer,
    Attempts(u32),
    OnFailed(OnFailed),
    Lease(u64),
    MaxRunning(u32),
    Notify {
        failed_only: bool,
    },
    LaneEvents(u64),
    DropOldest,
    ContentDedupe,
    Backoff {
        base: u64,
        cap: u64,
        jitter: f64,
    },
    TimeLimit(u64),
    /// Between telling a handler and stopping it.
    StopGrace(u64),
    OnErrorRetry,
    /// Its events are governed by this source.
    Source(usize),
}

/// Something that handlers do now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    Step,
    StepOnce,
    Hold,
    HoldIfHead,
    Retry,
    RetryAfter,
    Fail,
    Release,
    Superseded,
    Interrupted,
    Panic,
    Error,
    /// Works longer than a heartbeat.
    Slow,
    /// Works longer than its time limit or a lease without a heartbeat.
    VerySlow,
    /// Goes on although it was told to stop.
    IgnoreStop,
    /// Settles with events to follow.
    Carry,
    /// Sends an event under the id that a carried one will have.
    Squat,
    IfHead,
    SettleTwice,
    SettleOtherwise,
    /// Takes a batch and forgets it.
    Abandon,
    /// Keeps its lease alive.
    Extend,
    /// Has never heard of requests to stop.
    Deaf,
    /// Its source was at fault.
    SourceFault,
    /// Its source asked for silence.
    SourceSilence,
    /// It asked its source for nothing.
    SourceUnused,
    /// It reports every request by itself.
    SourceReports,
    /// It makes further requests.
    SourceTake,
    /// It looks for a kept answer first.
    SourceCache,
}

impl Habit {
    pub const ALL: [Habit; 29] = [
        Habit::Step,
        Habit::StepOnce,
        Habit::Hold,
        Habit::HoldIfHead,
        Habit::Retry,
        Habit::RetryAfter,
        Habit::Fail,
        Habit::Release,
        Habit::Superseded,
        Habit::Interrupted,
        Habit::Panic,
        Habit::Error,
        Habit::Slow,
        Habit::VerySlow,
        Habit::IgnoreStop,
        Habit::Carry,
        Habit::Squat,
        Habit::IfHead,
        Habit::SettleTwice,
        Habit::SettleOtherwise,
        Habit::Abandon,
        Habit::Extend,
        Habit::Deaf,
        Habit::SourceFault,
        Habit::SourceSilence,
        Habit::SourceUnused,
        Habit::SourceReports,
        Habit::SourceTake,
        Habit::SourceCache,
    ];

    /// Those of handlers that ask a source.
    pub const OF_SOURCES: [Habit; 6] = [
        Habit::SourceFault,
        Habit::SourceSilence,
        Habit::SourceUnused,
        Habit::SourceReports,
        Habit::SourceTake,
        Habit::SourceCache,
    ];
}

/// One append request, and how patient its sender is.
#[derive(Debug, Clone)]
pub struct SendPlan {
    pub events: Vec<EventPlan>,
    /// How often it is repeated when the answer was not one.
    pub patience: u32,
}

#[derive(Debug, Clone)]
pub struct EventPlan {
    pub lane: usize,
    pub id: String,
    pub given: bool,
    /// The canary: two events with the same number have the same payload.
    pub canary: u64,
    pub padding: usize,
    pub delay: Option<u64>,
    pub window: Option<WindowPolicy>,
    pub priority: u8,
    pub only_if_idle: bool,
    /// Its own source in place of its queue's.
    pub source: Option<usize>,
    /// Its sender has the newer settings.
    pub newer: bool,
}

/// What an operator does.
#[derive(Debug, Clone, Copy)]
pub enum Hand {
    Flush(usize),
    PauseLane(usize),
    ResumeLane(usize),
    PauseQueue(usize),
    ResumeQueue(usize),
    Cancel {
        lane: usize,
        named: bool,
    },
    Redrive {
        lane: usize,
        head: bool,
        part: bool,
        fresh: bool,
    },
    PurgeDead(usize),
    PurgeDelayed(usize),
    PurgeBuffered(usize),
    EraseLane(usize),
    EraseEvent(usize),
    Edit(usize),
    Delete(usize),
    PutSchedule {
        name: u64,
        lane: usize,
    },
    RemoveSchedule {
        name: u64,
    },
    /// The source of the tenant that this queue belongs to.
    DisableSource {
        source: usize,
        queue: usize,
    },
    EnableSource {
        source: usize,
        queue: usize,
    },
    ResetSource {
        source: usize,
        queue: usize,
    },
    ReleaseSource {
        source: usize,
        queue: usize,
    },
    RemoveSource {
        source: usize,
    },
    /// As the plan declares it, or with other rules.
    PutSource {
        source: usize,
        rules: Option<SourceRules>,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Crash {
        node: usize,
        down: u64,
    },
    /// The whole process stands still and wakes as a zombie; `frozen` when its clock did, too.
    Pause {
        node: usize,
        length: u64,
        frozen: bool,
    },
    /// Asked to stop, perhaps twice, and started again.
    Shutdown {
        node: usize,
        down: u64,
        twice: bool,
    },
    /// The wall clock of a process jumps against its monotonic one.
    WallJump {
        node: usize,
        by: i64,
    },
    StoreForward {
        by: u64,
    },
    StoreStops {
        length: u64,
    },
    Trouble {
        kind: Trouble,
        length: u64,
        percent: u64,
    },
    /// Notifications get lost.
    Deafness {
        length: u64,
    },
    Backup,
    Restore,
    /// Nothing goes between one process and the store, or only its answers are lost.
    Cut {
        node: usize,
        length: u64,
        answers_only: bool,
    },
    /// The server between pull workers and the store is gone, and with it every answer that was on its way.
    ServerGone {
        length: u64,
    },
    /// Requests of pull workers are delivered twice: somebody on the way repeats what was not answered at once.
    Echo {
        length: u64,
        percent: u64,
    },
    /// Asked to stop, and started again with the other settings: the newer ones, or the older ones again.
    Upgrade {
        node: usize,
        down: u64,
    },
    /// One database of several cannot be reached as it should, by nobody or by one process. What concerns several of them is
    /// interrupted in the middle.
    Database {
        database: usize,
        node: Option<usize>,
        kind: Trouble,
        length: u64,
        percent: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Refused: definitely not done.
    Refused,
    /// The question is lost: unknown, and not done.
    LostBefore,
    /// The answer is lost: unknown, and done.
    LostAfter,
    Slow,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Plan {
        draw::plan(seed)
    }

    /// The same plan with these items only.
    #[must_use]
    pub fn keeping(mut self, kept: &[usize]) -> Plan {
        for (place, item) in self.items.iter_mut().enumerate() {
            if !kept.contains(&place) {
                *item = Item::Absent { node: matches!(item, Item::Worker(_) | Item::Puller(_)) };
            }
        }
        self
    }

    /// The same plan over so many databases, if it has more.
    #[must_use]
    pub fn over(mut self, databases: usize) -> Plan {
        self.shape.databases.truncate(databases.max(1));
        self
    }

    pub fn policies(&self) -> Vec<QueuePolicy> {
        policy::of(self, false)
    }

    /// By the newer settings; the same where the plan has none.
    pub fn newer_policies(&self) -> Vec<QueuePolicy> {
        policy::of(self, true)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.databases {
            [_] => write!(f, "1 database"),
            several => {
                let ahead: Vec<String> = several.iter().map(|one| one.ahead.to_string()).collect();
                write!(f, "{} databases, their clocks ahead by {} ms", several.len(), ahead.join(", "))
            }
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Send { at, send } => {
                write!(f, "{at:>6} ms  send")?;
                for e in &send.events {
                    let id = if e.given { "id" } else { "made id" };
                    write!(f, " [lane {} {id} {} payload {}", e.lane, e.id, e.canary)?;
                    if let Some(delay) = e.delay {
                        write!(f, " delay {delay} ms")?;
                    }
                    if let Some(window) = e.window {
                        write!(f, " window {window:?}")?;
                    }
                    if e.newer {
                        write!(f, " by the newer settings")?;
                    }
                    write!(f, "]")?;
                }
                Ok(())
            }
            Item::Hand { at, hand } => write!(f, "{at:>6} ms  operator {hand:?}"),
            Item::Fault { at, fault } => write!(f, "{at:>6} ms  fault {fault:?}"),
            Item::Worker(w) => write!(f, "          worker {w:?}"),
            Item::Puller(p) => write!(f, "          puller {p:?}"),
            Item::Rule { queue, rule } => write!(f, "          queue {queue}: {rule:?}"),
            Item::Newer { queue, rule } => write!(f, "          queue {queue}, newer settings: {rule:?}"),
            Item::Habit { habit, percent } => write!(f, "          handlers: {percent} % {habit:?}"),
            Item::Absent { .. } => Ok(()),
        }
    }
}
