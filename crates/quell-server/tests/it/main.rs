//! The server over real HTTP.

mod control;
mod corpus;
mod dashboard;
mod depth;
mod document;
mod events;
mod matrix;
mod reading;
mod streaming;
mod support;
mod work;
