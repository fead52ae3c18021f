//! Chat: one answer per burst, per customer, in order.
//!
//! What a customer writes comes in by a webhook of WATI, Twilio or Meta (`inbound.rs`), becomes one event per message
//! (`message.rs`) in the lane of that customer, and waits until the customer has finished typing. Then one run joins the
//! messages, asks a model, and sends one reply the way the messages came.

pub mod local;
pub mod message;
pub mod model;
pub mod provider;
mod words;
