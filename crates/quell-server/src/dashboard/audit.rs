//! The audit trail: who changed what, newest first.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use quell::quell_core::audit::AuditRecord;
use quell::quell_core::event::{Key, LaneKey};
use quell::quell_core::inspect::{AuditFilter, Page};
use serde::Deserialize;

use super::PageAnswer;
use super::lanes::{ROWS, Refused, known_queues};
use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use crate::Query;
use crate::app::App;
use crate::auth::Principal;
use crate::error::Answer;

/// The filters as a form sends them: what is empty is not asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    tenant: Option<String>,
    queue: Option<String>,
    key: Option<String>,
    run: Option<String>,
    cursor: Option<String>,
}

impl Filters {
    fn wish(&self, principal: &Principal) -> Answer<AuditFilter> {
        Ok(AuditFilter {
            tenant: principal.tenant_filter(filled(self.tenant.as_ref()).as_deref())?,
            queue: principal.queue_filter(filled(self.queue.as_ref()).as_deref())?,
            key: filled(self.key.as_ref()).map(Key::new).transpose()?,
            run: filled(self.run.as_ref()).map(|text| text.parse()).transpose()?,
            cursor: filled(self.cursor.as_ref()),
            limit: ROWS,
        })
    }

    fn text(field: Option<&String>) -> String {
        filled(field).unwrap_or_default()
    }
}

#[derive(Template)]
#[template(path = "audit_filter.html")]
struct FilterForm<'a> {
    filters: &'a Filters,
    queues: Vec<String>,
}

impl FilterForm<'_> {
    fn text(&self, field: &Option<String>) -> String {
        Filters::text(field.as_ref())
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Table<'a> {
    clock: Clock,
    page: Page<AuditRecord>,
    tenants: bool,
    filters: &'a Filters,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let live = match filters.wish(&principal) {
        Ok(filter) => {
            let page = app.engine.audit(filter).await?;
            rendered(&Table {
                clock: Clock { now: app.now().await? },
                tenants: page.items.iter().any(|record| !record.tenant.is_none()),
                page,
                filters: &filters,
            })
        }
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    let queues = known_queues(&app, &principal);
    let fixed = rendered(&FilterForm { filters: &filters, queues });
    Ok(shell.show(&Content { title: "Audit".to_owned(), fixed, live }))
}

impl Table<'_> {
    fn at(&self, cursor: &str) -> String {
        let Filters { tenant, queue, key, run, cursor: _ } = self.filters;
        let texts = [("queue", queue), ("key", key), ("tenant", tenant), ("run", run)]
            .map(|(name, field)| (name, Filters::text(field.as_ref())));
        let mut pairs: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        pairs.push(("cursor", cursor));
        format!("/ui/audit{}", view::query(&pairs))
    }

    fn lane(&self, record: &AuditRecord) -> Option<String> {
        let key = record.key.clone()?;
        if record.queue.is_of_sources() {
            return Some("/ui/sources".to_owned());
        }
        Some(view::lane_place(&LaneKey::new(record.queue.clone(), key).of(record.tenant.clone())))
    }

    /// What happened, and what the holder said where that is something else.
    fn change(&self, record: &AuditRecord) -> String {
        let change = record.change.as_str().replace('_', " ");
        match record.verdict.map(|verdict| verdict.as_str()) {
            Some(said) if !record.change.as_str().starts_with(said) => format!("{change} (said {said})"),
            _ => change,
        }
    }

    fn tone(&self, record: &AuditRecord) -> &'static str {
        match record.to {
            Some(state) if record.from != record.to => state.as_str(),
            _ => "",
        }
    }

    /// The worker, and from whom it was taken.
    fn worker(&self, record: &AuditRecord) -> Option<String> {
        match (&record.worker, &record.prior_worker) {
            (Some(worker), Some(prior)) => Some(format!("{worker}, taken from {prior}")),
            (Some(worker), None) => Some(worker.clone()),
            (None, Some(prior)) => Some(format!("taken from {prior}")),
            (None, None) => None,
        }
    }
}
