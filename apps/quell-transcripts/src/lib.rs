//! Transcripts of coding agents on Quell: captured by a hook, read once per burst, searchable.
//!
//! The path of an event: `stdin.rs` reads what the agent says, `shape.rs` makes an event of it, `hook.rs` leaves it in
//! the log of `spool.rs` and `keeper.rs` makes sure that somebody works. The worker brings it into the queue and hands a burst to
//! `handle.rs`; `ingest.rs` reads what is new (`roots.rs`, `reader.rs`, `line.rs`, `redact.rs`) and `archive.rs` keeps it.
//! Reading is in `reading.rs`, and what the dashboard shows of it in `pages.rs`. On a host whose sessions are kept elsewhere,
//! `forward.rs` stands in the archive's place.

pub mod archive;
mod clock;
pub mod copy;
pub mod events;
pub mod forward;
pub mod handle;
pub mod hook;
pub mod ingest;
pub mod install;
pub mod journal;
pub mod keeper;
pub mod lazily;
pub mod line;
pub mod pages;
pub mod reader;
pub mod reading;
pub mod redact;
pub mod roots;
pub mod settings;
pub mod shape;
pub mod spool;
pub mod stdin;
pub mod words;
