//! What webhooks have brought: the table, one delivery as it came, and taking it in again.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use quell::deliveries::{DeliveredEvent, DeliveryRecord, DeliveryVerdict};
use quell::quell_core::event::LaneKey;
use serde::Deserialize;

use super::lanes::Refused;
use super::payload;
use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock, filled};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem};
use crate::hooks::inspector::{self, DeliveriesQuery};
use crate::{Path, Query};

/// The filters as a form sends them: what is empty is not asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filters {
    endpoint: Option<String>,
    verdict: Option<String>,
}

impl Filters {
    fn wish(&self) -> Answer<DeliveriesQuery> {
        let known = |text: String| {
            let unknown = || Problem::bad_request(format!("there is no verdict {text:?}")).at("verdict");
            DeliveryVerdict::ALL.into_iter().find(|verdict| verdict.as_str() == text).ok_or_else(unknown)
        };
        Ok(DeliveriesQuery {
            endpoint: filled(self.endpoint.as_ref()),
            verdict: filled(self.verdict.as_ref()).map(known).transpose()?,
        })
    }
}

#[derive(Template)]
#[template(path = "deliveries_filter.html")]
struct FilterForm<'a> {
    wish: &'a DeliveriesQuery,
    endpoints: Vec<&'a str>,
}

impl FilterForm<'_> {
    fn verdicts(&self) -> [DeliveryVerdict; 4] {
        DeliveryVerdict::ALL
    }

    fn is_chosen(&self, verdict: &DeliveryVerdict) -> bool {
        self.wish.verdict == Some(*verdict)
    }
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct Table {
    clock: Clock,
    records: Vec<DeliveryRecord>,
    filtered: bool,
    /// Whether there is any endpoint to send to.
    endpoints: usize,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Query(filters): Query<Filters>,
) -> PageAnswer {
    let wish = filters.wish()?;
    let in_force = app.hooks.endpoints();
    let endpoints: Vec<&str> = in_force.names().collect();
    let live = match inspector::seen(&app, &principal, &wish).await {
        Ok(mut records) => {
            let settings = app.engine.settings();
            records
                .iter_mut()
                .for_each(|record| payload::hide_in_delivery(&settings.dashboard.redact, record));
            rendered(&Table {
                clock: Clock { now: app.wall() },
                filtered: wish.endpoint.is_some() || wish.verdict.is_some(),
                endpoints: endpoints.len(),
                records,
            })
        }
        Err(problem) => rendered(&Refused { detail: problem.detail() }),
    };
    let fixed = rendered(&FilterForm { wish: &wish, endpoints });
    Ok(shell.show(&Content { title: "Deliveries".to_owned(), fixed, live }))
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct Detail {
    clock: Clock,
    record: DeliveryRecord,
    may_replay: bool,
    replayed: bool,
}

impl Detail {
    fn lane(&self, event: &DeliveredEvent) -> String {
        let lane = LaneKey::new(event.queue.clone(), event.key.clone()).of(event.tenant.clone());
        view::lane_place(&lane)
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct DetailQuery {
    replayed: Option<String>,
}

pub(super) async fn detail(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path(id): Path<String>,
    Query(query): Query<DetailQuery>,
) -> PageAnswer {
    let mut record = inspector::find(&app, &principal, &id).await?;
    payload::hide_in_delivery(&app.engine.settings().dashboard.redact, &mut record);
    let live = rendered(&Detail {
        clock: Clock { now: app.wall() },
        may_replay: shell.operates()
            && record.is_whole()
            && app.hooks.endpoints().get(&record.endpoint).is_some(),
        replayed: query.replayed.is_some(),
        record,
    });
    Ok(shell.show(&Content { title: id, fixed: String::new(), live }))
}

/// Takes it in again and shows what became of it.
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let replayed = inspector::replay(&app, &principal, &id).await?;
    Ok(session::see_other(&format!("/ui/deliveries/{}?replayed=1", replayed.id)))
}
