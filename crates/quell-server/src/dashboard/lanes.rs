//! Keys that have something to do: the table with the reason each of them waits, and the language to look for some of them.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use quell::quell_core::inspect::LaneRow;
use serde::Deserialize;

use super::countdown::Countdown;
use super::lane_query::LaneQuery;
use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use super::{PageAnswer, bulk};
use crate::app::App;
use crate::auth::Principal;
use crate::error::Answer;
use crate::{Query, limits};

/// Rows of one page: more than fits on a screen, and quickly fetched again.
pub(super) const ROWS: usize = 50;
/// Lanes of one read while a filter is looked for that no index answers.
const LOOK: usize = 100;

/// The filter as the form sends it, or in fields of its own as links do.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    q: Option<String>,
    tenant: Option<String>,
    queue: Option<String>,
    key_prefix: Option<String>,
    running: Option<String>,
    cursor: Option<String>,
}

impl Filters {
    /// All of it as one text.
    fn text(&self) -> String {
        let fields = [
            ("queue", filled(self.queue.as_ref())),
            ("key", filled(self.key_prefix.as_ref())),
            ("tenant", filled(self.tenant.as_ref())),
            ("state", filled(self.running.as_ref()).map(|_| "running".to_owned())),
        ];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_deref()));
        let parts = [filled(self.q.as_ref()).unwrap_or_default(), LaneQuery::words(&fields)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

#[derive(Template)]
#[template(path = "lanes_filter.html")]
struct FilterForm<'a> {
    text: &'a str,
    queues: Vec<String>,
    operates: bool,
    /// Operations that can be looked at.
    operations: usize,
}

impl FilterForm<'_> {
    /// Links that add a word.
    fn suggestions(&self) -> [(&'static str, &'static str); 6] {
        [
            ("running", "state:running"),
            ("paused", "why:paused"),
            ("blocked", "why:blocked"),
            ("due and not taken", "why:due"),
            ("in backoff", "why:backoff"),
            ("older than 5 minutes", "age>5m"),
        ]
    }

    fn with(&self, word: &str) -> String {
        format!("/ui/lanes{}", view::query(&[("q", word)]))
    }
}

/// What was found of what was looked for.
pub(super) struct Found {
    rows: Vec<LaneRow>,
    next: Option<String>,
    /// Lanes that were looked at, where no index could tell.
    looked: Option<usize>,
}

#[derive(Template)]
#[template(path = "lanes.html")]
struct Table<'a> {
    clock: Clock,
    found: Found,
    tenants: bool,
    filtered: bool,
    operates: bool,
    text: &'a str,
    paged: bool,
}

impl Table<'_> {
    fn at(&self, cursor: &str) -> String {
        format!("/ui/lanes{}", view::query(&[("q", self.text), ("cursor", cursor)]))
    }

    /// The value of its box.
    fn tick(&self, row: &LaneRow) -> String {
        bulk::tick(&row.lane)
    }

    fn countdown(&self, row: &LaneRow) -> Option<Countdown> {
        Countdown::of(row, self.clock.now)
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let text = filters.text();
    let clock = Clock { now: app.now().await? };
    let cursor = filled(filters.cursor.as_ref());
    let paged = cursor.is_some();
    let live = match LaneQuery::parse(&text) {
        Ok(query) => match find(&app, &principal, &query, cursor, clock).await {
            Ok(found) => rendered(&Table {
                clock,
                tenants: found.rows.iter().any(|row| !row.lane.tenant.is_none()),
                filtered: !query.is_empty(),
                operates: shell.operates(),
                text: &text,
                found,
                paged,
            }),
            // The store is away: that is no fault of the filter.
            Err(problem) if problem.ends_bulk() => return Err(problem.into()),
            Err(problem) => rendered(&Refused { detail: problem.detail() }),
        },
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    let operations = app.operations.seen_by(&principal).len();
    let queues = known_queues(&app, &principal);
    let fixed = rendered(&FilterForm { text: &text, queues, operates: shell.operates(), operations });
    Ok(shell.show(&Content { title: "Lanes".to_owned(), fixed, live }))
}

/// One page. What an index finds is one read; otherwise lanes are looked at until a page is full or enough were.
async fn find(
    app: &App,
    principal: &Principal,
    query: &LaneQuery,
    cursor: Option<String>,
    clock: Clock,
) -> Answer<Found> {
    if !query.looks() {
        let page = app.engine.lanes(query.wish(cursor, ROWS).filter(principal)?).await?;
        return Ok(Found { rows: page.items, next: page.next, looked: None });
    }
    let mut filter = query.wish(cursor, LOOK).filter(principal)?;
    let (mut rows, mut looked) = (Vec::new(), 0);
    loop {
        let page = app.engine.lanes(filter.clone()).await?;
        looked += page.items.len();
        rows.extend(page.items.into_iter().filter(|row| query.matches(row, clock.now)));
        filter.cursor = page.next;
        if filter.cursor.is_none() || rows.len() >= ROWS || looked >= limits::FILTER_LANES {
            return Ok(Found { rows, next: filter.cursor, looked: Some(looked) });
        }
    }
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
