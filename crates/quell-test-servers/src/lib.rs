//! Real servers for tests: PostgreSQL, Redis and PgBouncer, started for one test or for one run and gone afterwards.
//!
//! Each server runs on a loopback port of its own, in a fresh folder, with durable settings, so that a test may stop
//! it, kill it like a power cut and start it again on the same port with the same data. When its value is dropped,
//! or when the process that holds it dies in whatever way, the server is ended and its folder deleted.
//!
//! Two ways to use it:
//!
//! - a test that only needs *a* server asks [`postgres_url`], [`redis_url`] or [`pgbouncer_url`] for the one that
//!   `cargo xtask test` started for the whole run; it panics if there is none, because a test that skips itself
//!   proves nothing;
//! - a test that wants to hurt its server starts one: [`Postgres::start`], [`Redis::start`], [`PgBouncer::start`].
//!
//! Tests of pages find Chromium and its driver with [`browser`].
//!
//! Nothing here speaks a database's language: a server is ready when it says so in its log and takes a connection.

mod clock;
mod find;
mod folder;
mod guard;
mod options;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod redis;
mod server;
mod shared;
mod user;

pub use find::{INSTALL, browser, missing_packages, promtool, strace, valgrind};
pub use options::Options;
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
pub use redis::Redis;
pub use shared::{PGBOUNCER, POSTGRES, REDIS, pgbouncer_url, postgres_url, redis_url};
