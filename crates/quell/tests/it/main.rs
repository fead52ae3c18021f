//! The worker and the engine from outside, over the memory store, and over real ones where the store has a part in it.
//!
//! Time is the runtime's paused clock wherever possible: minutes pass in milliseconds, and nothing depends on how busy
//! the machine is.

mod appending;
mod copying;
mod copying_servers;
mod examples;
mod following;
#[path = "../../../quell-fetch/tests/it/forbidden.rs"]
mod forbidden;
mod giving_way;
mod idle;
mod idle_sqlite;
mod lanes;
mod leases;
#[path = "../../../quell-fetch/tests/it/names.rs"]
mod names;
mod operating;
mod outcomes;
mod push;
mod push_hostile;
mod push_worker;
mod receiver;
mod schedules;
mod shelves;
mod sources;
mod steps;
mod stopping;
mod support;
