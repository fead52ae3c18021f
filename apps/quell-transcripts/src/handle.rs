//! The handler of the queue `transcripts`: a batch of hook events of one session becomes one pass over its transcripts.
//!
//! However many events a burst had, the transcript is read once; events that arrive meanwhile make the next run, and so
//! another pass. A transcript that does not exist yet is looked for again after a second, at most ten times. Nothing that
//! an agent sends can make a run fail for good: what cannot be understood is counted, and the event is kept.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use quell::quell_core::error::StoreError;
use quell::quell_core::event::Event;
use quell::{Handler, Outcome, Run};
use serde_json::{Value, json};

use crate::archive::Told;
use crate::forward::Parcel;
use crate::ingest::{Ingest, Passed};
use crate::shape::HookEvent;

/// The queue that hooks append to.
pub const QUEUE: &str = "transcripts";
/// A transcript that is not there yet is looked for again after this long.
const MISSING_WAIT: Duration = Duration::from_secs(1);
/// How often; then the session is kept without it.
const MISSING_TRIES: u32 = 10;

/// Reads transcripts when hooks say that there is something new.
pub struct Transcripts {
    ingest: Ingest,
}

impl Transcripts {
    pub fn new(ingest: Ingest) -> Self {
        Transcripts { ingest }
    }

    async fn work(&self, run: &Run) -> Result<Outcome, StoreError> {
        let session = run.key().as_str();
        let (sink, now) = (self.ingest.sink(), run.batch().claimed_at.as_millis());
        let mut batch = Understood::default();
        for event in run.events() {
            batch.take(event, &self.ingest);
        }
        sink.tell(session, &batch.told).await?;
        for parcel in &batch.parcels {
            parcel.unpack(sink, session).await?;
        }
        let mut passed = Passed::default();
        if !batch.told.is_empty() {
            passed = self.ingest.pass(session, &batch.named, now).await?;
            if passed.missing && run.attempt() <= MISSING_TRIES && !run.is_last_attempt() {
                let said = passed.problem.unwrap_or_default();
                return Ok(Outcome::retry_after(MISSING_WAIT, format!("{said} yet")));
            }
        }
        let told = batch.parcels.iter().rev().find_map(Parcel::problem).map(str::to_owned);
        passed.problem = passed.problem.or(told);
        sink.finish(session, passed.problem.as_deref()).await?;
        let Passed { files, bytes, lines, malformed, unknown, problem, .. } = passed;
        let result = json!({
            "files": files, "bytes": bytes, "lines": lines, "malformed": malformed, "unknown_types": unknown,
            "not_understood": batch.not_understood, "problem": problem,
        });
        Ok(Outcome::succeeded().with_result(result))
    }
}

#[async_trait]
impl Handler for Transcripts {
    async fn handle(&self, run: &Run) -> Outcome {
        match self.work(run).await {
            Ok(outcome) => outcome,
            // Whatever it is, the transcript is still there: a person can redrive what the retries did not mend.
            Err(error) => Outcome::retry(error.to_string()),
        }
    }
}

/// What the events of a batch say.
#[derive(Default)]
struct Understood {
    told: Vec<Told>,
    parcels: Vec<Parcel>,
    /// Transcripts that hooks named beside the main one.
    named: Vec<PathBuf>,
    not_understood: u64,
}

impl Understood {
    fn take(&mut self, event: &Event, ingest: &Ingest) {
        // Otherwise the word only stands somewhere in a hook's event.
        if let Some(Ok(parcel)) = Parcel::read(event.payload.as_str()) {
            return self.parcels.push(parcel);
        }
        match HookEvent::read(event.payload.as_str().as_bytes()) {
            Ok(mut hook) => {
                // The hook has done this already; an event may also have come another way.
                let mut payload = Value::Object(std::mem::take(&mut hook.payload));
                ingest.redactor().redact_json(&mut payload);
                if let Value::Object(map) = payload {
                    hook.payload = map;
                }
                self.named.extend(hook.agent_transcript_path.iter().map(PathBuf::from));
                let (id, at) = (event.id.to_string(), event.received_at.as_millis());
                self.told.push(Told { id, at, event: hook });
            }
            Err(_) => self.not_understood += 1,
        }
    }
}
