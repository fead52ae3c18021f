//! One integration binary: the shared suite on a real server.

mod contract;
mod world;
