//! Transcripts of coding agents on Quell: captured by a hook, read once per burst, searchable.

mod clock;
pub mod events;
pub mod install;
pub mod journal;
pub mod line;
pub mod reader;
pub mod redact;
pub mod roots;
pub mod settings;
pub mod shape;
pub mod spool;
pub mod stdin;
pub mod words;
