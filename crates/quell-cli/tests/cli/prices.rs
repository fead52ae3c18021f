//! Collectors: prices from a market on this machine, collected by real processes.

mod commands;
mod concurrency;
mod holes;
mod stall;
