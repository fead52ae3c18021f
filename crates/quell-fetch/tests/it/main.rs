//! The outgoing client against real sockets on this machine.

#![expect(clippy::disallowed_methods, reason = "real servers are waited for in real time")]
#![expect(clippy::unwrap_used, reason = "what a test builds for itself is there, or the test fails")]

mod call;
mod fetch;
mod forbidden;
mod guard;
mod names;
mod recall;
mod server;
mod stream;
mod tls;
mod world;
