//! The server over real HTTP.

mod attempts;
mod board;
mod control;
mod corpus;
mod dashboard;
mod deliveries;
mod depth;
mod document;
mod events;
mod hook_corpus;
mod hooks;
mod matrix;
mod overview;
mod reading;
mod sections;
mod senders;
mod streaming;
mod support;
mod transport;
mod work;
