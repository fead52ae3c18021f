//! `quell send --wait`: how did it end?
//!
//! The event is followed through delays, merges, splits and redrives until the run that has it is over. The exit code
//! tells the end, so that a script needs no other look. While it takes long, stderr says what the key waits for.

use std::time::Duration;

use owo_colors::OwoColorize;
use quell::clock::{self, RealTime, Time};
use quell::quell_core::clock::Tick;
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::quell_core::event::LaneKey;
use quell::quell_core::inspect::{EventPlace, RunDetail};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::Receipt;
use quell::{Engine, Waited};
use serde::Serialize;

use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::times;

/// After this long somebody who waits is told why.
const PATIENCE: Duration = Duration::from_secs(5);
/// A store that is away is asked again after this long.
const AWAY: Duration = Duration::from_millis(500);

/// How the run ended, with `--json` as the field `ended`.
#[derive(Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    run: &'a quell::quell_core::inspect::RunRow,
    result: &'a Option<serde_json::Value>,
    usage: &'a std::collections::BTreeMap<String, f64>,
}

pub(super) async fn run(
    engine: &Engine,
    lane: LaneKey,
    receipt: &Receipt,
    timeout: Option<Duration>,
    json: bool,
) -> Result<u8, Failure> {
    if !json {
        output::line(super::told(receipt, context::now(engine).await?))?;
    }
    let ended = follow(engine, lane, receipt, timeout).await?;
    if json {
        let answer =
            ended.as_deref().map(|run| Ended { run: &run.row, result: &run.result, usage: &run.usage });
        let answer = serde_json::to_value(answer).map_err(std::io::Error::other)?;
        output::json(&output::with_field(receipt, "ended", answer)?)?;
    } else if let Some(run) = &ended {
        show(run)?;
    }
    match ended {
        Some(run) => Ok(code(run.row.state)),
        None => {
            let after = timeout.map(quell::config::DurationText::show).unwrap_or_default();
            Err(Failure::new(failure::NOT_YET, format!("{} has not ended after {after}", receipt.event_id))
                .help("it is stored and goes on; the same command with the same --id waits again"))
        }
    }
}

fn code(state: RunState) -> u8 {
    match state {
        RunState::Succeeded => 0,
        RunState::Failed => failure::RUN_FAILED,
        RunState::Cancelled => failure::RUN_CANCELLED,
        RunState::Pending | RunState::Running | RunState::Retryable => failure::NOT_YET,
    }
}

/// The run in which the event ended, or nothing when the time is over.
async fn follow(
    engine: &Engine,
    lane: LaneKey,
    receipt: &Receipt,
    timeout: Option<Duration>,
) -> Result<Option<Box<RunDetail>>, Failure> {
    let time = RealTime::new();
    let waited = || time.tick().since(Tick::default());
    let (mut told, mut last) = (false, None);
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(waited()));
        let slice = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        match engine.wait(lane.clone(), receipt.event_id.clone(), slice).await {
            Ok(Waited::Ended(run)) => return Ok(Some(run)),
            Ok(Waited::StillGoing(place)) => last = Some(place),
            Err(error) if error.is_temporary() => {
                output::say(format!("the store is not ready, asking again: {error}"));
                clock::sleep(left.map_or(AWAY, |left| left.min(AWAY))).await;
            }
            Err(StoreError { kind: ErrorKind::NotFound, .. }) => {
                let text = format!("{} was erased before it was handled", receipt.event_id);
                return Err(Failure::new(failure::RUN_CANCELLED, text));
            }
            Err(error) => return Err(error.into()),
        }
        if timeout.is_some_and(|timeout| waited() >= timeout) {
            return Ok(None);
        }
        if !told && let Some(place) = &last {
            told = true;
            say_why(engine, &lane, place).await;
        }
    }
}

/// Why it takes long. No answer is no reason to stop waiting.
async fn say_why(engine: &Engine, lane: &LaneKey, place: &EventPlace) {
    if let Some(ready) = place.ready_at {
        output::say(format!("waiting: the event enters {lane} at {ready}"));
    } else if let Ok(Some(detail)) = engine.lane(lane.clone()).await {
        output::say(format!("waiting: {lane}: {}", times::safe(&detail.row.why)));
    }
}

fn show(run: &RunDetail) -> std::io::Result<()> {
    let row = &run.row;
    let state = match row.state {
        RunState::Succeeded => row.state.green().to_string(),
        RunState::Failed => row.state.red().to_string(),
        state => state.to_string(),
    };
    let tries = if row.attempts == 1 { "try" } else { "tries" };
    output::line(format!(
        "{} {state} with {} after {} {tries}",
        row.id,
        times::count(row.events, "event"),
        row.attempts
    ))?;
    if let Some(result) = &run.result {
        output::line(times::safe(&result.to_string()))?;
    }
    if let Some(error) = row.error.as_deref().filter(|_| row.state != RunState::Succeeded) {
        output::say(times::safe(error.trim_end()));
    }
    Ok(())
}
