//! Collectors: prices of things, gathered from governed sources, each kept once, and one value made of them.
//!
//! Follow one price: an intake (`intake.rs`) is asked for at a source by an event of the queue `collect`. One run (`collect.rs`)
//! turns the pages of the source's adapter (`adapter.rs`), each a step, into items (`found.rs`), says how well each fits the
//! intake (`matching.rs`), and writes them into the book (`book.rs`) under a key that is the same however often and however
//! spelt the item is met (`dedupe.rs`). A debounced run per intake then makes one value of all its points (`value.rs`).
//!
//! Money is whole numbers with a currency (`money.rs`), never a float.

pub mod adapter;
pub mod found;
pub mod intake;
pub mod money;
