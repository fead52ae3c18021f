//! Dead letters by the kind of their error: what fails, how often and since when, and sending all of one kind back.
//!
//! Groups are made of the newest dead letters each time they are looked at, so there is nothing to keep up to date; the page
//! says when there are more than were looked at. What goes back goes by an operation (`operations.rs`), at a rate.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use quell::RedriveWish;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{QueueName, Tenant};
use quell::quell_core::fingerprint::fingerprint;
use quell::quell_core::inspect::RunRow;
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::RedriveTo;
use quell::redact::{RedactRule, redact_text};
use serde::Deserialize;

use super::attempts::hide_errors;
use super::form::Form;
use super::lanes::{ROWS, Refused, known_queues};
use super::operations::{Plan, is_dead_of};
use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem};
use crate::inspect::RunsQuery;
use crate::{Path, Query, limits};

/// Which dead letters: what is empty is not asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    tenant: Option<String>,
    queue: Option<String>,
}

impl Filters {
    fn wish(&self) -> RunsQuery {
        RunsQuery {
            tenant: filled(self.tenant.as_ref()),
            queue: filled(self.queue.as_ref()),
            state: Some(RunState::Failed),
            limit: Some(limits::DEAD_LOOKED),
            ..RunsQuery::default()
        }
    }
}

/// Dead letters of one queue and one kind of error.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    tenant: Tenant,
    pub(super) queue: QueueName,
    /// The kind's short name.
    kind: String,
    /// What its errors have in common.
    pub(super) text: String,
    pub(super) runs: u64,
    events: u64,
    first_at: Timestamp,
    pub(super) last_at: Timestamp,
    /// The newest error as it is.
    example: String,
}

impl Group {
    pub(super) fn place(&self) -> String {
        let pairs = [("queue", self.queue.as_str()), ("tenant", self.tenant.as_str())];
        format!("/ui/dead/{}{}", self.kind, view::query(&pairs))
    }
}

/// The largest first. Those that went back already are not counted. The kind of an error is that of its whole text, whatever
/// is hidden of it.
pub(super) fn groups<'a>(rules: &[RedactRule], rows: impl IntoIterator<Item = &'a RunRow>) -> Vec<Group> {
    let mut groups: BTreeMap<(&Tenant, &QueueName, String), Group> = BTreeMap::new();
    for row in rows.into_iter().filter(|row| row.links.redriven_into.is_none()) {
        let error = row.error.as_deref().unwrap_or_default();
        let kind = fingerprint(error);
        let at = row.completed_at.unwrap_or(row.updated_at);
        let (tenant, queue) = (&row.lane.tenant, &row.lane.queue);
        let group = groups.entry((tenant, queue, kind.id.clone())).or_insert_with(|| Group {
            tenant: tenant.clone(),
            queue: queue.clone(),
            kind: kind.id,
            text: redact_text(rules, &kind.text),
            runs: 0,
            events: 0,
            first_at: at,
            last_at: at,
            example: redact_text(rules, error),
        });
        group.runs += 1;
        group.events += row.events;
        group.first_at = group.first_at.min(at);
        group.last_at = group.last_at.max(at);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.runs, group.last_at)));
    groups
}

#[derive(Template)]
#[template(path = "dead_filter.html")]
struct FilterForm<'a> {
    wish: &'a RunsQuery,
    queues: Vec<String>,
}

#[derive(Template)]
#[template(path = "dead.html")]
struct Table {
    clock: Clock,
    groups: Vec<Group>,
    tenants: bool,
    filtered: bool,
    looked: usize,
    /// There are older ones.
    more: bool,
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
            let page = app.engine.runs(filter).await?;
            let groups = groups(&app.engine.settings().dashboard.redact, &page.items);
            rendered(&Table {
                clock: Clock { now: app.now().await? },
                tenants: groups.iter().any(|group| !group.tenant.is_none()),
                filtered: wish.queue.is_some() || wish.tenant.is_some(),
                looked: page.items.len(),
                more: page.next.is_some(),
                groups,
            })
        }
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    let fixed = rendered(&FilterForm { wish: &wish, queues: known_queues(&app, &principal) });
    Ok(shell.show(&Content { title: "Dead letters".to_owned(), fixed, live }))
}

#[derive(Template)]
#[template(path = "dead_group.html")]
struct Detail<'a> {
    clock: Clock,
    group: &'a Group,
    rows: Vec<RunRow>,
    more: bool,
    looked: usize,
}

#[derive(Template)]
#[template(path = "dead_head.html")]
struct Head<'a> {
    group: &'a Group,
    operates: bool,
    rate: u32,
    rate_max: u32,
    more: bool,
}

impl Head<'_> {
    fn redrive(&self) -> String {
        let pairs = [("queue", self.group.queue.as_str()), ("tenant", self.group.tenant.as_str())];
        format!("/ui/dead/{}/redrive{}", self.group.kind, view::query(&pairs))
    }
}

pub(super) async fn group(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path(kind): Path<String>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let page = app.engine.runs(filters.wish().filter(&principal)?).await?;
    let settings = app.engine.settings();
    let rules = &settings.dashboard.redact;
    let found = groups(rules, &page.items).into_iter().find(|group| group.kind == kind);
    let gone = || Problem::not_found("there are no dead letters of this kind (any more)");
    let group = found.ok_or_else(gone)?;
    let of_kind = page.items.iter().filter(|row| row.lane.queue == group.queue && is_dead_of(row, &kind));
    let mut rows: Vec<RunRow> = of_kind.take(ROWS).cloned().collect();
    hide_errors(rules, &mut rows);
    let live = rendered(&Detail {
        clock: Clock { now: app.now().await? },
        rows,
        group: &group,
        more: page.next.is_some(),
        looked: page.items.len(),
    });
    let fixed = rendered(&Head {
        group: &group,
        operates: shell.operates(),
        rate: limits::OPERATION_RATE,
        rate_max: limits::OPERATION_RATE_MAX,
        more: page.next.is_some(),
    });
    Ok(shell.show(&Content { title: "Dead letters".to_owned(), fixed, live }))
}

/// Begins to send the whole group back and leads to the progress.
pub(super) async fn redrive(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(kind): Path<String>,
    Query(filters): Query<Filters>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let filter = filters.wish().filter(&principal)?;
    let form = Form::read(request, limits::FORM_BYTES).await?;
    let wish = RedriveWish {
        to: if form.text("as_new").is_some() { RedriveTo::New } else { RedriveTo::Head },
        fresh: form.text("fresh").is_some(),
        ..RedriveWish::default()
    };
    let title = title(&kind, form.text("text"))?;
    let rate = form.text("rate").and_then(|text| text.parse().ok()).unwrap_or(limits::OPERATION_RATE);
    let actor = form.actor(&principal);
    let plan = Plan::Redrive { kind, filter, wish };
    let id = app.operations.begin(&app, &principal, actor, title, rate, plan)?;
    Ok(session::see_other(&format!("/ui/operations/{id}")))
}

/// The text only names the operation; the kind decides what goes back.
fn title(kind: &str, text: Option<&str>) -> Answer<String> {
    if kind.len() != 16 || !kind.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Problem::not_found("there is no such kind of error"));
    }
    let text: String = view::visible(text.unwrap_or(kind)).chars().take(100).collect();
    Ok(format!("Redrive what failed with: {text}"))
}

#[cfg(test)]
mod tests {
    use quell::quell_core::batch::RunId;

    use super::super::samples::run_row;
    use super::*;

    fn dead(number: u64, queue: &str, error: Option<&str>, second: i64) -> RunRow {
        let at = Timestamp::from_millis(second * 1_000);
        RunRow {
            id: RunId { lane: 1, number },
            completed_at: Some(at),
            error: error.map(str::to_owned),
            ..run_row(queue, RunState::Failed, at)
        }
    }

    #[test]
    fn what_fails_for_one_reason_is_one_group() {
        let mut back = dead(9, "a", Some("order 9 is locked"), 90);
        back.links.redriven_into = Some(RunId { lane: 1, number: 10 });
        let rows = [
            dead(1, "a", Some("order 17 is locked"), 30),
            dead(2, "a", Some("order 4 is locked"), 20),
            dead(3, "b", Some("order 4 is locked"), 10),
            dead(4, "a", None, 5),
            dead(5, "a", Some("order 4711 is locked"), 10),
            back,
        ];
        let groups = groups(&[], &rows);
        let told = |group: &Group| (group.queue.to_string(), group.text.clone(), group.runs, group.events);
        assert_eq!(told(&groups[0]), ("a".to_owned(), "order # is locked".to_owned(), 3, 6));
        assert_eq!(groups[0].example, "order 17 is locked", "the newest");
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        assert_eq!((groups[0].first_at, groups[0].last_at), (at(10), at(30)));
        assert_eq!(groups.len(), 3);
        assert!(groups.iter().any(|group| group.text.is_empty() && group.runs == 1));
    }
}
