//! Runs: the table. The failed ones by their errors are in `dead.rs`, one run in full is in `run.rs`.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use quell::quell_core::inspect::{Page, RunRow};
use quell::quell_core::lifecycle::RunState;
use serde::Deserialize;

use super::PageAnswer;
use super::attempts::hide_errors;
use super::lanes::{ROWS, Refused, known_queues};
use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use crate::Query;
use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem};
use crate::inspect::RunsQuery;

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
    let live = match wish.filter(&principal) {
        Ok(filter) => {
            let mut page = app.engine.runs(filter).await?;
            hide_errors(&app.engine.settings().dashboard.redact, &mut page.items);
            rendered(&Table {
                clock: Clock { now: app.now().await? },
                tenants: page.items.iter().any(|row| !row.lane.tenant.is_none()),
                filtered: [&wish.tenant, &wish.queue, &wish.key].iter().any(|f| f.is_some())
                    || wish.state.is_some(),
                page,
                wish: &wish,
            })
        }
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    let queues = known_queues(&app, &principal);
    let fixed = rendered(&FilterForm { wish: &wish, queues, states: RunState::ALL });
    Ok(shell.show(&Content { title: "Runs".to_owned(), fixed, live }))
}
