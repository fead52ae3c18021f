//! Conversations with customers: real servers and workers, real webhooks, a model and providers on this machine, and kills.
//!
//! `per_customer_lock.rs` and `debouncer.rs` have the scenarios of two systems that did the same before, one on SQLite and one on
//! Redis, and a test for each way in which they lost a message, a reply or a customer. `desk.rs` is what people do with
//! conversations, `changing.rs` what may be changed while all this runs, `sending.rs` who dies while a reply is on its way.

mod bot;
mod changing;
mod debouncer;
mod desk;
mod per_customer_lock;
mod sending;
