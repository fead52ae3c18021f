//! What others are told of a running Quell: spans to a collector, numbers to Prometheus, alerts by the rules that are shipped.

mod alerts;
pub(crate) mod ear;
mod page;
mod traces;
