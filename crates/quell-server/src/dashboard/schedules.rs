//! What comes by the calendar: when each schedule fires next, what it sends, and taking one away.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use quell::quell_core::event::LaneKey;
use quell::quell_core::schedule::ScheduleRow;
use quell::tokens::Scope;
use serde::Deserialize;

use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::error::Problem;
use crate::inspect::Owner;
use crate::{Path, Query, declare};

/// Schedules that the page shows, those that fire next first: `quell schedules` lists all.
const SHOWN: usize = 500;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct Table {
    clock: Clock,
    rows: Vec<ScheduleRow>,
    left_out: usize,
    tenants: bool,
    administers: bool,
    done: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "schedules_heading.html")]
struct Heading;

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let mut rows = app.engine.schedules().await?;
    rows.retain(|row| principal.sees_of(&row.schedule.tenant, &row.schedule.queue));
    rows.sort_by_key(|row| (row.next_at.is_none(), row.next_at));
    let left_out = rows.len().saturating_sub(SHOWN);
    rows.truncate(SHOWN);
    let live = rendered(&Table {
        clock: Clock { now: app.now().await? },
        tenants: rows.iter().any(|row| !row.schedule.tenant.is_none()),
        rows,
        left_out,
        administers: principal.allows(Scope::Admin),
        done: filters.done.as_deref().and_then(done_text),
    });
    Ok(shell.show(&Content { title: "Schedules".to_owned(), fixed: rendered(&Heading), live }))
}

impl Table {
    fn lane(&self, row: &ScheduleRow) -> String {
        let of = &row.schedule;
        view::lane_place(&LaneKey::new(of.queue.clone(), of.key.clone()).of(of.tenant.clone()))
    }

    fn removal(&self, row: &ScheduleRow) -> String {
        let of = &row.schedule;
        let query = view::query(&[("tenant", of.tenant.as_str())]);
        format!("/ui/schedules/{}/remove{query}", view::segment(of.name.as_str()))
    }
}

/// As over HTTP this is for administrators: a schedule is configuration.
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    Query(owner): Query<Owner>,
) -> Result<Response, Problem> {
    if !principal.allows(Scope::Admin) {
        return Err(Problem::forbidden(format!("this needs a token with the scope `{}`", Scope::Admin)));
    }
    let owner = filled(owner.tenant.as_ref());
    let changed = declare::take_schedule(&app, &principal, &name, owner.as_deref()).await?;
    let done = if changed { "removed" } else { "nothing" };
    Ok(session::see_other(&format!("/ui/schedules?done={done}")))
}

/// The address only chooses among these: it cannot put words on the page.
fn done_text(word: &str) -> Option<&'static str> {
    Some(match word {
        "removed" => "Removed: it fires no more. One that quell.toml names comes back when a worker starts.",
        "nothing" => "Nothing to do: there is no such schedule any more.",
        _ => return None,
    })
}
