//! The adapters against a market that is a real server on this machine, through the governed client and a real store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod collected;
mod ebay;
mod robots;
mod settings;
mod shop;
mod tokens;
mod world;
