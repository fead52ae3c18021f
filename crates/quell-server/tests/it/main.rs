//! The server over real HTTP.

mod corpus;
mod dashboard;
mod depth;
mod document;
mod matrix;
mod support;
