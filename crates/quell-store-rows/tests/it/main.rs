//! The verbs over rows, on rows in memory: the whole suite without a server.

mod contract;
mod plain;
