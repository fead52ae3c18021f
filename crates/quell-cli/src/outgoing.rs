//! Requests that a person has asked for: whoever types an address means it, also one of this machine.

use std::time::Duration;

use quell::fetch::{Allow, Guard, Http, HttpSettings};

use crate::failure::{self, Failure};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A client for this address.
pub(crate) fn client(url: &str) -> Result<Http, Failure> {
    let bad = |error: String| Failure::new(failure::USAGE, format!("{url:?} cannot be sent to: {error}"));
    let allow = Allow::exactly(url).map_err(|error| bad(error.to_string()))?;
    let guard = Guard::new(allow);
    guard.admit(url).map_err(|error| bad(error.to_string()))?;
    let settings = HttpSettings { timeout: TIMEOUT, ..HttpSettings::default() };
    Http::new(guard, &settings).map_err(|error| bad(error.to_string()))
}
