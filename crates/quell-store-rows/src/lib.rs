//! The verbs of the contract for stores that reach their rows over a connection: written once, for all of them.
//!
//! A transaction reads and locks the rows that a verb is about ([`rows::Rows`]), puts them into a working set
//! (`quell_core::working_set`, the code of the memory store), lets that decide, and writes the difference
//! ([`changes::Changes`]). A store provides the reading and writing; the order of things, what is read for which verb,
//! grouping of concurrent calls and repetition after conflicts are here. So PostgreSQL and Redis answer as the memory
//! store does, because it is the memory store that answers.

pub mod changes;
pub mod codec;
pub mod rows;

mod append;
mod claim;
mod clock;
mod control;
mod extend;
mod group;
mod repeats;
mod settle;
mod shelf;
mod source;
mod step;
mod store;
mod sweep;
mod work;

pub use store::RowStore;

use std::time::Duration;

/// A lane that has been due for longer than this is waited for, however often appends keep it locked.
pub const OVERDUE: Duration = Duration::from_millis(100);
