//! Hostile input for everything that reads what others have written.
//!
//! A target (`targets.rs`) takes any bytes, panics when a promise is broken, and says in a word which way the input went.
//! The search (`search.rs`) changes inputs of a kept corpus, and goes on from those that went a way which none before
//! went: no instrumented build is needed, so it runs on the toolchain of the project. It stops at the first input that
//! breaks a promise, or that takes too long, makes it small and keeps it in the corpus, where the test finds it for ever.
//!
//! `tests/corpus.rs` runs the corpus and a fixed number of changed inputs; `cargo xtask fuzz` goes on for as long as you
//! like.

pub mod clock;
pub mod corpus;
mod mutate;
pub mod search;
mod targets;

pub use targets::{TARGETS, Target};
