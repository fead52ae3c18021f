//! One integration binary: the shared suite on two databases of a kind, and what only several databases can get wrong.

#![expect(clippy::disallowed_methods, reason = "tests with a real server wait for it")]

mod exempt;
mod memory;
mod own;
mod postgres;
