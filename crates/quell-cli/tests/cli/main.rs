//! The real binary, started as a user would start it, in folders of its own.
//!
//! No test sleeps: they wait for lines of output, or ask again and again until an answer is right or patience ends.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod answers;
mod backups;
mod belongings;
mod bench;
mod canaries;
mod chat;
mod chat_load;
mod configuration;
mod copying;
mod demo;
mod disks;
mod doctor;
mod first_steps;
mod handlers;
mod hook;
mod hooks;
mod manual;
mod operating;
mod prices;
mod reloading;
mod schedules;
mod sending;
mod serving;
mod several;
mod simulating;
mod sources;
mod stopping;
mod stores;
mod support;
mod telemetry;
mod together;
mod top;
mod torture;
mod waiting;
