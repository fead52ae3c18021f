//! Every batch to one address, with a line about each: what `quell listen` does in place of handlers.

use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use owo_colors::OwoColorize;
use quell::clock::{self, Stopwatch};
use quell::handlers::http::{Push, PushSettings};
use quell::quell_core::outcome::Verdict;
use quell::webhook::{Scheme, Standard};
use quell::{Handler, Outcome, Run};

use crate::failure::{self, Failure};
use crate::outgoing;
use crate::times;

/// An own secret, so that the other side need not be set up anew at each start.
const SECRET: &str = "QUELL_FORWARD_SECRET";
const ERROR_CHARS: usize = 200;

/// Where batches go, and what they are signed with.
#[derive(Debug, Clone)]
pub(crate) struct Forwarding {
    pub(super) url: String,
    /// A new secret, for the start line; nothing when the environment has one.
    pub(super) shown: Option<String>,
    push: Arc<Push>,
}

impl Forwarding {
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        let http = outgoing::client(url)?;
        let given = std::env::var(SECRET).ok().filter(|text| !text.is_empty());
        let text = given.clone().unwrap_or_else(|| Standard::new_secret(&clock::secret()));
        let bad = |error| Failure::new(failure::USAGE, format!("{SECRET} is no signing secret: {error}"));
        let secret = Standard.secret(&text).map_err(bad)?;
        let push = Arc::new(Push::new(&PushSettings::new(url), vec![secret], http));
        let shown = given.is_none().then_some(text);
        Ok(Forwarding { url: url.to_owned(), shown, push })
    }

    pub(super) fn handler(&self) -> Arc<dyn Handler> {
        Arc::new(Forward { push: self.push.clone() })
    }
}

struct Forward {
    push: Arc<Push>,
}

#[async_trait]
impl Handler for Forward {
    async fn handle(&self, run: &Run) -> Outcome {
        let since = Stopwatch::start();
        let outcome = self.push.handle(run).await;
        let (batch, ms) = (run.batch(), since.elapsed().as_millis());
        let verdict = match outcome.verdict {
            Verdict::Succeeded => "succeeded".green().to_string(),
            other => other.kind().as_str().yellow().to_string(),
        };
        let events = u64::try_from(batch.events.len()).unwrap_or(u64::MAX);
        let mut text = format!(
            "{} {} → {}, {}, attempt {}: {verdict} after {ms} ms\n",
            times::clock_face(batch.claimed_at, batch.claimed_at).dimmed(),
            batch.lane.bold(),
            times::count(events, "event"),
            batch.run_id,
            batch.attempt,
        );
        if let Some(error) = &outcome.error {
            text.push_str(&format!("  {}\n", times::one_line(error, ERROR_CHARS)));
        }
        // On a thread for blocking work: a reader that stops reading must hold up neither heartbeats nor signals.
        let write = move || anstream::stdout().lock().write_all(text.as_bytes());
        let _ = tokio::task::spawn_blocking(write).await;
        outcome
    }
}
