//! Deliveries as providers send them.

mod fixtures;
mod forgeries;
mod vectors;
