//! Keys that have something to do: the table, one of them in full with the reason it waits, and the buttons for it.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use quell::quell_core::event::LaneKey;
use quell::quell_core::inspect::{LaneDetail, LaneRow, Page, RunFilter, RunRow};
use serde::Deserialize;

use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::control::{self, LaneAction};
use crate::error::{Answer, Problem};
use crate::inspect::{LanesQuery, Owner};
use crate::{Path, Query};

/// Rows of one page: more than fits on a screen, and quickly fetched again.
pub(super) const ROWS: usize = 50;
/// Runs of a lane that its page shows; the list of runs has all.
const RECENT: usize = 10;

/// The filters as a form sends them: what is empty is not asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    tenant: Option<String>,
    queue: Option<String>,
    key_prefix: Option<String>,
    running: Option<String>,
    cursor: Option<String>,
}

impl Filters {
    fn wish(&self) -> LanesQuery {
        LanesQuery {
            tenant: filled(self.tenant.as_ref()),
            queue: filled(self.queue.as_ref()),
            key_prefix: filled(self.key_prefix.as_ref()),
            running: filled(self.running.as_ref()).is_some(),
            idle: false,
            cursor: filled(self.cursor.as_ref()),
            limit: Some(ROWS),
        }
    }
}

#[derive(Template)]
#[template(path = "lanes_filter.html")]
struct FilterForm<'a> {
    wish: &'a LanesQuery,
    queues: Vec<String>,
}

#[derive(Template)]
#[template(path = "lanes.html")]
struct Table<'a> {
    clock: Clock,
    page: Page<LaneRow>,
    tenants: bool,
    filtered: bool,
    wish: &'a LanesQuery,
}

impl Table<'_> {
    fn at(&self, cursor: &str) -> String {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let running = if self.wish.running { "1" } else { "" };
        let pairs = [
            ("queue", text(&self.wish.queue)),
            ("key_prefix", text(&self.wish.key_prefix)),
            ("tenant", text(&self.wish.tenant)),
            ("running", running.to_owned()),
            ("cursor", cursor.to_owned()),
        ];
        format!("/ui/lanes{}", view::query(&pairs.each_ref().map(|(name, value)| (*name, value.as_str()))))
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let wish = filters.wish();
    let live = match wish.filter(&principal) {
        Ok(filter) => {
            let page = app.engine.lanes(filter).await?;
            rendered(&Table {
                clock: Clock { now: app.engine.health().await?.now },
                tenants: page.items.iter().any(|row| !row.lane.tenant.is_none()),
                filtered: wish.running
                    || [&wish.tenant, &wish.queue, &wish.key_prefix].iter().any(|f| f.is_some()),
                page,
                wish: &wish,
            })
        }
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    let fixed = rendered(&FilterForm { wish: &wish, queues: known_queues(&app, &principal) });
    Ok(shell.show(&Content { title: "Lanes".to_owned(), fixed, live }))
}

/// A filter that this token may not have, or that cannot be: the form stays, to be filled in again.
#[derive(Template)]
#[template(path = "refused.html")]
pub(super) struct Refused<'a> {
    pub(super) detail: &'a str,
}

/// For the form to suggest: those of the configuration that may be seen.
pub(super) fn known_queues(app: &App, principal: &Principal) -> Vec<String> {
    let settings = app.engine.settings();
    let known = settings.queues.keys();
    known.filter(|queue| principal.queue(queue).is_ok()).map(ToString::to_string).collect()
}

#[derive(Template)]
#[template(path = "lane.html")]
struct Detail {
    clock: Clock,
    lane: LaneKey,
    found: Option<LaneDetail>,
    runs: Vec<RunRow>,
    operates: bool,
    /// What a button has just done.
    done: Option<&'static str>,
}

impl Detail {
    fn action(&self, name: &str) -> String {
        format!("{}/{name}{}", view::lane_path(&self.lane), view::tenant_query(&self.lane))
    }

    fn all_runs(&self) -> String {
        let LaneKey { tenant, queue, key } = &self.lane;
        let pairs = [("queue", queue.as_str()), ("key", key.as_str()), ("tenant", tenant.as_str())];
        format!("/ui/runs{}", view::query(&pairs))
    }

    /// The reason as a sentence of its own.
    fn why(&self, found: &LaneDetail) -> String {
        let why = &found.row.why;
        let mut letters = why.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    }
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
) -> PageAnswer {
    let lane = own_lane(&principal, query.tenant.as_ref(), &queue, &key)?;
    let found = app.engine.lane(lane.clone()).await?;
    let filter = RunFilter {
        tenant: Some(lane.tenant.clone()),
        queue: Some(lane.queue.clone()),
        key: Some(lane.key.clone()),
        limit: RECENT,
        ..RunFilter::default()
    };
    let runs = app.engine.runs(filter).await?.items;
    if found.is_none() && runs.is_empty() {
        return Err(nothing_known(&lane.to_string()).into());
    }
    let now = match &found {
        Some(found) => found.now,
        None => app.engine.health().await?.now,
    };
    let title = format!("{} · {}", lane.key, lane.queue);
    let done = query.done.as_deref().and_then(done_text);
    let operates = shell.operates();
    let live = rendered(&Detail { clock: Clock { now }, lane, found, runs, operates, done });
    Ok(shell.show(&Content { title, fixed: String::new(), live }))
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
) -> Result<Response, Problem> {
    let wanted = control::lane_action(&action)?;
    let lane = own_lane(&principal, owner.tenant.as_ref(), &queue, &key)?;
    let changed = control::act(&app, lane.clone(), wanted, &principal.actor()).await?.changed;
    let done = if changed { word(wanted) } else { "nothing" };
    let query = view::query(&[("tenant", lane.tenant.as_str()), ("done", done)]);
    Ok(session::see_other(&(view::lane_path(&lane) + &query)))
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
        "nothing" => "Nothing to do: it already was like that.",
        _ => return None,
    })
}
