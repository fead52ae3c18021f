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
//! | `ManyStore` over two or three of them, in a quarter of the schedules | their clocks, and the network before each |
//! | the checker | handlers, senders, pullers and operators |
//!
//! # What happens in it
//!
//! | | |
//! | --- | --- |
//! | people | sends of all kinds, every action of an operator: pause, flush, cancel, redrive, purge, erase, edit, schedules, sources |
//! | processes | crash, standstill with and without its clock, shutdown, restart with other settings |
//! | network | lost questions and answers for all (`world.rs`) or for one process; for pull workers a server between them and the store that is gone for a while, and requests that are delivered twice (`network.rs`) |
//! | several databases | one of them refuses calls, loses questions or answers or is slow, for all or for one process; a process or the server dies between two of them (`databases.rs`, `link.rs`) |
//! | store | its clock jumps or stands still, wake-ups get lost, backup and restore |
//! | mixed versions | processes and senders with older and newer settings of the same queues work on one store, and change them forth and back (`plan/versions.rs`). What a store written by an older version looks like is a matter of its migrations and tested there |
//!
//! Several stores of different queues are not simulated: a program that spreads its queues over them has one such world for each,
//! because nothing is shared between them. Several databases of one store share a map, what they relay to one another and the hands of
//! operators, and are.
//!
//! # Where to start reading
//!
//! `plan.rs` (what a schedule is made of), `world.rs` (the queue of things to come), `travel.rs` (a call and its answer),
//! `databases.rs` (calls over several databases), `node.rs` (a worker process), `handler.rs` (what handlers do), `closing.rs` (the end), `campaign.rs` (many seeds).

mod call;
mod campaign;
pub mod chance;
mod clock;
mod closing;
mod databases;
mod dump;
mod governed;
mod handler;
mod link;
mod network;
mod node;
mod outcome;
mod people;
pub mod plan;
mod pull;
mod record;
mod seen;
mod shrink;
mod sink;
mod travel;
mod world;

pub use call::{MakeStore, Subject, ready, real};
pub use campaign::{Campaign, Seeds, Totals, campaign};
pub use outcome::{Failure, Finished, Problem, run, run_plan};
pub use plan::Plan;
pub use seen::{Seen, Sight};
pub use shrink::{Shrunk, shrink};
