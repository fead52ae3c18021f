//! A deterministic simulator over the shipped logic: real worker loops, drivers, sweepers and the memory store, with
//! simulated time, network, processes and faults.
//!
//! A seed makes a [`Plan`]; [`run`] lets it happen, heals the world, waits until everything that can finish has, reads
//! the store and has the independent checker judge the recorded history. The same seed gives the same history, to the
//! last byte. A plan that fails is shrunk ([`shrink`]) and can be replayed by one command that names the seed and the
//! items that are left.
//!
//! # What is real and what is not
//!
//! | real | simulated |
//! | --- | --- |
//! | `WorkerLoop`, `RunDriver`, `Sweeper` | the tasks and timers that perform their effects |
//! | `MemoryStore` with `lane.rs`, `window.rs`, `aside.rs`, `schedule.rs` | its clock, and the network before it |
//! | the checker | handlers, senders, pullers and operators |
//!
//! # Where to start reading
//!
//! `plan.rs` (what a schedule is made of), `world.rs` (the queue of things to come), `node.rs` (a worker process),
//! `handler.rs` (what handlers do), `closing.rs` (the end), `campaign.rs` (many seeds).

mod call;
mod campaign;
pub mod chance;
mod clock;
mod closing;
mod dump;
mod governed;
mod handler;
mod node;
mod outcome;
mod people;
pub mod plan;
mod pull;
mod record;
mod seen;
mod shrink;
mod sink;
mod world;

pub use call::{MakeStore, Subject, ready, real};
pub use campaign::{Campaign, Seeds, Totals, campaign};
pub use outcome::{Failure, Finished, Problem, run, run_plan};
pub use plan::Plan;
pub use seen::{Seen, Sight};
pub use shrink::{Shrunk, shrink};
