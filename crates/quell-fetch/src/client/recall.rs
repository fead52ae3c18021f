//! Answers under a key of the handler's own: what several requests together have brought, kept as one JSON value.
//!
//! The same cache as for single requests, with the same promises: a hit touches neither bucket nor breaker, and of all who
//! want one answer at a time, in all processes, one fetches it. The requests of such a handler go past the cache themselves
//! ([`Fetcher::past_the_cache`]): what they bring is kept once, as a whole or not at all.

use std::future::Future;
use std::time::Duration;

use quell_core::store::{SourceAction, SourceAnswer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{FLIGHT_PAUSE, FLIGHT_WAIT_MAX, FetchError, Fetcher, Origin, bearable};
use crate::clock;

/// Whether what is fetched now is kept.
enum Flight {
    /// For all who wait.
    Fly,
    /// In the place of a value that cannot be read: another version has written it.
    Replace,
    /// The source has no cache.
    Off,
}

impl Fetcher {
    /// Makes every single request anew and keeps none of their answers: for handlers that keep what they make of them
    /// ([`Fetcher::recall`]).
    #[must_use]
    pub fn past_the_cache(mut self) -> Self {
        self.keeps = false;
        self
    }

    /// The value kept under this key, or what `fetch` brings, which is then kept for the others. An error is kept by nobody.
    ///
    /// A value that is larger than the store keeps is handed out and forgotten. Tasks of one run that want the same value at
    /// once fetch it each: the flight is the run's. A run that nothing governs has no cache.
    pub async fn recall<T, E, F, Fut>(&self, key: &str, fetch: F) -> Result<(T, Origin), E>
    where
        T: Serialize + DeserializeOwned,
        E: From<FetchError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        if !self.governed || self.other.is_some() {
            return Ok((fetch().await?, Origin::Source));
        }
        let mut patience = Patience::new();
        let flight = loop {
            match self.ask(self.question(key)).await.map_err(FetchError::Store)? {
                SourceAnswer::Hit(value) => match serde_json::from_value(value) {
                    Ok(kept) => return Ok((kept, Origin::Cache)),
                    Err(_) => break Flight::Replace,
                },
                SourceAnswer::Fetch { until: Some(_) } => break Flight::Fly,
                SourceAnswer::Fetch { until: None } => break Flight::Off,
                _ => patience.pause().await?,
            }
        };
        let made = fetch().await;
        match (&made, flight) {
            (_, Flight::Off) | (Err(_), Flight::Replace) => {}
            // Why there is no value says more than that the others could not be told.
            (Err(_), Flight::Fly) => drop(self.land_value(key, None).await),
            (Ok(value), Flight::Fly | Flight::Replace) => {
                let value = serde_json::to_value(value).ok().map(|value| (value, self.ttl));
                self.land_value(key, value).await?;
            }
        }
        Ok((made?, Origin::Source))
    }

    /// Says that the value under this key is still being fetched by this run, so that nobody else begins: for a fetch that
    /// takes longer than a flight, before each of its requests.
    pub async fn still_fetching(&self, key: &str) -> Result<(), FetchError> {
        if !self.governed || self.other.is_some() {
            return Ok(());
        }
        bearable(self.ask(self.question(key)).await)
    }

    /// Requests that were made by this client.
    pub fn requests(&self) -> usize {
        self.made.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn question(&self, key: &str) -> SourceAction {
        SourceAction::Recall { key: key.to_owned(), ttl: self.ttl }
    }
}

/// The pauses between looks at an answer that somebody else fetches.
pub(super) struct Patience {
    pause: Duration,
    waited: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        Patience { pause: FLIGHT_PAUSE.0, waited: Duration::ZERO }
    }

    /// Waits a little longer than before, until it has been long enough.
    pub(super) async fn pause(&mut self) -> Result<(), FetchError> {
        if self.waited >= FLIGHT_WAIT_MAX {
            return Err(FetchError::Busy);
        }
        clock::sleep(self.pause).await;
        self.waited += self.pause;
        self.pause = (self.pause * 2).min(FLIGHT_PAUSE.1);
        Ok(())
    }
}
