//! Sessions of coding agents, from the hook to the search, with real processes.
//!
//! What is asked while a test waits is asked of the database itself: `quell sessions` and its like start a worker when
//! something waits, and would hide an event that nobody works on.

mod capture;
mod forwarding;
pub(crate) mod host;
mod ingest;
mod install;
mod kills;
mod older_system;
mod races;
mod reading;
