//! One run with everything that happened to it, and sending it back: as it is, or with other payloads.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Request};
use quell::RedriveWish;
use quell::config::HandlerSettings;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::batch::RunId;
use quell::quell_core::event::{Event, EventId, Payload};
use quell::quell_core::inspect::{RunDetail, RunRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::{RedriveTo, StepRow};
use quell::quell_core::window::FiredBy;
use serde::Deserialize;

use super::attempts::{self, Attempt};
use super::commands::{self, Command};
use super::form::Form;
use super::lane::host;
use super::payload::{self, EventShown, Shown};
use super::shell::{Content, Shell, rendered};
use super::timeline::{self, Timeline};
use super::view::{self, Clock};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem};
use crate::inspect::visible_run;
use crate::{Path, Query, limits};

/// Events of a run that its page shows; the API has all.
const EVENTS: usize = 50;
/// Events that can be changed in one form, and the bytes of one of them: a person edits little.
const EDITABLE: usize = 20;
const EDITABLE_BYTES: usize = 32 * 1024;

/// Another run, and what it has to do with this one.
struct Link {
    what: &'static str,
    run: RunId,
}

struct Step<'a> {
    row: &'a StepRow,
    value: Option<Shown>,
}

#[derive(Template)]
#[template(path = "run.html")]
struct Detail<'a> {
    clock: Clock,
    run: &'a RunDetail,
    links: Vec<Link>,
    timeline: Timeline,
    attempts: Vec<Attempt>,
    result: Option<Shown>,
    steps: Vec<Step<'a>>,
    events: Vec<EventShown<'a>>,
    commands: Vec<Command>,
    /// What handles it, as the configuration says now.
    handler: String,
    /// It has ended without success, and its events are still there to be tried again.
    may_redrive: bool,
    came_from: bool,
}

impl Detail<'_> {
    fn lane(&self) -> String {
        view::lane_place(&self.run.row.lane)
    }

    fn told(&self, record: &AuditRecord) -> String {
        told(record, self.clock)
    }

    /// What closed its window.
    fn fired(&self, by: &FiredBy) -> &'static str {
        match by {
            FiredBy::None => "its first event: the queue has no window",
            other => other.as_str(),
        }
    }

    fn name_of(&self, record: &AuditRecord) -> String {
        record.change.as_str().replace('_', " ")
    }

    /// How it looks in the time line.
    fn tone(&self, record: &AuditRecord) -> &'static str {
        record.to.map_or("", RunState::as_str)
    }
}

/// One record of the trail in words.
pub(super) fn told(record: &AuditRecord, clock: Clock) -> String {
    let mut parts = Vec::new();
    if let Some(worker) = &record.worker {
        parts.push(format!("by worker {worker}"));
    }
    if let Some(who) = record.who() {
        parts.push(format!("by {who}"));
    }
    if let Some(reason) = record.reason() {
        parts.push(format!("because: {reason}"));
    }
    if record.attempt > 0 {
        parts.push(format!("attempt {}", record.attempt));
    }
    if let (Some(from), Some(to)) = (record.from, record.to)
        && from != to
    {
        parts.push(format!("{from} → {to}"));
    }
    if let Some(at) = record.next_at {
        let what = if record.to == Some(RunState::Running) { "lease until" } else { "due" };
        parts.push(format!("{what} {}", clock.face(&at)));
    }
    view::visible(&parts.join(", "))
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct DetailQuery {
    redriven: Option<String>,
}

pub(super) async fn detail(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path(run): Path<String>,
    Query(query): Query<DetailQuery>,
    headers: HeaderMap,
) -> PageAnswer {
    let id: RunId = run.parse()?;
    let mut run = visible_run(&app, &principal, id).await?;
    // As it happened, the first thing first.
    run.audit.sort_by_key(|record| record.id);
    let clock = Clock { now: app.now().await? };
    let settings = app.engine.settings();
    let (rules, traces) = (&settings.dashboard.redact, settings.dashboard.trace_url.as_deref());
    attempts::hide_errors(rules, [&mut run.row]);
    let queue = settings.queue(&run.row.lane.queue);
    let window = queue.as_ref().map(|queue| queue.append_policy(&run.row.lane.tenant).window);
    let shown = run.list.len().min(EVENTS);
    let steps = run.steps.iter();
    let live = rendered(&Detail {
        clock,
        links: links(&run.row),
        timeline: Timeline::of_run(&run, window, clock.now),
        attempts: attempts::of_run(rules, &run, clock.now),
        result: run.result.clone().map(|value| Shown::of(rules, value)),
        steps: steps
            .map(|row| Step { row, value: row.value.clone().map(|value| Shown::of(rules, value)) })
            .collect(),
        events: payload::events(rules, traces, &run.list[..shown]),
        commands: commands::of_run(id, host(&headers)),
        handler: queue.map(|queue| handled_by(&queue.handler)).unwrap_or_default(),
        may_redrive: shell.operates() && may_redrive(&run.row),
        came_from: query.redriven.is_some(),
        run: &run,
    });
    Ok(shell.show(&Content { title: id.to_string(), fixed: String::new(), live }))
}

/// Without what may hold a secret: arguments, names in addresses, queries.
fn handled_by(handler: &HandlerSettings) -> String {
    match handler {
        HandlerSettings::Log => "the log".to_owned(),
        HandlerSettings::Pull => "workers elsewhere, over HTTP".to_owned(),
        HandlerSettings::Exec(exec) => {
            format!("the program {}", exec.argv.first().map_or("", String::as_str))
        }
        HandlerSettings::Http(push) => format!("POST {}", push.target()),
        HandlerSettings::App => "an application of this program".to_owned(),
    }
}

fn may_redrive(row: &RunRow) -> bool {
    matches!(row.state, RunState::Failed | RunState::Cancelled) && row.links.redriven_into.is_none()
}

fn links(row: &RunRow) -> Vec<Link> {
    let links = &row.links;
    let single = [
        ("Redriven from", links.redriven_from),
        ("Redriven into", links.redriven_into),
        ("Continued in", links.continued_in),
        ("Merged into", links.merged_into),
        ("Split from", links.split_from),
    ];
    let single = single.into_iter().filter_map(|(what, run)| Some(Link { what, run: run? }));
    single.chain(links.split_into.iter().map(|run| Link { what: "Split into", run: *run })).collect()
}

/// One event in the form that changes payloads.
struct Editable<'a> {
    event: &'a Event,
    text: String,
}

#[derive(Template)]
#[template(path = "run_edit.html")]
struct EditForm<'a> {
    run: &'a RunRow,
    events: Vec<Editable<'a>>,
    /// Those that are not in the form: too large, too many, or partly hidden.
    left_out: usize,
    problem: Option<&'a str>,
}

impl EditForm<'_> {
    fn lane(&self) -> String {
        view::lane_place(&self.run.lane)
    }
}

pub(super) async fn edit(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path(run): Path<String>,
) -> PageAnswer {
    let id: RunId = run.parse()?;
    let run = visible_run(&app, &principal, id).await?;
    Ok(edit_page(&app, &shell, &run, None))
}

fn edit_page(app: &App, shell: &Shell, run: &RunDetail, problem: Option<&str>) -> Response {
    let events = editable(app, run);
    let left_out = run.list.len() - events.len();
    let fixed = rendered(&EditForm { run: &run.row, events, left_out, problem });
    shell.show(&Content { title: "Redrive with changes".to_owned(), fixed, live: String::new() })
}

/// A payload of which something is hidden cannot be changed here: what is not shown would be lost.
fn editable<'a>(app: &App, run: &'a RunDetail) -> Vec<Editable<'a>> {
    let rules = &app.engine.settings().dashboard.redact;
    let of = |event: &'a Event| -> Option<Editable<'a>> {
        let payload = event.payload.as_str();
        let small = payload.len() <= EDITABLE_BYTES;
        let whole = small && !Shown::payload(rules, payload).hidden;
        let value: serde_json::Value = whole.then(|| serde_json::from_str(payload).ok()).flatten()?;
        let pretty = serde_json::to_string_pretty(&value).ok()?;
        Some(Editable { event, text: pretty })
    };
    run.list.iter().filter_map(of).take(EDITABLE).collect()
}

/// Puts the events back to work and shows the run that they are in now.
pub(super) async fn redrive(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path(run): Path<String>,
    request: Request<Body>,
) -> PageAnswer {
    let id: RunId = run.parse()?;
    let run = visible_run(&app, &principal, id).await?;
    let form = Form::read(request, limits::SMALL_BODY_BYTES).await?;
    let edits = match edits(&form, &editable(&app, &run)) {
        Ok(edits) => edits,
        Err(problem) => {
            let page = edit_page(&app, &shell, &run, Some(problem.detail()));
            return Ok(page);
        }
    };
    let wish = RedriveWish {
        edits,
        to: if form.text("as_new").is_some() { RedriveTo::New } else { RedriveTo::Head },
        fresh: form.text("fresh").is_some(),
        ..RedriveWish::default()
    };
    let done = app.engine.redrive(id, wish, &form.actor(&principal)).await?;
    let now_in = done.run.unwrap_or(id);
    Ok(session::see_other(&format!("/ui/runs/{now_in}?redriven=1")))
}

/// Payloads that are not what they were. Another way of writing the same one is no change.
fn edits(form: &Form, events: &[Editable<'_>]) -> Answer<Vec<(EventId, Payload)>> {
    let mut edits = Vec::new();
    for (id, text) in form.named("payload.") {
        let known = events.iter().find(|editable| editable.event.id.as_str() == id);
        let Some(Editable { event, .. }) = known else { continue };
        let wrong = |detail: String| Problem::bad_request(format!("The payload of {id} {detail}"));
        let payload =
            Payload::from_json(text.trim().as_bytes()).map_err(|problem| wrong(problem.to_string()))?;
        let value = |payload: &Payload| payload.parse::<serde_json::Value>().ok();
        if value(&payload) != value(&event.payload) {
            edits.push((event.id.clone(), payload));
        }
    }
    Ok(edits)
}
