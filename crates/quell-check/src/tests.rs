//! For every promise a legal history that passes, and the same history with one thing changed, which must fail for
//! that promise's reason and no other.

mod edges;
mod events;
mod leases;
mod random;
mod rules;
mod sources;
mod story;
mod trail;

use std::collections::BTreeSet;

use crate::history::Record;
use crate::{Invariant, Summary, check};

fn passes(records: &[Record]) -> Summary {
    check(records).unwrap_or_else(|violation| panic!("a legal history was refused:\n{violation}"))
}

/// The history is legal; with one thing changed it breaks this promise first.
fn breaks(records: &[Record], invariant: Invariant, spoil: impl FnOnce(&mut Vec<Record>)) {
    passes(records);
    let mut spoilt = records.to_vec();
    spoil(&mut spoilt);
    match check(&spoilt) {
        Ok(_) => panic!("{invariant} was broken and nobody noticed"),
        Err(violation) => {
            assert_eq!(violation.invariant, invariant, "{violation}");
            assert!(violation.to_string().contains(invariant.name()), "{violation}");
        }
    }
}

#[test]
fn names_of_invariants_are_unique() {
    let names: BTreeSet<_> = Invariant::ALL.iter().map(|i| i.name()).collect();
    assert_eq!(names.len(), Invariant::ALL.len());
}

#[test]
fn an_empty_history_breaks_nothing() {
    assert_eq!(passes(&[]).records, 0);
}
