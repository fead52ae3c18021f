//! The server over real HTTP.

mod dashboard;
mod depth;
mod document;
mod support;
