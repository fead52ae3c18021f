//! Leases that this process has given: which lanes share a row of `lease_group`, and when that row is done with.
//!
//! A claim gives all of its lanes the same lease, so it writes one row for up to two hundred of them. Handing a lane back leaves the row
//! alone: a lane is under a lease only as long as its own row says so, and a row that names lanes which are done is merely early, as
//! every entry may be. It goes with the last of its lanes, which the process knows that gave the lease; after its death, with the
//! first look behind the end of the lease.
//!
//! A row is deleted without looking at its lanes when this process has given the lease and has seen every commit by which they left it: to
//! look at two hundred lanes cost as much as two hundred rows of leases did. That holds within one past of the store only, so after a
//! restore, or a new connection (the server may have died and lost its last commits), nothing is known any more. Rows of which nothing is known go when the server finds none of their lanes under that lease.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use quell_store_rows::changes::LaneWrite;
use tokio_postgres::types::Type;

use crate::alike;
use crate::connection::{Request, Sql, Value};
use crate::rows::{clean, number};

/// Lanes in one row: with more, it would not fit on a page beside others and the server would keep it elsewhere.
const LANES_MAX: usize = 200;
/// Rows that a process remembers: a few hundred thousand lanes under a lease. Beyond that the oldest are forgotten, and go after their
/// end.
const GROUPS_MAX: usize = 4_096;
/// Rows that are done with and go in one commit.
const SPENT_AT_ONCE: usize = 16;

/// A group that is there already has the same token: it is the same claim, written again (by a copy, with the same lanes).
pub(crate) static NEW: Sql = Sql {
    text: "INSERT INTO quell.lease_group AS old (queue_id, lease_at, token, claim_id, lanes)
           SELECT g.queue_id, g.lease_at, g.token, g.claim_id, ($5::bigint[])[g.first:g.last]
           FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::text[], $6::int[], $7::int[])
             AS g(queue_id, lease_at, token, claim_id, first, last)
           ON CONFLICT (queue_id, lease_at, token)
           DO UPDATE SET lanes = ARRAY(SELECT unnest(old.lanes) UNION SELECT unnest(excluded.lanes))",
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
/// Those whose lanes this process has all seen leave.
pub(crate) static SPENT: Sql = Sql {
    text: "DELETE FROM quell.lease_group WHERE ctid = ANY(ARRAY(
             SELECT g.ctid FROM unnest($1::int[], $2::bigint[], $3::bigint[]) AS w(queue_id, lease_at, token)
             JOIN quell.lease_group g ON g.queue_id = w.queue_id AND g.lease_at = w.lease_at AND g.token = w.token))",
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
/// Lanes that rows of one queue may name beyond twice of those that are under a lease, before whoever counts them tidies up.
pub(crate) const STALE_MAX: u64 = 1_000;
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
    /// Rows whose lanes are all done: two transactions with the last of them ended at once. They go with the next commit.
    spent: BTreeSet<Group>,
    /// Of which past of the store all this is: see `origin.rs`.
    origin: Option<String>,
    /// How many connections had been made when this was learned first.
    connections: u64,
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
    left: BTreeMap<i64, Group>,
    /// Queues and ends of leases that lanes leave and of which this process knows nothing: another one has given them, or this
    /// one before it was started anew.
    foreign: BTreeSet<(i32, i64)>,
    /// Rows that are done with when it has ended.
    spent: Vec<Group>,
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

    /// Rows that nobody is under when this has ended.
    pub(crate) fn spent_rows(&self) -> Option<Request> {
        let of = |f: fn(&Group) -> i64| self.spent.iter().map(f).collect::<Vec<_>>();
        let queues: Vec<i32> = self.spent.iter().map(|group| group.queue).collect();
        let values = || -> Vec<Value> {
            vec![Box::new(queues), Box::new(of(|group| group.lease_at)), Box::new(of(|group| group.token))]
        };
        (!self.spent.is_empty()).then(|| (&SPENT, values()))
    }
}

impl Leases {
    /// A transaction has begun in this past of the store, and so many connections have been made: what is known of another past counts
    /// for nothing. A server that has died and forgets its last commits (`synchronous_commit = off`) is the same by its origin,
    /// but every connection to it is new.
    pub(crate) fn are_of(&self, origin: Option<&str>, connections: u64) {
        let mut given = self.lock();
        if given.origin.as_deref() != origin || given.connections != connections {
            *given = Given { origin: origin.map(str::to_owned), connections, ..Given::default() };
        }
    }

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

    /// Which rows go with this transaction: those that lose their last lanes, and those that did before.
    pub(crate) fn look(&self, moves: &mut Moves) {
        let given = &mut *self.lock();
        let mut leaving: BTreeMap<Group, usize> = BTreeMap::new();
        for group in moves.left.values() {
            *leaving.entry(*group).or_default() += 1;
        }
        let of = |group: &Group| given.groups.get(group);
        let last = leaving.iter().filter(|(group, lanes)| of(group).is_some_and(|l| l.left <= **lanes));
        moves.spent = last.map(|(group, _)| *group).collect();
        // Others that end meanwhile need not wait for each other at the same rows. If this one fails, they are merely early.
        for _ in 0..SPENT_AT_ONCE {
            moves.spent.extend(given.spent.pop_first());
        }
    }

    /// The transaction has ended, and its spent rows have gone with it.
    pub(crate) fn ended(&self, moves: Moves) {
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
                given.spent.insert(group);
            }
        }
        for group in moves.spent {
            given.spent.remove(&group);
        }
        for (group, _, lanes) in moves.given {
            if given.groups.contains_key(&group) {
                // It has more lanes now than are known here.
                given.forget(group);
                continue;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: i32 = 7;

    fn group(lease_at: i64, token: i64) -> Group {
        Group { lease_at, queue: QUEUE, token }
    }

    /// A claim has committed.
    fn given(leases: &Leases, group: Group, lanes: &[i64]) {
        let given = vec![(group, None, lanes.to_vec())];
        leases.ended(Moves { given, ..Moves::default() });
    }

    /// A transaction in which these lanes leave, before its end.
    fn leaving(leases: &Leases, lease_at: i64, lanes: &[i64]) -> Moves {
        let mut moves = Moves::default();
        for lane in lanes {
            leases.leaves(&mut moves, QUEUE, *lane, lease_at);
        }
        leases.look(&mut moves);
        moves
    }

    #[test]
    fn a_row_goes_with_the_last_of_its_lanes() {
        let leases = Leases::default();
        given(&leases, group(100, 1), &[11, 12, 13]);
        let moves = leaving(&leases, 100, &[11, 12]);
        assert!(moves.spent_rows().is_none(), "the third is still under it");
        leases.ended(moves);
        let moves = leaving(&leases, 100, &[13]);
        assert_eq!(moves.spent, [group(100, 1)]);
        leases.ended(moves);
        assert!(leaving(&leases, 100, &[]).spent.is_empty(), "it has gone");
    }

    #[test]
    fn a_transaction_that_does_not_end_takes_nothing_out() {
        let leases = Leases::default();
        given(&leases, group(100, 1), &[11]);
        assert_eq!(leaving(&leases, 100, &[11]).spent, [group(100, 1)]);
        // It failed, or nobody knows: the lane is perhaps still under its lease.
        assert_eq!(leaving(&leases, 100, &[11]).spent, [group(100, 1)]);
    }

    #[test]
    fn the_last_lanes_in_two_transactions_at_once_leave_the_row_to_the_next() {
        let leases = Leases::default();
        given(&leases, group(100, 1), &[11, 12]);
        let (one, other) = (leaving(&leases, 100, &[11]), leaving(&leases, 100, &[12]));
        assert!(one.spent.is_empty() && other.spent.is_empty());
        leases.ended(one);
        leases.ended(other);
        assert_eq!(leaving(&leases, 100, &[]).spent, [group(100, 1)]);
    }

    #[test]
    fn what_another_process_has_given_is_named_by_its_end() {
        let leases = Leases::default();
        given(&leases, group(100, 1), &[11]);
        let mut moves = Moves::default();
        assert!(leases.leaves(&mut moves, QUEUE, 11, 100));
        assert!(!leases.leaves(&mut moves, QUEUE, 11, 101), "it has another lease meanwhile");
        assert!(!leases.leaves(&mut moves, QUEUE, 12, 100));
        assert_eq!(moves.foreign, BTreeSet::from([(QUEUE, 100), (QUEUE, 101)]));
    }

    #[test]
    fn a_lane_that_is_erased_leaves_whatever_lease_it_is_under() {
        let leases = Leases::default();
        given(&leases, group(100, 1), &[11]);
        let mut moves = Moves::default();
        leases.erases(&mut moves, 11);
        leases.erases(&mut moves, 12);
        leases.look(&mut moves);
        assert_eq!(moves.spent, [group(100, 1)]);
    }

    #[test]
    fn after_a_restore_nothing_is_known() {
        let leases = Leases::default();
        leases.are_of(Some("one"), 1);
        given(&leases, group(100, 1), &[11]);
        leases.are_of(Some("one"), 1);
        assert_eq!(leaving(&leases, 100, &[11]).spent, [group(100, 1)]);
        leases.are_of(Some("another"), 1);
        assert!(
            leaving(&leases, 100, &[11]).spent.is_empty(),
            "it may be under it again, in what was put back"
        );
    }

    #[test]
    fn after_a_new_connection_nothing_is_known() {
        let leases = Leases::default();
        leases.are_of(Some("one"), 1);
        given(&leases, group(100, 1), &[11, 12]);
        leases.ended(leaving(&leases, 100, &[11]));
        leases.are_of(Some("one"), 2);
        assert!(
            leaving(&leases, 100, &[12]).spent.is_empty(),
            "the server may have died and lost the end of the first"
        );
    }

    #[test]
    fn a_row_that_is_left_over_goes_with_one_transaction_only() {
        let leases = Leases::default();
        given(&leases, group(100, 1), &[11, 12]);
        let (one, other) = (leaving(&leases, 100, &[11]), leaving(&leases, 100, &[12]));
        leases.ended(one);
        leases.ended(other);
        let first = leaving(&leases, 100, &[]);
        assert_eq!(first.spent, [group(100, 1)]);
        assert!(leaving(&leases, 100, &[]).spent.is_empty(), "the first of them has not ended yet");
    }

    #[test]
    fn of_a_row_that_was_added_to_nothing_is_known() {
        let leases = Leases::default();
        given(&leases, group(100, 1), &[11, 12]);
        given(&leases, group(100, 1), &[11]);
        assert!(leaving(&leases, 100, &[11]).spent.is_empty());
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let leases = Leases::default();
        for n in (0..).take(GROUPS_MAX + 1) {
            given(&leases, group(100 + n, n), &[n]);
        }
        assert!(leaving(&leases, 100, &[0]).spent.is_empty());
        assert_eq!(leaving(&leases, 101, &[1]).spent, [group(101, 1)]);
        assert_eq!(leases.lock().of_lane.len(), GROUPS_MAX);
    }
}
