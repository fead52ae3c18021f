//! What others are told of a running Quell: spans to a collector, numbers to Prometheus, alerts by the rules that are shipped.

mod alerts;
mod ear;
mod page;
mod traces;
