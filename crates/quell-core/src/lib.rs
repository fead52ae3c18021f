//! Vocabulary and decisions of Quell: no I/O, no runtime, no real clock.
//!
//! Start with [`lifecycle`] (the states), then [`lane`] (everything that can happen to one key), then [`memory`] (the
//! whole engine without a database). [`store`] is the contract that databases keep; [`step`] is the worker's logic
//! that the runtime performs and the simulator replays.

#![warn(missing_docs)]

pub mod aside;
pub mod attempt;
pub mod audit;
pub mod batch;
pub mod clock;
#[expect(missing_docs, reason = "for those who write a store: the module is read as a whole")]
pub mod copy;
pub mod cron;
pub mod error;
pub mod event;
pub mod fingerprint;
pub mod inspect;
pub mod keys;
#[expect(missing_docs, reason = "for those who write a store: the module is read as a whole")]
pub mod lane;
pub mod lease;
pub mod lifecycle;
pub mod limits;
pub mod memory;
#[cfg(not(quell_mutants))]
mod mutants;
#[cfg(quell_mutants)]
pub mod mutants;
pub mod outcome;
pub mod retry;
pub mod schedule;
#[cfg(feature = "schema")]
mod schema;
pub mod shelf;
pub mod source;
#[expect(missing_docs, reason = "for those who write a store: the module is read as a whole")]
pub mod step;
pub mod store;
pub mod tables;
pub mod totals;
pub mod window;
#[expect(missing_docs, reason = "for those who write a store: the module is read as a whole")]
pub mod working_set;
