//! Quell beside the systems that people use in its place: the same shapes on the same servers, by turns, in one run.
//!
//! `cargo xtask compare` installs published peers into a folder (`install.rs`), starts PostgreSQL and Redis on a real disk
//! (`servers.rs`), and runs every system of the table in `systems.rs` once per shape and round (`plan.rs`), each time as a process of
//! its own on a fresh database (`cell.rs`). Every process, Quell's too (`driver.rs`), is started as `DRIVER SHAPE ADDRESS SIZES` and
//! answers with one line of JSON (`answer.rs`). Medians and their spread go into `docs/benchmarks.md` (`page.rs`) and into
//! pictures (`svg.rs`).
//!
//! | shape | what it does |
//! | --- | --- |
//! | `jobs` | append one by one, by 64 callers and in bulk; then drain with a handler that does nothing |
//! | `keyed` | 10,000 events over 500 keys, strictly serial per key, 1 ms handler; the handler looks for overlaps and disorder |
//! | `burst` | 1,000 keys × 20 events in 2 s, quiet 1 s: runs, events delivered, lateness |
//!
//! What cannot be installed, fails or does not end in time is a row that says so. The drivers of peers are in `peers/`, one file per
//! peer, with the versions of everything they install.

pub mod answer;
pub mod beanstalkd;
pub mod cell;
pub mod driver;
pub mod install;
pub mod limits;
pub mod page;
pub mod plan;
pub mod run;
pub mod servers;
pub mod sizes;
pub mod spread;
pub mod svg;
pub mod systems;
pub mod texts;
