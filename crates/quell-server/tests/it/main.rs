//! The server over real HTTP.

mod dashboard;
mod support;
