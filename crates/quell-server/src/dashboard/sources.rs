//! Outside parties with limits: how each of them is, who waits for it, and the hand of an operator.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use quell::config::DurationText;
use quell::quell_core::event::SourceName;
use quell::quell_core::inspect::{Page, SourceFilter, SourceRow};
use quell::quell_core::source::{Breaker, Standing};
use serde::Deserialize;

use super::form::Form;
use super::lanes::{ROWS, Refused};
use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::error::Problem;
use crate::inspect::Owner;
use crate::{Path, Query, declare, limits};

#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    tenant: Option<String>,
    cursor: Option<String>,
    done: Option<String>,
}

#[derive(Template)]
#[template(path = "sources.html")]
struct Table<'a> {
    clock: Clock,
    page: Page<SourceRow>,
    operates: bool,
    done: Option<&'static str>,
    filters: &'a Filters,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let live = match principal.tenant_filter(filled(filters.tenant.as_ref()).as_deref()) {
        Ok(tenant) => {
            let cursor = filled(filters.cursor.as_ref());
            let page = app.engine.sources(SourceFilter { tenant, name: None, cursor, limit: ROWS }).await?;
            rendered(&Table {
                clock: Clock { now: app.now().await? },
                page,
                operates: shell.operates(),
                done: filters.done.as_deref().and_then(done_text),
                filters: &filters,
            })
        }
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    Ok(shell.show(&Content {
        title: "Sources".to_owned(),
        fixed: rendered(&Heading { operates: shell.operates() }),
        live,
    }))
}

#[derive(Template)]
#[template(path = "sources_heading.html")]
struct Heading {
    operates: bool,
}

impl Table<'_> {
    fn state_of(&self, row: &SourceRow) -> &'static str {
        match (row.standing, row.breaker) {
            (Standing::Disabled, _) => "disabled",
            (Standing::Removed, _) => "removed",
            (Standing::Released, _) => "released",
            (Standing::Enabled, Breaker::Open) => "open",
            (Standing::Enabled, Breaker::HalfOpen) => "half open",
            (Standing::Enabled, Breaker::Closed) if row.not_before.is_some() => "silent",
            (Standing::Enabled, Breaker::Closed) => "closed",
        }
    }

    fn why(&self, row: &SourceRow) -> Option<&'static str> {
        (row.standing != Standing::Enabled || is_troubled(row)).then(|| state_of(row))
    }

    fn rules(&self, row: &SourceRow) -> String {
        let rules = &row.rules;
        let rate = rules.per_minute.map_or_else(
            || "no limit".to_owned(),
            |n| format!("{} per minute, burst {}", view::number(&n.into()), rules.burst),
        );
        let cooldown = DurationText::show(rules.cooldown);
        format!("{rate}; opens after {} faults, for {cooldown}", rules.failures)
    }

    fn action(&self, row: &SourceRow, action: &str) -> String {
        let query = view::query(&[("tenant", row.tenant.as_str())]);
        format!("/ui/sources/{}/{action}{query}", view::segment(row.name.as_str()))
    }

    fn at(&self, cursor: &str) -> String {
        let tenant = self.filters.tenant.as_deref().unwrap_or_default();
        format!("/ui/sources{}", view::query(&[("tenant", tenant), ("cursor", cursor)]))
    }
}

/// Whether it keeps somebody waiting.
pub(super) fn is_troubled(row: &SourceRow) -> bool {
    row.breaker != Breaker::Closed
        || matches!(row.standing, Standing::Disabled | Standing::Removed)
        || row.not_before.is_some()
}

/// What is the matter with one that is troubled.
pub(super) fn state_of(source: &SourceRow) -> &'static str {
    match (source.standing, source.breaker) {
        (Standing::Disabled, _) => "disabled: its lanes are held",
        (Standing::Removed, _) => "removed: its lanes are held until it is declared again",
        (Standing::Released, _) => "released: its lanes go without limits",
        (_, Breaker::Open) => "open: it failed too often",
        (_, Breaker::HalfOpen) => "half open: one run tries whether it works again",
        (_, Breaker::Closed) => "silent: it asked for a pause",
    }
}

/// What an operator does to a source.
pub(super) async fn act(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((name, action)): Path<(String, String)>,
    Query(owner): Query<Owner>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let owner = filled(owner.tenant.as_ref());
    let scope = declare::own_source(&app, &principal, SourceName::new(name)?, owner.as_deref()).await?;
    let form = Form::read(request, limits::FORM_BYTES).await?;
    let (engine, actor) = (&app.engine, form.actor(&principal));
    let changed = match action.as_str() {
        "enable" => engine.enable_source(scope, &actor).await?,
        "disable" => engine.disable_source(scope, &actor).await?,
        "reset" => engine.reset_source(scope, &actor).await?,
        _ => return Err(Problem::not_found("a source can be enabled, disabled and reset")),
    };
    let done = if changed { action.as_str() } else { "nothing" };
    let query = view::query(&[("tenant", owner.as_deref().unwrap_or_default()), ("done", done)]);
    Ok(session::see_other(&format!("/ui/sources{query}")))
}

/// The address only chooses among these: it cannot put words on the page.
fn done_text(word: &str) -> Option<&'static str> {
    Some(match word {
        "enable" => "Enabled: lanes that waited for it go on.",
        "disable" => "Disabled: its lanes are held. Nothing fails and no attempt is counted.",
        "reset" => "Reset: the breaker is closed, the bucket is full, and no answer is kept.",
        "nothing" => "Nothing to do: it already was like that.",
        _ => return None,
    })
}
