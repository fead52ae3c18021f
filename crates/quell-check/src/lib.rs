//! The independent checker of histories.
//!
//! It knows the contract and nothing of the engine: it imports none of its crates, so an error in the engine's own
//! tables cannot hide itself here. A recorder outside the system writes what was asked and what was answered
//! ([`history`]); the last record is a dump of the store.
//!
//! # The shape of a history
//!
//! ```text
//! {"idx":1,"process":0,"phase":"ok","op":{"policy":{"queue":"q","window":"none", …}}}
//! {"idx":2,"process":1,"call":1,"phase":"invoke","op":{"append":{"events":[{"queue":"q","lane":"a","id":"e1","hash":17}]}}}
//! {"idx":3,"process":1,"call":1,"phase":"ok","at":1000,"answer":{"appended":{"receipts":[{"id":"e1","seq":2,"run":3}]}}}
//! {"idx":4,"process":2,"call":1,"phase":"invoke","op":{"claim":{"worker":"w"}}}
//! {"idx":5,"process":2,"call":1,"phase":"ok","answer":{"claimed":{"now":1000,"claims":[{"lane":"a","run":3,"token":4, …}]}}}
//! …
//! {"idx":9,"process":0,"phase":"ok","op":{"dump":{"queues":[…],"events":[…],"runs":[…],"audit":[…]}}}
//! ```

pub mod history;
