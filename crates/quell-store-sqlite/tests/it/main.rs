//! One integration binary: the shared suite, real processes killed at random, and files that must be refused.

mod contract;
mod faults;
mod kill;
