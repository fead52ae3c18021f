//! One integration binary: the shared suite, servers that must be refused, servers that stop, die and forget, processes that
//! are killed and such that ask one source, sources, and events aside.

#![expect(clippy::disallowed_methods, reason = "real servers are waited for in real time")]

mod aside;
mod contract;
mod faults;
mod governed;
mod kill;
mod restart;
mod sources;
