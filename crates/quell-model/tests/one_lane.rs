//! The whole space of small models: every promise holds in every order of steps, and everything worth seeing is there.
//!
//! Larger ones are searched by the program of this crate, and recorded under `docs/records`.

use quell_core::lane::RetryWith;
use quell_model::{Bounds, OneLane};
use stateright::{Checker as _, Model as _};

fn holds(bounds: Bounds) {
    let checker = OneLane::new(bounds).checker().threads(2).spawn_dfs().join();
    println!("{bounds:?}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 3_000, "so few states are no search");
}

#[test]
fn no_order_of_steps_breaks_a_promise() {
    holds(Bounds::SMALL);
}

#[test]
fn nor_with_three_workers_and_events() {
    holds(Bounds { workers: 3, events: 3, ..Bounds::SMALL });
}

#[test]
fn nor_when_a_batch_leaves_events_behind() {
    holds(Bounds { events: 3, crashes: 0, pauses: 0, repetitions: 0, ..Bounds::SMALL });
}

#[test]
fn nor_when_retries_take_newer_events_in() {
    holds(Bounds { retry_with: RetryWith::Newer, attempts: 3, pauses: 0, ..Bounds::SMALL });
}
