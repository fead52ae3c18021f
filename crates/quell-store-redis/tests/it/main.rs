//! One integration binary: the shared suite, servers that must be refused, servers that stop, die and forget, processes that
//! are killed and such that ask one source, sources, events aside, and data of an older version.

#![expect(clippy::disallowed_methods, reason = "real servers are waited for in real time")]

mod aside;
mod contract;
mod faults;
mod governed;
mod kill;
mod older;
mod restart;
mod sources;
