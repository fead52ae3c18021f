//! One action on many lanes: those that were ticked, or all that a filter meets. First it is shown how many that are.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use percent_encoding::percent_decode_str;
use quell::quell_core::event::LaneKey;

use super::form::Form;
use super::lane_query::LaneQuery;
use super::operations::{Plan, concerns};
use super::shell::{Content, Shell, rendered};
use super::view::{self, segment};
use super::{PageAnswer, session};
use crate::app::App;
use crate::auth::Principal;
use crate::control::{LaneAction, lane_action};
use crate::error::{Answer, Problem};
use crate::limits;

/// Lanes that a preview names; it counts more of them.
const NAMED: usize = 20;

/// What somebody wants to do to which lanes.
struct Wish {
    action: LaneAction,
    /// The action's word, as it was sent and is sent again.
    word: String,
    which: Which,
}

enum Which {
    Ticked(Vec<LaneKey>),
    Matching { text: String, query: LaneQuery },
}

impl Wish {
    fn read(form: &Form, principal: &Principal) -> Answer<Wish> {
        let word = form.text("action").unwrap_or_default().to_owned();
        let action = lane_action(&word)?;
        let which = if form.text("scope") == Some("all") {
            let text = form.text("q").unwrap_or_default().to_owned();
            Which::Matching { query: LaneQuery::parse(&text)?, text }
        } else {
            let lanes: Answer<Vec<LaneKey>> =
                form.all("lane").take(limits::BULK_MAX).map(|text| ticked(principal, text)).collect();
            Which::Ticked(lanes?)
        };
        Ok(Wish { action, word, which })
    }
}

/// The value of a lane's box: `tenant/queue/key`, each as one part of a path.
pub(super) fn tick(lane: &LaneKey) -> String {
    let LaneKey { tenant, queue, key } = lane;
    [tenant.as_str(), queue.as_str(), key.as_str()].map(segment).join("/")
}

fn ticked(principal: &Principal, text: &str) -> Answer<LaneKey> {
    let wrong = || Problem::bad_request("this is no lane of the table").at("lane");
    let part = |text| percent_decode_str(text).decode_utf8().map_err(|_| wrong());
    let [tenant, queue, key] = text.split('/').collect::<Vec<_>>()[..] else { return Err(wrong()) };
    let tenant = part(tenant)?;
    principal.lane((!tenant.is_empty()).then_some(&*tenant), &part(queue)?, &part(key)?)
}

#[derive(Template)]
#[template(path = "lane_bulk.html")]
struct Preview<'a> {
    wish: &'a Wish,
    counted: Counted,
    rate: u32,
    rate_max: u32,
}

impl Preview<'_> {
    fn is_all(&self) -> bool {
        matches!(self.wish.which, Which::Matching { .. })
    }

    fn text(&self) -> &str {
        match &self.wish.which {
            Which::Matching { text, .. } => text,
            Which::Ticked(_) => "",
        }
    }

    fn ticks(&self) -> Vec<String> {
        match &self.wish.which {
            Which::Ticked(lanes) => lanes.iter().map(tick).collect(),
            Which::Matching { .. } => Vec::new(),
        }
    }
}

/// How many lanes an action would change.
#[derive(Default)]
struct Counted {
    lanes: u64,
    /// There are more than were looked at.
    at_least: bool,
    looked: u64,
    first: Vec<LaneKey>,
}

pub(super) async fn preview(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    request: Request<Body>,
) -> PageAnswer {
    let form = Form::read(request, limits::SMALL_BODY_BYTES).await?;
    let wish = Wish::read(&form, &principal)?;
    let counted = count(&app, &principal, &wish).await?;
    let (rate, rate_max) = (limits::OPERATION_RATE, limits::OPERATION_RATE_MAX);
    let fixed = rendered(&Preview { wish: &wish, counted, rate, rate_max });
    Ok(shell.show(&Content { title: "Preview".to_owned(), fixed, live: String::new() }))
}

/// Looks at a bounded number of lanes and says so when there are more.
async fn count(app: &App, principal: &Principal, wish: &Wish) -> Answer<Counted> {
    let (query, mut filter) = match &wish.which {
        Which::Ticked(lanes) => {
            let first = lanes.iter().take(NAMED).cloned().collect();
            let lanes = lanes.len() as u64;
            return Ok(Counted { lanes, looked: lanes, first, at_least: false });
        }
        Which::Matching { query, .. } => (query, filter_of(query, wish.action, principal)?),
    };
    let now = app.now().await?;
    let mut counted = Counted::default();
    while counted.looked < limits::PREVIEW_LANES as u64 {
        let page = app.engine.lanes(filter.clone()).await?;
        counted.looked += page.items.len() as u64;
        for row in page.items {
            if query.matches(&row, now) && concerns(wish.action, &row, now) {
                counted.lanes += 1;
                if counted.first.len() < NAMED {
                    counted.first.push(row.lane);
                }
            }
        }
        counted.at_least = page.next.is_some();
        if page.next.is_none() {
            break;
        }
        filter.cursor = page.next;
    }
    Ok(counted)
}

fn filter_of(
    query: &LaneQuery,
    action: LaneAction,
    principal: &Principal,
) -> Answer<quell::quell_core::inspect::LaneFilter> {
    let mut wish = query.wish(None, limits::BULK_MAX);
    // A paused lane without events is idle, and can be resumed.
    wish.idle |= action == LaneAction::Resume && !wish.running;
    wish.filter(principal)
}

/// Begins what was previewed and leads to its progress.
pub(super) async fn begin(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let form = Form::read(request, limits::SMALL_BODY_BYTES).await?;
    let Wish { action, word, which } = Wish::read(&form, &principal)?;
    let (what, plan) = match which {
        Which::Ticked(lanes) => (format!("{} ticked lanes", lanes.len()), Plan::Lanes { action, lanes }),
        Which::Matching { text, query } => {
            let filter = filter_of(&query, action, &principal)?;
            let what = if text.is_empty() { "all lanes".to_owned() } else { format!("lanes like {text}") };
            (what, Plan::Matching { action, query, filter })
        }
    };
    let rate = form.text("rate").and_then(|text| text.parse().ok()).unwrap_or(limits::OPERATION_RATE);
    let title = format!("{} {what}", view::capital(&word));
    let id = app.operations.begin(&app, &principal, form.actor(&principal), title, rate, plan)?;
    Ok(session::see_other(&format!("/ui/operations/{id}")))
}

#[cfg(test)]
mod tests {
    use quell::quell_core::event::{Key, QueueName, Tenant};

    use super::*;

    #[test]
    fn a_tick_names_any_lane() {
        let everybody = Principal::anybody();
        for (tenant, key) in [("", "a/b"), ("acme", "ü \u{202e}%2F/\n"), ("a/b", "x")] {
            let lane = LaneKey::new(QueueName::new("chat").unwrap(), Key::new(key).unwrap());
            let lane = lane.of(Tenant::new(tenant).unwrap_or_else(|_| Tenant::none()));
            assert_eq!(ticked(&everybody, &tick(&lane)).unwrap(), lane);
        }
        for wrong in ["", "a", "a/b", "/chat/a/b", "/chat/%ff", "/CHAT/a", "/chat/"] {
            assert!(ticked(&everybody, wrong).is_err(), "{wrong:?}");
        }
    }
}
