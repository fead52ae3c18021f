//! The worker's logic as pure machines: `step(now, input, out)` turns what happened into what to do next.
//!
//! Three machines, no I/O, no runtime and no clock of their own:
//!
//! - [`WorkerLoop`] decides when to sweep, when to claim, how many lanes, and how to stop;
//! - [`RunDriver`] takes one claimed run from the claim to its settlement and keeps its lease meanwhile;
//! - [`Sweeper`] removes what is older than the retention, a small step at a time.
//!
//! `quell/src/worker.rs` performs the effects with a real store and real time; the simulator performs them with neither.
//! Whatever can be decided is decided here, so both run the same logic. An effect that is performed answers with an
//! input: `Claim` with `Claimed`, `Extend` with `Extended`, and so on. Inputs may come late, in any order, or never:
//! each machine bounds its own waiting by `now`.

mod run_driver;
mod run_state;
mod sweeper;
mod worker_loop;
mod worker_state;

#[cfg(test)]
mod giving_way_tests;
#[cfg(test)]
mod run_driver_tests;
#[cfg(test)]
mod worker_loop_tests;

pub use run_driver::RunDriver;
pub use run_state::{HandlerEnd, OnError, RunEffect, RunEnd, RunInput, RunPhase, RunSettings, RunTicket};
pub use sweeper::{Sweeper, SweeperEffect, SweeperInput};
pub use worker_loop::WorkerLoop;
pub use worker_state::{
    LoopChange, LoopEffect, LoopInput, LoopQueue, LoopQueues, LoopSettings, MOVES, Slot, WorkerState,
};
