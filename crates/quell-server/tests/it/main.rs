//! The server over real HTTP.

mod corpus;
mod document;
mod matrix;
mod support;
