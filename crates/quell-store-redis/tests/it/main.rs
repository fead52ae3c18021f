//! One integration binary: the shared suite, servers that must be refused, and servers that stop, die and forget.

#![expect(clippy::disallowed_methods, reason = "real servers are waited for in real time")]

mod contract;
mod faults;
mod kill;
mod restart;
mod sources;
