//! One integration binary: the shared suite, servers that must be refused, and servers that stop, die and forget.

mod contract;
mod faults;
mod kill;
mod restart;
