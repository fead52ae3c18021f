//! The handler `log` as people see it: one readable line per batch on stdout.

use std::io::Write;

use async_trait::async_trait;
use owo_colors::OwoColorize;
use quell::{Handler, Outcome, Run};

use crate::times;

/// Longer payloads are cut; the whole is in `quell run ID --payloads`.
const PAYLOAD_CHARS: usize = 500;

/// Shows each batch and succeeds.
pub(super) struct Show {
    pub(super) payloads: bool,
}

#[async_trait]
impl Handler for Show {
    async fn handle(&self, run: &Run) -> Outcome {
        // One write per batch, so that the lines of several processes do not mix. A reader that went away changes
        // nothing about the work.
        // On a thread for blocking work: a reader that stops reading must hold up neither heartbeats nor signals.
        let text = self.text(run);
        let write = move || anstream::stdout().lock().write_all(text.as_bytes());
        let _ = tokio::task::spawn_blocking(write).await;
        Outcome::succeeded()
    }
}

impl Show {
    fn text(&self, run: &Run) -> String {
        let batch = run.batch();
        let events = u64::try_from(batch.events.len()).unwrap_or(u64::MAX);
        let mut text = format!(
            "{} {}: {}, fired by {}, {}, attempt {}\n",
            times::clock_face(batch.claimed_at, batch.claimed_at).dimmed(),
            batch.lane.bold(),
            times::count(events, "event"),
            batch.fired_by.as_str(),
            batch.run_id,
            batch.attempt,
        );
        if self.payloads {
            for event in &batch.events {
                let payload = times::one_line(event.payload.as_str(), PAYLOAD_CHARS);
                text.push_str(&format!("  {} {payload}\n", event.seq.dimmed()));
            }
        }
        text
    }
}
