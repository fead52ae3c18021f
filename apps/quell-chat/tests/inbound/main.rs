//! Webhooks of WATI, Twilio and Meta: who is believed, what is found in them, and the way into the store over real HTTP.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod config;
mod fixtures;
mod forgeries;
mod http_server;
mod meta;
mod support;
mod twilio;
mod wati;
