//! Where everything is kept: every key of the store is named here.
//!
//! All keys of a partition share one hash tag (`quell:{p0}:`), so that scripts work in a cluster, too. Lanes are known by
//! their numbers; the text of a key is in the lane's row, in `key` and in `names`, and nowhere else.
//!
//! | key | what |
//! | --- | --- |
//! | `meta` | hash: schema, server, epoch, the latest number, counters, versions of schedules and pauses, seal, place of a copy |
//! | `queues` | sorted set of all queues; `totals:<queue>` hash of their counters |
//! | `key`, `names` | hash from the text of a key to its lane; the same texts in order, for listings |
//! | `lane:<lane>` | the row of a lane: version, entries, key, state (`rows.rs`), and its youngest events, ended runs and records (`pocket.rs`) |
//! | `due:<priority>:<queue>`, `lease:<queue>`, `held:<queue>` | sorted sets of lanes: by due time, by lease, paused or blocked |
//! | `due:<priority>.<source>:<queue>` | lanes by due time that wait for a source, too |
//! | `stopped:<source>` | set of paused or blocked lanes whose next batch asks this source |
//! | `waits` | the first time of each of these sets, for all queues at once |
//! | `claim:<id>` | set of the lanes that are held under this claim |
//! | `ev:<lane>`, `id:<lane>` | events that are not in the pocket by number; hash from their ids to their numbers |
//! | `run:<lane>`, `span:<lane>` | hash of the ended runs that are not in the pocket; the unmarked ones with events by their first event |
//! | `ended`, `dead` | runs in the order in which they ended; those in the dead letter |
//! | `step:<lane>:<run>` | hash of memos |
//! | `audit`, `trail:<lane>` | records by number, those of a transaction together; the numbers of those of a lane that are not in its pocket |
//! | `aside`, `look:<queue>`, `of:<key>`, `asid:<key>` | events aside; by when to look; those of a lane; by id |
//! | `schedule`, `fire:<queue>` | hash of schedules; by their next fire |
//! | `pause` | hash of paused queues |
//! | `declared`, `named` | hash of declarations of sources; how often anything under a name has come or gone |
//! | `source`, `sources` | hash from name and tenant to the number of a source; the same texts in order, for listings |
//! | `source:<source>` | the row of a source: version, state |
//! | `answer:<source>`, `over:<source>`, `kept:<source>` | hash of kept answers; by when they are over; those with a value by when they expire |
//! | `over` | sources by when their first answer is over |
//! | `document:<shelf>`, `lapse:<shelf>` | hash of the documents on a shelf, each with its version; those that expire by when they do |
//! | `app:<application>:<name>` | data of an application, of whatever kind it chooses (`application.rs`) |

use quell_core::aside::Aside;
use quell_core::event::{LaneKey, QueueName, SourceName, Tenant};
use quell_core::shelf::Shelf;
use quell_core::source::SourceId;

/// The names of one partition.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    base: String,
}

impl Keys {
    /// There is one partition now; its number is part of every name, so that there can be more.
    pub(crate) fn new(prefix: &str) -> Self {
        Keys { base: format!("{prefix}:{{p0}}:") }
    }

    pub(crate) fn of(&self, name: &str) -> String {
        format!("{}{name}", self.base)
    }

    pub(crate) fn meta(&self) -> String {
        self.of("meta")
    }

    pub(crate) fn wake(&self) -> String {
        self.of("wake")
    }

    pub(crate) fn lane(&self, id: u64) -> String {
        format!("{}lane:{id}", self.base)
    }

    /// Lanes that wait for no source are where they were before there were any.
    pub(crate) fn due(&self, priority: u8, source: Option<SourceId>, queue: &str) -> String {
        match source {
            None => format!("{}due:{priority}:{queue}", self.base),
            Some(source) => format!("{}due:{priority}.{source}:{queue}", self.base),
        }
    }

    pub(crate) fn stopped(&self, source: SourceId) -> String {
        format!("{}stopped:{source}", self.base)
    }

    pub(crate) fn source(&self, source: SourceId) -> String {
        format!("{}source:{source}", self.base)
    }

    pub(crate) fn answers(&self, source: SourceId) -> String {
        format!("{}answer:{source}", self.base)
    }

    pub(crate) fn documents(&self, shelf: Shelf) -> String {
        format!("{}document:{}", self.base, shelf.as_str())
    }

    pub(crate) fn lapses(&self, shelf: Shelf) -> String {
        format!("{}lapse:{}", self.base, shelf.as_str())
    }

    /// What all names of an application begin with.
    pub(crate) fn application(&self, application: &str) -> String {
        format!("{}app:{application}:", self.base)
    }

    pub(crate) fn kept(&self, source: SourceId) -> String {
        format!("{}kept:{source}", self.base)
    }

    pub(crate) fn lease(&self, queue: &str) -> String {
        format!("{}lease:{queue}", self.base)
    }

    pub(crate) fn held(&self, queue: &str) -> String {
        format!("{}held:{queue}", self.base)
    }

    pub(crate) fn look(&self, queue: &str) -> String {
        format!("{}look:{queue}", self.base)
    }

    pub(crate) fn fire(&self, queue: &str) -> String {
        format!("{}fire:{queue}", self.base)
    }

    pub(crate) fn totals(&self, queue: &str) -> String {
        format!("{}totals:{queue}", self.base)
    }

    pub(crate) fn claim(&self, id: &str) -> String {
        format!("{}claim:{id}", self.base)
    }

    /// What belongs to a lane, by the kind of it.
    pub(crate) fn part(&self, kind: &str, lane: u64) -> String {
        format!("{}{kind}:{lane}", self.base)
    }

    pub(crate) fn steps(&self, lane: u64, run: u64) -> String {
        format!("{}step:{lane}:{run}", self.base)
    }

    /// Events aside of a lane.
    pub(crate) fn aside_of(&self, key: &str) -> String {
        format!("{}of:{key}", self.base)
    }

    pub(crate) fn aside_ids(&self, key: &str) -> String {
        format!("{}asid:{key}", self.base)
    }
}

/// A queue of a tenant as it is named in keys: no tenant holds a NUL.
pub(crate) fn queue_text(tenant: &Tenant, queue: &QueueName) -> String {
    format!("{}\0{}", tenant.as_str(), queue.as_str())
}

/// A source as it is named: texts sort by name, then by tenant.
pub(crate) fn source_text(tenant: &Tenant, name: &SourceName) -> String {
    format!("{}\0{}", name.as_str(), tenant.as_str())
}

pub(crate) fn lane_text(key: &LaneKey) -> String {
    format!("{}\0{}\0{}", key.tenant.as_str(), key.queue.as_str(), key.key.as_str())
}

/// The name of an event aside: names sort as they are to enter their lanes.
pub(crate) fn aside_name(aside: &Aside) -> String {
    format!("{:016}{:016}", aside.ready_at.as_millis().max(0), aside.number)
}

/// A queue's name taken apart.
pub(crate) fn read_queue(text: &str) -> Option<(Tenant, QueueName)> {
    let (tenant, queue) = text.split_once('\0')?;
    Some((Tenant::new(tenant).ok()?, QueueName::new(queue).ok()?))
}

/// A lane's key taken apart.
pub(crate) fn read_lane_key(text: &str) -> Option<LaneKey> {
    let mut parts = text.splitn(3, '\0');
    let (tenant, queue, key) = (parts.next()?, parts.next()?, parts.next()?);
    Some(LaneKey {
        tenant: Tenant::new(tenant).ok()?,
        queue: QueueName::new(queue).ok()?,
        key: quell_core::event::Key::new(key).ok()?,
    })
}
