//! One integration binary: the shared suite on two databases of a kind, and what only several databases can get wrong.

mod exempt;
mod memory;
mod own;
mod postgres;
