//! The dashboard in a real browser: journeys of an operator through `quell serve`.
//!
//! Everything but what a program would do (sending, claiming, settling) is done by clicking and typing. A [`journey`] has a
//! server and a browser of its own, and at its end the browser must not have complained of anything: not of a script, not of a
//! file, not of the content security policy; and it must not have asked any other server for anything.
//!
//! `driver.rs` steers the browser, `served.rs` runs the server, `journey.rs` puts the two together and makes those checks.
//! The rest are journeys, one module for pages that belong together.
//!
//! [`journey`]: journey::journey

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod appearance;
mod attempts;
mod chat;
mod dead;
mod driver;
mod hostile;
mod journey;
mod lanes;
mod operator;
mod pages;
mod served;
