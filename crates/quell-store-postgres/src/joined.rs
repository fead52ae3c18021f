//! Joined: the writes of a commit as one statement.
//!
//! Each statement of its own costs the server a message, an executor and a packet back, and this process a wake-up: for a
//! group of thirty events as much as their rows. The writes of ordinary appends, claims and settles do not read what the
//! others of their commit write, so those that follow one another travel as the `WITH` clauses of one statement. It is put
//! together once for each combination and then known by the places of its parts, as single statements are.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use tokio_postgres::types::Type;

use crate::connection::{Request, Sql, Value, in_schema};
use crate::{alike, commit, leases};

/// Combinations that a store puts together. Ordinary work has about a dozen; each is prepared once per connection, so what comes
/// beyond them is sent as single statements.
const COMBINATIONS_MAX: usize = 64;

/// Writes of rows that belong to the lanes of a transaction. None of them reads a row that another one writes, and none
/// changes a row twice.
static APART: [&Sql; 20] = [
    &commit::NEW_LANES,
    &commit::LANES,
    &commit::BODIES,
    &commit::NEW_DUE,
    &commit::GONE_DUE,
    &commit::GONE_LEASES,
    &commit::NEW_EVENTS,
    &commit::NEW_RUNS,
    &commit::AUDIT,
    &commit::DELTAS,
    &alike::NEW_LANES,
    &alike::LANES,
    &alike::NEW_DUE,
    &alike::GONE_DUE,
    &leases::NEW,
    &leases::SPENT,
    &alike::GONE_LEASES,
    &alike::NEW_EVENTS,
    &alike::NEW_RUNS,
    &alike::AUDIT,
];

/// Statements that were put together, with the store's own schema in place.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) text: String,
    pub(crate) types: Vec<Type>,
}

/// What is sent as one statement.
pub(crate) enum Sent<'r> {
    One(&'r Request),
    Joined(Arc<Joined>, Vec<&'r Value>),
}

/// The combinations that have been put together, by the places of their parts.
#[derive(Default)]
pub(crate) struct Combinations(RwLock<HashMap<Vec<usize>, Arc<Joined>>>);

impl Combinations {
    /// Requests in their order, with those that may be joined put together.
    pub(crate) fn of<'r>(&self, requests: &'r [Request], schema: &str) -> Vec<Sent<'r>> {
        let mut sent = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while !rest.is_empty() {
            let (run, behind) = rest.split_at(together(rest).max(1));
            rest = behind;
            let joined = if run.len() > 1 { self.joined(run, schema) } else { None };
            match joined {
                Some(joined) => {
                    let values = run.iter().flat_map(|(_, values)| values);
                    sent.push(Sent::Joined(joined, values.collect()));
                }
                None => sent.extend(run.iter().map(Sent::One)),
            }
        }
        sent
    }

    fn joined(&self, run: &[Request], schema: &str) -> Option<Arc<Joined>> {
        let places: Vec<usize> = run.iter().map(|(sql, _)| place(sql)).collect();
        if let Some(known) = self.0.read().expect("no panic happens while it is locked").get(&places) {
            return Some(known.clone());
        }
        let mut known = self.0.write().expect("no panic happens while it is locked");
        if known.len() >= COMBINATIONS_MAX {
            return None;
        }
        let mut joined = join(run.iter().map(|(sql, _)| *sql));
        joined.text = in_schema(&joined.text, schema).into_owned();
        Some(known.entry(places).or_insert(Arc::new(joined)).clone())
    }
}

fn place(sql: &'static Sql) -> usize {
    std::ptr::from_ref(sql).addr()
}

/// How many of the first requests may be one statement: none of them stands there twice, so that there are few combinations.
fn together(requests: &[Request]) -> usize {
    let apart = |sql: &Sql| APART.iter().any(|one| std::ptr::eq(*one, sql));
    let fresh = |n: usize| requests[..n].iter().all(|(sql, _)| !std::ptr::eq(*sql, requests[n].0));
    (0..requests.len()).take_while(|n| apart(requests[*n].0) && fresh(*n)).count()
}

/// `WITH w0 AS (…), w1 AS (…) …`, with the values numbered through.
fn join(parts: impl ExactSizeIterator<Item = &'static Sql>) -> Joined {
    let last = parts.len().saturating_sub(1);
    let mut joined = Joined { text: String::new(), types: Vec::new() };
    for (n, sql) in parts.enumerate() {
        let text = numbered(sql.text, joined.types.len());
        joined.types.extend(sql.types.iter().cloned());
        let opens = if n == 0 { "WITH " } else { ", " };
        joined.text += &match n == last {
            false => format!("{opens}w{n} AS ({text})"),
            true if n == 0 => text,
            true => format!(" {text}"),
        };
    }
    joined
}

/// The text with its values counted from behind those of others: `$1` becomes `$4` behind three.
fn numbered(text: &str, behind: usize) -> String {
    let mut parts = text.split('$');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = part.split_at(digits);
        match number.parse::<usize>() {
            Ok(number) => numbered += &format!("${}{rest}", number + behind),
            Err(_) => numbered += &format!("${part}"),
        }
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    static ORDINARY: Sql = Sql { text: "DELETE FROM quell.step WHERE run = $1", types: &[Type::INT8] };

    fn request(sql: &'static Sql) -> Request {
        (sql, sql.types.iter().map(|_| Box::new(1_i64) as Value).collect())
    }

    fn shape(sent: &[Sent<'_>]) -> Vec<usize> {
        let parts = |sent: &Sent<'_>| match sent {
            Sent::One(_) => 1,
            Sent::Joined(joined, values) => {
                assert_eq!(joined.types.len(), values.len());
                joined.text.matches("mine.").count()
            }
        };
        sent.iter().map(parts).collect()
    }

    #[test]
    fn values_are_numbered_through() {
        static ONE: Sql = Sql { text: "A($1, $2)", types: &[Type::INT8, Type::TEXT] };
        static TWO: Sql = Sql { text: "B($2, $1, '$')", types: &[Type::BOOL, Type::BYTEA] };
        static TEN: Sql = Sql { text: "C($10)", types: &[Type::INT2] };
        let joined = join([&ONE, &TWO, &TEN].into_iter());
        assert_eq!(joined.text, "WITH w0 AS (A($1, $2)), w1 AS (B($4, $3, '$')) C($14)");
        assert_eq!(joined.types, [Type::INT8, Type::TEXT, Type::BOOL, Type::BYTEA, Type::INT2]);
    }

    #[test]
    fn only_writes_that_do_not_meet_are_joined_and_the_order_stays() {
        let known = Combinations::default();
        let requests = [
            request(&ORDINARY),
            request(&alike::NEW_DUE),
            request(&commit::DELTAS),
            request(&ORDINARY),
            request(&commit::DELTAS),
        ];
        assert_eq!(shape(&known.of(&requests, "mine")), [1, 2, 1, 1]);
        // The same table twice: the second begins a statement of its own.
        let twice = [request(&alike::NEW_DUE), request(&commit::DELTAS), request(&alike::NEW_DUE)];
        assert_eq!(shape(&known.of(&twice, "mine")), [2, 1]);
        assert_eq!(known.0.read().unwrap().len(), 1, "the same two parts both times");
        assert!(known.of(&[], "mine").is_empty());
    }
}
