//! One integration binary: the shared suite on a real server and through a pooler, servers that are restarted and killed,
//! processes that are killed and such that ask one source, sources, events in callers' own transactions, and what must be
//! refused with a reason.

#![expect(clippy::disallowed_methods, reason = "tests with a real server wait for it and measure it")]

mod contract;
mod faults;
mod firsts;
mod governed;
mod kill;
mod leases;
mod pooler;
mod restart;
mod sources;
mod transact;
mod wake;
mod world;
