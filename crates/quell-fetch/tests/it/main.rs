//! The outgoing client against real sockets on this machine.

mod guard;
mod server;
