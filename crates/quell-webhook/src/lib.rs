//! Webhooks: who sent this, what is in it, and how ours are signed. Pure functions over bytes; no clock, no network.
//!
//! - `secret.rs`: what both sides know, and nobody else gets to see.
//! - `scheme.rs`: the interface of a provider's way to prove itself, and the list of known ones. One file each:
//!   `standard.rs`, `github.rs`, `stripe.rs`, `slack.rs`, `hmac.rs` (any other signature over the body), `bearer.rs`,
//!   `open.rs` (no proof at all). Applications add their own.
//! - `content.rs`: the body as JSON, once it is proven.
//! - `rule.rs`: where key, id and payload of the event are found in it.
//! - `endpoint.rs`: all of it together, for one configured endpoint: a delivery in, events or a refusal out.
//!
//! The order is the promise: proof first, on the bytes as they came; only then is anything parsed.

#![warn(missing_docs)]

mod bearer;
mod content;
mod encoding;
mod endpoint;
mod github;
mod hmac;
mod open;
mod refusal;
mod rule;
mod scheme;
mod secret;
mod slack;
mod standard;
mod stripe;

pub use bearer::Bearer;
pub use content::Content;
pub use endpoint::{Endpoint, Found, Item, Reading, Rules};
pub use hmac::{Encoding, Hmac};
pub use refusal::{Because, Refusal};
pub use rule::{BadRule, Rule};
pub use scheme::{Answer, Check, Delivery, Handshake, Proof, Scheme, Schemes};
pub use secret::{BadSecret, Secret};
pub use standard::{ID, SIGNATURE, Standard, TIMESTAMP};
