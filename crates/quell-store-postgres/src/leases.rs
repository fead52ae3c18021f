//! Leases that this process has given: which lanes share a row of `lease_group`, and when that row is done with.
//!
//! A claim gives all of its lanes the same lease, so it writes one row for up to two hundred of them. Handing a lane back leaves the row
//! alone: a lane is under a lease only as long as its own row says so, and a row that names lanes which are done is merely early, as
//! every entry may be. It goes with the last of its lanes, which the process knows that gave the lease; after its death, with the
//! first look behind the end of the lease.
//!
//! What is known here decides only when a row is looked at. Whether it may go is for the server to say, in the statement that deletes
//! it: no lane of it may be under that lease.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use quell_store_rows::changes::LaneWrite;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::alike;
use crate::connection::{Request, Sql, Value};
use crate::rows::{clean, get, number};

/// Lanes in one row: with more, it would not fit on a page beside others and the server would keep it elsewhere.
const LANES_MAX: usize = 200;
/// Rows that a process remembers: a few hundred thousand lanes under a lease. Beyond that the oldest are forgotten, and go after their
/// end.
const GROUPS_MAX: usize = 4_096;
/// Rows that are done with and looked at in one commit.
const SPENT_AT_ONCE: usize = 16;
/// How often a row is looked at whose lanes should be done: one of them may be in a transaction that has not ended yet.
const LOOKS_MAX: u8 = 8;

/// A group that is there already has the same token: it is the same claim, written again.
pub(crate) static NEW: Sql = Sql {
    text: "INSERT INTO quell.lease_group AS old (queue_id, lease_at, token, claim_id, lanes)
           SELECT g.queue_id, g.lease_at, g.token, g.claim_id, ($5::bigint[])[g.first:g.last]
           FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::text[], $6::int[], $7::int[])
             AS g(queue_id, lease_at, token, claim_id, first, last)
           ON CONFLICT (queue_id, lease_at, token) DO UPDATE SET lanes = old.lanes || excluded.lanes",
    types: &[
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
    ],
};
/// Those that nobody is under any more.
static SPENT: Sql = Sql {
    text: "DELETE FROM quell.lease_group WHERE ctid = ANY(ARRAY(
             SELECT g.ctid FROM unnest($1::int[], $2::bigint[], $3::bigint[]) AS w(queue_id, lease_at, token)
             JOIN quell.lease_group g ON g.queue_id = w.queue_id AND g.lease_at = w.lease_at AND g.token = w.token
             WHERE NOT EXISTS (SELECT 1 FROM unnest(g.lanes) AS u(lane)
                               JOIN quell.lane l ON l.id = u.lane AND l.lease_at = g.lease_at
                                 AND l.claim_id IS NOT DISTINCT FROM g.claim_id)
             FOR UPDATE OF g SKIP LOCKED))
           RETURNING queue_id, lease_at, token",
    types: &[Type::INT4_ARRAY, Type::INT8_ARRAY, Type::INT8_ARRAY],
};
/// Those that another process has given, of which only the end is known.
static FOREIGN: Sql = Sql {
    text: "DELETE FROM quell.lease_group WHERE ctid = ANY(ARRAY(
             SELECT g.ctid FROM unnest($1::int[], $2::bigint[]) AS w(queue_id, lease_at)
             JOIN quell.lease_group g ON g.queue_id = w.queue_id AND g.lease_at = w.lease_at
             WHERE NOT EXISTS (SELECT 1 FROM unnest(g.lanes) AS u(lane)
                               JOIN quell.lane l ON l.id = u.lane AND l.lease_at = g.lease_at
                                 AND l.claim_id IS NOT DISTINCT FROM g.claim_id)
             FOR UPDATE OF g SKIP LOCKED))",
    types: &[Type::INT4_ARRAY, Type::INT8_ARRAY],
};
/// Those whose time is over and that nobody is under any more.
pub(crate) static OVER: Sql = Sql {
    text: "DELETE FROM quell.lease_group WHERE ctid = ANY(ARRAY(
             SELECT g.ctid FROM quell.lease_group g
             WHERE g.queue_id = ANY($1) AND g.lease_at <= $2
               AND NOT EXISTS (SELECT 1 FROM unnest(g.lanes) AS u(lane)
                               JOIN quell.lane l ON l.id = u.lane AND l.lease_at = g.lease_at
                                 AND l.claim_id IS NOT DISTINCT FROM g.claim_id)
             FOR UPDATE OF g SKIP LOCKED))",
    types: &[Type::INT4_ARRAY, Type::INT8],
};

/// A row, by its key: the first to end come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    lease_at: i64,
    queue: i32,
    token: i64,
}

#[derive(Default)]
pub(crate) struct Leases(Mutex<Given>);

#[derive(Default)]
struct Given {
    groups: BTreeMap<Group, Lanes>,
    of_lane: HashMap<i64, Group>,
    /// Rows whose lanes are all done, and how often they were looked at.
    spent: BTreeMap<Group, u8>,
}

struct Lanes {
    all: Vec<i64>,
    left: usize,
}

impl Given {
    fn of(&self, lane: i64, lease_at: i64) -> Option<Group> {
        self.of_lane.get(&lane).copied().filter(|group| group.lease_at == lease_at)
    }

    fn forget(&mut self, group: Group) {
        for lane in self.groups.remove(&group).map(|lanes| lanes.all).unwrap_or_default() {
            if self.of_lane.get(&lane) == Some(&group) {
                self.of_lane.remove(&lane);
            }
        }
    }
}

/// What one transaction does to leases.
#[derive(Default)]
pub(crate) struct Moves {
    given: Vec<(Group, Option<String>, Vec<i64>)>,
    /// Lanes that leave a lease of this process.
    left: Vec<(i64, Group)>,
    /// Queues and ends of leases that lanes leave and of which this process knows nothing: another one has given them, or this
    /// one before it was started anew.
    foreign: BTreeSet<(i32, i64)>,
    /// Rows that may be done with when it has ended.
    looked_at: Vec<Group>,
}

impl Moves {
    /// A lane comes under a lease. Those of one claim follow one another.
    pub(crate) fn gives(&mut self, queue: i32, lease_at: i64, write: &LaneWrite) {
        let (lane, claim) = (number(write.lane.id), alike::claim_id(write));
        if let Some((group, known, lanes)) = self.given.last_mut()
            && (group.queue, group.lease_at, known.as_deref()) == (queue, lease_at, claim)
            && lanes.len() < LANES_MAX
        {
            lanes.push(lane);
            return;
        }
        let group =
            Group { lease_at, queue, token: number(write.lane.current.as_ref().map_or(0, |run| run.token)) };
        self.given.push((group, claim.map(str::to_owned), vec![lane]));
    }

    /// The rows that are new.
    pub(crate) fn new_rows(&self) -> Option<Request> {
        if self.given.is_empty() {
            return None;
        }
        let (mut lanes, mut first, mut last) = (Vec::<i64>::new(), Vec::new(), Vec::new());
        for (.., own) in &self.given {
            first.push(i32::try_from(lanes.len() + 1).unwrap_or(i32::MAX));
            lanes.extend(own);
            last.push(i32::try_from(lanes.len()).unwrap_or(i32::MAX));
        }
        let claims = self.given.iter().map(|(_, claim, _)| claim.as_deref().map(|id| clean(id).into_owned()));
        let values: Vec<Value> = vec![
            Box::new(self.given.iter().map(|(group, ..)| group.queue).collect::<Vec<_>>()),
            Box::new(self.given.iter().map(|(group, ..)| group.lease_at).collect::<Vec<_>>()),
            Box::new(self.given.iter().map(|(group, ..)| group.token).collect::<Vec<_>>()),
            Box::new(claims.collect::<Vec<_>>()),
            Box::new(lanes),
            Box::new(first),
            Box::new(last),
        ];
        Some((&NEW, values))
    }

    pub(crate) fn foreign_rows(&self) -> Option<Request> {
        let (queues, ends): (Vec<i32>, Vec<i64>) = self.foreign.iter().copied().unzip();
        (!queues.is_empty()).then(|| (&FOREIGN, vec![Box::new(queues) as Value, Box::new(ends) as Value]))
    }

    /// Rows that may be done with, to be looked at when everything else is written.
    pub(crate) fn spent_rows(&self) -> Option<Request> {
        let of = |f: fn(&Group) -> i64| self.looked_at.iter().map(f).collect::<Vec<_>>();
        let queues: Vec<i32> = self.looked_at.iter().map(|group| group.queue).collect();
        let values = || -> Vec<Value> {
            vec![Box::new(queues), Box::new(of(|group| group.lease_at)), Box::new(of(|group| group.token))]
        };
        (!self.looked_at.is_empty()).then(|| (&SPENT, values()))
    }
}

impl Leases {
    /// A lane leaves this lease: true when it is one of this process.
    pub(crate) fn leaves(&self, moves: &mut Moves, queue: i32, lane: i64, lease_at: i64) -> bool {
        let group = self.lock().of(lane, lease_at);
        moves.left.extend(group.map(|group| (lane, group)));
        if group.is_none() {
            moves.foreign.insert((queue, lease_at));
        }
        group.is_some()
    }

    /// A lane is erased, whatever lease it is under.
    pub(crate) fn erases(&self, moves: &mut Moves, lane: i64) {
        let group = self.lock().of_lane.get(&lane).copied();
        moves.left.extend(group.map(|group| (lane, group)));
    }

    /// Which rows are worth looking at in this transaction: those that lose their last lanes, and some that did before.
    pub(crate) fn look(&self, moves: &mut Moves) {
        let mut given = self.lock();
        let mut leaving: BTreeMap<Group, usize> = BTreeMap::new();
        for (_, group) in &moves.left {
            *leaving.entry(*group).or_default() += 1;
        }
        let empty = leaving
            .iter()
            .filter(|(group, lanes)| given.groups.get(group).is_some_and(|l| l.left <= **lanes));
        moves.looked_at = empty.map(|(group, _)| *group).collect();
        for (group, looks) in given.spent.iter_mut().take(SPENT_AT_ONCE) {
            *looks += 1;
            moves.looked_at.push(*group);
        }
        given.spent.retain(|_, looks| *looks < LOOKS_MAX);
    }

    /// The transaction has ended, and these rows have gone with it.
    pub(crate) fn ended(&self, moves: Moves, gone: &[Row]) {
        let given = &mut *self.lock();
        for (lane, group) in moves.left {
            if given.of_lane.get(&lane) == Some(&group) {
                given.of_lane.remove(&lane);
            }
            let left = given.groups.get_mut(&group).map(|lanes| {
                lanes.left = lanes.left.saturating_sub(1);
                lanes.left
            });
            if left == Some(0) {
                given.groups.remove(&group);
                given.spent.insert(group, 0);
            }
        }
        for row in gone {
            if let (Ok(queue), Ok(lease_at), Ok(token)) = (get(row, 0), get(row, 1), get(row, 2)) {
                given.spent.remove(&Group { lease_at, queue, token });
            }
        }
        for (group, _, lanes) in moves.given {
            given.of_lane.extend(lanes.iter().map(|lane| (*lane, group)));
            let left = lanes.len();
            given.groups.insert(group, Lanes { all: lanes, left });
        }
        while given.groups.len() > GROUPS_MAX {
            let Some((&oldest, _)) = given.groups.first_key_value() else { break };
            given.forget(oldest);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Given> {
        self.0.lock().expect("no panic happens while it is locked")
    }
}
