//! The server over real HTTP.

mod document;
mod support;
