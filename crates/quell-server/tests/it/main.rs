//! The server over real HTTP.

mod depth;
mod document;
mod support;
