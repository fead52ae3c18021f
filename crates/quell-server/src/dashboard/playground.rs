//! The playground: draw a burst, move the window, see when batches fire; or take the arrivals of a lane that were recorded and
//! see what other settings would have made of them.
//!
//! Everything is in the address, so a trial can be shared, and a form is enough to use it. The script draws and moves; it asks
//! the same address again and computes nothing. What fires when is decided by the engine itself (`rehearsal.rs`).

mod picture;
mod recorded;
mod rehearsal;
mod trial;

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use http::HeaderMap;

use self::picture::Picture;
use self::recorded::Recorded;
use self::rehearsal::{Rehearsed, rehearse};
use self::trial::{Fields, Trial};
use super::lanes::{Refused, known_queues};
use super::shell::{self, Content, Shell, rendered};
use super::{PageAnswer, assets, view};
use crate::Query;
use crate::app::App;
use crate::auth::Principal;
use crate::error::Answer;

#[derive(Template)]
#[template(path = "playground.html")]
struct Playground<'a> {
    trial: &'a Trial,
    recorded: Option<&'a Recorded>,
    queues: Vec<String>,
    result: String,
}

impl Playground<'_> {
    fn asset(&self, name: &str) -> String {
        assets::place(name)
    }
}

/// What comes of it.
#[derive(Template)]
#[template(path = "rehearsal.html")]
struct Rehearsal<'a> {
    trial: &'a Trial,
    recorded: Option<&'a Recorded>,
    batches: Vec<Rehearsed>,
    picture: Picture,
}

impl Rehearsal<'_> {
    fn events(&self) -> usize {
        self.batches.iter().map(|batch| batch.events).sum()
    }

    /// The longest that an event waited for its run.
    fn longest(&self) -> String {
        let waits = self.batches.iter().map(|batch| batch.fired.saturating_sub(batch.first));
        picture::seconds(waits.max().unwrap_or_default())
    }

    fn at(&self, moment: &std::time::Duration) -> String {
        picture::seconds(*moment)
    }

    fn reason(&self, batch: &Rehearsed) -> &'static str {
        use quell::quell_core::window::FiredBy;
        match batch.by {
            FiredBy::None => "at once: there is no window",
            FiredBy::Fixed => "the fixed time was over",
            FiredBy::Quiet => "it was quiet for long enough",
            FiredBy::Cap => "the cap: the burst did not end in time",
            FiredBy::Count => "as many events as one batch takes",
            FiredBy::Bytes => "as many bytes as one batch takes",
            FiredBy::Flush | FiredBy::Retry | FiredBy::Merge | FiredBy::Redrive => "by hand",
        }
    }
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    headers: HeaderMap,
    Query(fields): Query<Fields>,
) -> PageAnswer {
    let recorded = recorded::of(&app, &principal, &fields).await?;
    let trial = Trial::read(&fields, recorded.as_ref(), &app.engine.settings());
    let result = match &trial {
        Ok(trial) => outcome(trial, recorded.as_ref()).await?,
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    if shell::is_fragment(&headers) {
        return Ok(shell::html(result));
    }
    let trial = trial.unwrap_or_else(|_| Trial::as_written(&fields));
    let queues = known_queues(&app, &principal);
    let fixed = rendered(&Playground { trial: &trial, recorded: recorded.as_ref(), queues, result });
    Ok(shell.show(&Content { title: "Playground".to_owned(), fixed, live: String::new() }))
}

async fn outcome(trial: &Trial, recorded: Option<&Recorded>) -> Answer<String> {
    let batches = rehearse(&trial.arrivals, trial.window, trial.handling).await?;
    let picture = Picture::of(&trial.arrivals, &batches, trial.span);
    Ok(rendered(&Rehearsal { trial, recorded, batches, picture }))
}
