//! The server over real HTTP.

mod support;
