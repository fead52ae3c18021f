//! The first page: is it fine, and if it is not, where to look.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use quell::Presence;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{Health, QueueStats, SourceFilter, SourceRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::source::{Breaker, Standing};
use quell::quell_core::store::Durability;
use quell::quell_core::totals::Totals;

use super::shell::{Content, Shell, rendered};
use super::view::{self, Clock};
use super::{Failed, PageAnswer};
use crate::app::App;
use crate::auth::Principal;

/// Due for longer than this means that nobody takes it: workers look at least once a second.
const LATE: Duration = Duration::from_secs(10);
/// Sources that the page looks at; `quell sources` lists all.
const SOURCES: usize = 200;

/// Something to look at, and where.
struct Worry {
    text: String,
    place: Option<String>,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    clock: Clock,
    worries: Vec<Worry>,
    total: Totals,
    running: u64,
    queues: Vec<QueueStats>,
    tenants: bool,
    workers: Vec<(Presence, Timestamp)>,
    sources: Vec<SourceRow>,
    /// Only for those who see everything.
    store: Option<Health>,
    host: String,
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    headers: http::HeaderMap,
) -> PageAnswer {
    let health = app.engine.health().await?;
    let mut queues = app.engine.stats().await?;
    queues.retain(|stats| principal.sees_of(&stats.tenant, &stats.queue));
    let sources = troubled_sources(&app, &principal).await?;
    let workers = workers(&app, &principal).await?;
    let store = principal.unlimited().is_ok().then_some(health.clone());
    let host = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let overview = Overview {
        clock: Clock { now: health.now },
        worries: worries(&queues, &sources, store.as_ref()),
        total: sum(&queues),
        running: queues.iter().map(|stats| stats.running).sum(),
        tenants: queues.iter().any(|stats| !stats.tenant.is_none()),
        queues,
        workers,
        sources,
        store,
        host: host.unwrap_or("127.0.0.1:7717").to_owned(),
    };
    let live = rendered(&overview);
    Ok(shell.show(&Content { title: "Overview".to_owned(), fixed: String::new(), live }))
}

async fn workers(app: &App, principal: &Principal) -> Result<Vec<(Presence, Timestamp)>, Failed> {
    let mut workers = app.engine.workers().await?;
    workers.retain(|(about, _)| principal.sees_worker(about));
    Ok(workers)
}

/// Those that keep somebody waiting.
async fn troubled_sources(app: &App, principal: &Principal) -> Result<Vec<SourceRow>, Failed> {
    let filter = SourceFilter { limit: SOURCES, ..SourceFilter::default() };
    let mut rows = app.engine.sources(filter).await?.items;
    rows.retain(|row| {
        let troubled = row.breaker != Breaker::Closed
            || matches!(row.standing, Standing::Disabled | Standing::Removed)
            || row.not_before.is_some();
        troubled && principal.sees_tenant(&row.tenant)
    });
    Ok(rows)
}

fn sum(queues: &[QueueStats]) -> Totals {
    queues.iter().fold(Totals::default(), |sum, stats| sum.plus(&stats.totals))
}

fn worries(queues: &[QueueStats], sources: &[SourceRow], store: Option<&Health>) -> Vec<Worry> {
    let mut worries = Vec::new();
    for stats in queues {
        let name = named(stats);
        let lanes = Some(format!("/ui/lanes{}", filter_of(stats, &[])));
        if let Some(by) = &stats.paused_by {
            worries.push(Worry { text: format!("{name} is paused by {by}."), place: lanes.clone() });
        }
        if stats.totals.dead > 0 {
            let text = format!("{name} has {} in the dead letter.", events(stats.totals.dead));
            let place =
                Some(format!("/ui/runs{}", filter_of(stats, &[("state", RunState::Failed.as_str())])));
            worries.push(Worry { text, place });
        }
        let late = stats.oldest_due_ms.map(Duration::from_millis).filter(|late| *late > LATE);
        if let Some(late) = late.filter(|_| stats.paused_by.is_none()) {
            let late = view::distance(late.as_secs());
            worries.push(Worry {
                text: format!("{name} has had work that is due for {late}, and no worker takes it."),
                place: lanes,
            });
        }
        if !stats.totals.hold() {
            let text = format!("{name}: the totals do not add up. Run `quell doctor`.");
            worries.push(Worry { text, place: None });
        }
    }
    for source in sources {
        let waiting = view::number(&source.waiting);
        let text =
            format!("Source {} is {}; lanes waiting for it: {waiting}.", source.name, state_of(source));
        worries.push(Worry { text, place: None });
    }
    if let Some(health) = store {
        worries.extend(health.warnings.iter().map(|text| Worry { text: text.clone(), place: None }));
        if let Durability::BestEffort(why) = &health.description.durability {
            worries
                .push(Worry { text: format!("The store may lose acknowledged events: {why}."), place: None });
        }
    }
    worries
}

fn named(stats: &QueueStats) -> String {
    if stats.tenant.is_none() {
        format!("Queue {}", stats.queue)
    } else {
        format!("Queue {} of {}", stats.queue, stats.tenant)
    }
}

fn events(n: u64) -> String {
    if n == 1 { "1 event".to_owned() } else { format!("{} events", view::number(&n)) }
}

fn filter_of(stats: &QueueStats, more: &[(&str, &str)]) -> String {
    let mut pairs = more.to_vec();
    pairs.extend([("queue", stats.queue.as_str()), ("tenant", stats.tenant.as_str())]);
    view::query(&pairs)
}

fn state_of(source: &SourceRow) -> &'static str {
    match (source.standing, source.breaker) {
        (Standing::Disabled, _) => "disabled",
        (Standing::Removed, _) => "removed",
        (_, Breaker::Open) => "open: it failed too often",
        (_, Breaker::HalfOpen) => "half open: one run tries whether it works again",
        (_, Breaker::Closed) => "silent: it asked for a pause",
    }
}

impl Overview {
    fn lanes_of(&self, stats: &QueueStats) -> String {
        format!("/ui/lanes{}", filter_of(stats, &[]))
    }

    fn dead_of(&self, stats: &QueueStats) -> String {
        format!("/ui/runs{}", filter_of(stats, &[("state", RunState::Failed.as_str())]))
    }

    fn waits(&self, stats: &QueueStats) -> Option<String> {
        stats.oldest_due_ms.map(|ms| view::distance(ms / 1000))
    }

    fn durable(&self, health: &Health) -> bool {
        health.description.durability == Durability::Durable
    }

    fn state_of(&self, source: &SourceRow) -> &'static str {
        state_of(source)
    }

    fn queues_of(&self, about: &Presence) -> String {
        let list =
            |queues: &Vec<_>| queues.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ");
        about.queues.as_ref().map_or_else(|| "all".to_owned(), list)
    }
}
