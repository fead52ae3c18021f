//! Transcripts of coding agents on Quell: captured by a hook, read once per burst, searchable.

pub mod deliver;
pub mod install;
pub mod line;
pub mod reader;
pub mod redact;
pub mod roots;
pub mod shape;
pub mod spool;
