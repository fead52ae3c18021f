//! Runs: the table (dead letters are the failed ones), one of them with everything that happened to it, and sending it back.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use quell::RedriveWish;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::batch::RunId;
use quell::quell_core::inspect::{Page, RunDetail, RunRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::window::FiredBy;
use serde::Deserialize;

use super::lanes::{ROWS, Refused, known_queues};
use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem};
use crate::inspect::{RunsQuery, visible_run};
use crate::{Path, Query};

/// The filters as a form sends them: what is empty is not asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    tenant: Option<String>,
    queue: Option<String>,
    key: Option<String>,
    state: Option<String>,
    cursor: Option<String>,
}

impl Filters {
    fn wish(&self) -> Answer<RunsQuery> {
        let known = |text: String| {
            let unknown = || Problem::bad_request(format!("there is no state {text:?}")).at("state");
            RunState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(unknown)
        };
        Ok(RunsQuery {
            tenant: filled(self.tenant.as_ref()),
            queue: filled(self.queue.as_ref()),
            key: filled(self.key.as_ref()),
            state: filled(self.state.as_ref()).map(known).transpose()?,
            cursor: filled(self.cursor.as_ref()),
            limit: Some(ROWS),
        })
    }
}

#[derive(Template)]
#[template(path = "runs_filter.html")]
struct FilterForm<'a> {
    wish: &'a RunsQuery,
    queues: Vec<String>,
    states: [RunState; 6],
    dead: bool,
}

impl FilterForm<'_> {
    fn is_chosen(&self, state: &RunState) -> bool {
        self.wish.state == Some(*state)
    }
}

#[derive(Template)]
#[template(path = "runs.html")]
struct Table<'a> {
    clock: Clock,
    page: Page<RunRow>,
    tenants: bool,
    filtered: bool,
    dead: bool,
    wish: &'a RunsQuery,
}

impl Table<'_> {
    fn at(&self, cursor: &str) -> String {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let pairs = [
            ("state", self.wish.state.map_or("", RunState::as_str).to_owned()),
            ("queue", text(&self.wish.queue)),
            ("key", text(&self.wish.key)),
            ("tenant", text(&self.wish.tenant)),
            ("cursor", cursor.to_owned()),
        ];
        format!("/ui/runs{}", view::query(&pairs.each_ref().map(|(name, value)| (*name, value.as_str()))))
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let wish = filters.wish()?;
    let dead = wish.state == Some(RunState::Failed);
    let live = match wish.filter(&principal) {
        Ok(filter) => {
            let page = app.engine.runs(filter).await?;
            rendered(&Table {
                clock: Clock { now: app.engine.health().await?.now },
                tenants: page.items.iter().any(|row| !row.lane.tenant.is_none()),
                filtered: [&wish.tenant, &wish.queue, &wish.key].iter().any(|f| f.is_some())
                    || wish.state.is_some(),
                page,
                dead,
                wish: &wish,
            })
        }
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    let queues = known_queues(&app, &principal);
    let fixed = rendered(&FilterForm { wish: &wish, queues, states: RunState::ALL, dead });
    let title = if dead { "Dead letters" } else { "Runs" };
    Ok(shell.show(&Content { title: title.to_owned(), fixed, live }))
}

/// Another run, and what it has to do with this one.
struct Link {
    what: &'static str,
    run: RunId,
}

#[derive(Template)]
#[template(path = "run.html")]
struct Detail {
    clock: Clock,
    run: RunDetail,
    links: Vec<Link>,
    /// It has ended without success, and its events are still there to be tried again.
    may_redrive: bool,
    came_from: bool,
}

impl Detail {
    fn lane(&self) -> String {
        view::lane_place(&self.run.row.lane)
    }

    /// One record of the trail in words.
    fn told(&self, record: &AuditRecord) -> String {
        let mut parts = Vec::new();
        if let Some(worker) = &record.worker {
            parts.push(format!("by worker {worker}"));
        }
        if let Some(actor) = &record.actor {
            parts.push(format!("by {actor}"));
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
            parts.push(format!("{what} {}", self.clock.face(&at)));
        }
        parts.join(", ")
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
) -> PageAnswer {
    let id: RunId = run.parse()?;
    let mut run = visible_run(&app, &principal, id).await?;
    // As it happened, the first thing first.
    run.audit.sort_by_key(|record| record.id);
    let ended_badly = matches!(run.row.state, RunState::Failed | RunState::Cancelled);
    let live = rendered(&Detail {
        clock: Clock { now: app.engine.health().await?.now },
        links: links(&run.row),
        may_redrive: shell.operates() && ended_badly && run.row.links.redriven_into.is_none(),
        came_from: query.redriven.is_some(),
        run,
    });
    Ok(shell.show(&Content { title: id.to_string(), fixed: String::new(), live }))
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

/// Puts the events back to work and shows the run that they are in now.
pub(super) async fn redrive(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
) -> Result<Response, Problem> {
    let id: RunId = run.parse()?;
    visible_run(&app, &principal, id).await?;
    let done = app.engine.redrive(id, RedriveWish::default(), &principal.actor()).await?;
    let now_in = done.run.unwrap_or(id);
    Ok(session::see_other(&format!("/ui/runs/{now_in}?redriven=1")))
}
