//! One key in full: why it waits, how far its window is, what it holds and what happened to it, and the buttons for it.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, Request, header};
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::event::LaneKey;
use quell::quell_core::inspect::{AuditFilter, LaneDetail, RunFilter, RunRow};
use quell::quell_core::store::{Controlled, Purge, PurgeWhat};
use serde::Deserialize;

use super::attempts::hide_errors;
use super::commands::{self, Command};
use super::countdown::Countdown;
use super::form::Form;
use super::payload::{self, EventShown};
use super::run::told;
use super::shell::{Content, Shell, rendered};
use super::timeline::{self, Timeline};
use super::view::{self, Clock, filled};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::control::{self, LaneAction};
use crate::error::{Answer, Problem};
use crate::inspect::Owner;
use crate::{Path, Query, limits};

/// Runs of a lane that its page shows; the list of runs has all.
const RECENT: usize = 10;
/// Records of the trail that it shows.
const TRAIL: usize = 30;

#[derive(Template)]
#[template(path = "lane_head.html")]
struct Head<'a> {
    lane: &'a LaneKey,
    operates: bool,
}

#[derive(Template)]
#[template(path = "lane.html")]
struct Detail<'a> {
    clock: Clock,
    lane: &'a LaneKey,
    found: Option<&'a LaneDetail>,
    events: Vec<EventShown<'a>>,
    timeline: Option<Timeline>,
    runs: Vec<RunRow>,
    trail: Vec<AuditRecord>,
    commands: Vec<Command>,
    operates: bool,
    /// What a button has just done.
    done: Option<&'static str>,
}

impl Detail<'_> {
    fn action(&self, name: &str) -> String {
        place(self.lane, name)
    }

    fn purge(&self, what: &str) -> String {
        let query = view::query(&[("tenant", self.lane.tenant.as_str()), ("what", what)]);
        format!("{}/purge{query}", view::lane_path(self.lane))
    }

    fn all_runs(&self) -> String {
        format!("/ui/runs{}", self.named())
    }

    /// The playground with the arrivals of this lane.
    fn replay(&self) -> String {
        format!("/ui/playground{}", self.named())
    }

    fn named(&self) -> String {
        let LaneKey { tenant, queue, key } = self.lane;
        view::query(&[("queue", queue.as_str()), ("key", key.as_str()), ("tenant", tenant.as_str())])
    }

    /// The reason as a sentence of its own.
    fn why(&self, found: &LaneDetail) -> String {
        view::capital(&found.row.why)
    }

    fn countdown(&self, found: &LaneDetail) -> Option<Countdown> {
        Countdown::of(&found.row, self.clock.now)
    }

    fn told(&self, record: &AuditRecord) -> String {
        told(record, self.clock)
    }
}

/// The address of an action on a lane.
fn place(lane: &LaneKey, name: &str) -> String {
    format!("{}/{name}{}", view::lane_path(lane), view::tenant_query(lane))
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct DetailQuery {
    tenant: Option<String>,
    done: Option<String>,
}

pub(super) async fn detail(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path((queue, key)): Path<(String, String)>,
    Query(query): Query<DetailQuery>,
    headers: HeaderMap,
) -> PageAnswer {
    let lane = own_lane(&principal, query.tenant.as_ref(), &queue, &key)?;
    let found = app.engine.lane(lane.clone()).await?;
    let runs = recent(&app, &lane).await?;
    if found.is_none() && runs.is_empty() {
        return Err(nothing_known(&lane.to_string()).into());
    }
    let trail = trail(&app, &lane).await?;
    let now = match &found {
        Some(found) => found.now,
        None => app.now().await?,
    };
    let settings = app.engine.settings();
    let shows = &settings.dashboard;
    let waiting = found.as_ref().map_or(&[][..], |found| &found.events);
    let live = rendered(&Detail {
        clock: Clock { now },
        lane: &lane,
        events: payload::events(&shows.redact, shows.trace_url.as_deref(), waiting),
        timeline: found.as_ref().and_then(Timeline::of_lane),
        found: found.as_ref(),
        runs,
        trail,
        commands: commands::of_lane(&lane, host(&headers)),
        operates: shell.operates(),
        done: query.done.as_deref().and_then(done_text),
    });
    let title = format!("{} · {}", view::visible(lane.key.as_str()), lane.queue);
    let fixed = rendered(&Head { lane: &lane, operates: shell.operates() && found.is_some() });
    Ok(shell.show(&Content { title, fixed, live }))
}

async fn recent(app: &App, lane: &LaneKey) -> Answer<Vec<RunRow>> {
    let filter = RunFilter {
        tenant: Some(lane.tenant.clone()),
        queue: Some(lane.queue.clone()),
        key: Some(lane.key.clone()),
        limit: RECENT,
        ..RunFilter::default()
    };
    let mut runs = app.engine.runs(filter).await?.items;
    hide_errors(&app.engine.settings().dashboard.redact, &mut runs);
    Ok(runs)
}

async fn trail(app: &App, lane: &LaneKey) -> Answer<Vec<AuditRecord>> {
    let filter = AuditFilter {
        tenant: Some(lane.tenant.clone()),
        queue: Some(lane.queue.clone()),
        key: Some(lane.key.clone()),
        limit: TRAIL,
        ..AuditFilter::default()
    };
    Ok(app.engine.audit(filter).await?.items)
}

/// Under which name the server is asked for, to be copied into commands.
pub(super) fn host(headers: &HeaderMap) -> &str {
    let plain = |host: &&str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b".:-[]".contains(&b));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.filter(plain).unwrap_or(quell::config::LISTEN_DEFAULT)
}

fn nothing_known(lane: &str) -> Problem {
    Problem::not_found(format!("nothing is known of {lane}"))
}

/// A lane that this visitor may see. Another tenant's is as if it were not there.
fn own_lane(principal: &Principal, tenant: Option<&String>, queue: &str, key: &str) -> Answer<LaneKey> {
    principal.lane(filled(tenant).as_deref(), queue, key).map_err(|problem| match problem.code() {
        "forbidden" => nothing_known(&format!("{queue}/{key}")),
        _ => problem,
    })
}

pub(super) async fn act(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((queue, key, action)): Path<(String, String, String)>,
    Query(owner): Query<Owner>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let wanted = control::lane_action(&action)?;
    let lane = own_lane(&principal, owner.tenant.as_ref(), &queue, &key)?;
    let form = Form::read(request, limits::FORM_BYTES).await?;
    let changed = control::act(&app, lane.clone(), wanted, &form.actor(&principal)).await?.changed;
    Ok(back(&lane, if changed { word(wanted) } else { "nothing" }))
}

fn back(lane: &LaneKey, done: &str) -> Response {
    let query = view::query(&[("tenant", lane.tenant.as_str()), ("done", done)]);
    session::see_other(&(view::lane_path(lane) + &query))
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct PurgeQuery {
    tenant: Option<String>,
    what: Option<String>,
}

impl PurgeQuery {
    fn purge(&self, lane: &LaneKey, dry_run: bool) -> Answer<Purge> {
        let what = match self.what.as_deref() {
            Some("buffered") => PurgeWhat::Buffered,
            Some("delayed") => PurgeWhat::Delayed,
            Some("dead") => PurgeWhat::Dead,
            _ => return Err(Problem::bad_request("what is buffered, delayed or dead").at("what")),
        };
        let (tenant, key) = (Some(lane.tenant.clone()), Some(lane.key.clone()));
        Ok(Purge { queue: lane.queue.clone(), tenant, key, what, dry_run })
    }
}

#[derive(Template)]
#[template(path = "lane_purge.html")]
struct Confirm<'a> {
    lane: &'a LaneKey,
    what: &'a str,
    would: Controlled,
    place: String,
}

/// How many events would go, before any does.
pub(super) async fn purge_preview(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path((queue, key)): Path<(String, String)>,
    Query(query): Query<PurgeQuery>,
) -> PageAnswer {
    let lane = own_lane(&principal, query.tenant.as_ref(), &queue, &key)?;
    let would = app.engine.purge(query.purge(&lane, true)?, &principal.actor()).await?;
    let what = query.what.as_deref().unwrap_or_default();
    let place = view::query(&[("tenant", lane.tenant.as_str()), ("what", what)]);
    let place = format!("{}/purge{place}", view::lane_path(&lane));
    let fixed = rendered(&Confirm { lane: &lane, what, would, place });
    Ok(shell.show(&Content { title: "Purge".to_owned(), fixed, live: String::new() }))
}

pub(super) async fn purge(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((queue, key)): Path<(String, String)>,
    Query(query): Query<PurgeQuery>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let lane = own_lane(&principal, query.tenant.as_ref(), &queue, &key)?;
    let wish = query.purge(&lane, false)?;
    let actor = Form::read(request, limits::FORM_BYTES).await?.actor(&principal);
    let done = app.engine.purge(wish, &actor).await?;
    Ok(back(
        &lane,
        if done.more {
            "purge-more"
        } else if done.events > 0 {
            "purge"
        } else {
            "nothing"
        },
    ))
}

fn word(action: LaneAction) -> &'static str {
    match action {
        LaneAction::Flush => "flush",
        LaneAction::Pause => "pause",
        LaneAction::Resume => "resume",
        LaneAction::Cancel => "cancel",
    }
}

/// The address only chooses among these: it cannot put words on the page.
fn done_text(word: &str) -> Option<&'static str> {
    Some(match word {
        "flush" => "Flushed: what waits is due now and goes to the next free worker.",
        "pause" => "Paused: events are still taken in, and nothing is handed out until somebody resumes it.",
        "resume" => "Resumed: what is due goes to the next free worker.",
        "cancel" => {
            "Cancelled: a running handler has been told to stop, and events that waited were discarded."
        }
        "purge" => "Purged: these events are discarded.",
        "purge-more" => "Purged as many as go at once; there are more.",
        "nothing" => "Nothing to do: it already was like that.",
        _ => return None,
    })
}
