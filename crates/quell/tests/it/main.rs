//! The worker and the engine from outside, over the memory store (and the examples over SQLite).
//!
//! Time is the runtime's paused clock wherever possible: minutes pass in milliseconds, and nothing depends on how busy
//! the machine is.

mod appending;
mod examples;
mod idle;
mod idle_sqlite;
mod lanes;
mod leases;
mod outcomes;
mod stopping;
mod support;
