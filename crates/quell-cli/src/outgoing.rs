//! Requests that a person has asked for: whoever types an address means it, also one of this machine.

use std::time::Duration;

use quell::fetch::{Allow, Guard, Http, HttpSettings};

use crate::failure::{self, Failure};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A client for this address.
pub(crate) fn client(url: &str) -> Result<Http, Failure> {
    let bad = |error: String| Failure::new(failure::USAGE, format!("{url:?} cannot be sent to: {error}"));
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let port = if url.starts_with("https") { 443 } else { 80 };
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let target = if has_port { place.to_owned() } else { format!("{place}:{port}") };
    let allow = Allow::parse([target]).map_err(|error| bad(error.to_string()))?;
    let guard = Guard::new(allow);
    guard.admit(url).map_err(|error| bad(error.to_string()))?;
    let settings = HttpSettings { timeout: TIMEOUT, ..HttpSettings::default() };
    Http::new(guard, &settings).map_err(|error| bad(error.to_string()))
}
