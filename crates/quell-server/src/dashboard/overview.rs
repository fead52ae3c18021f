//! The first page: is it fine, and if it is not, where to look.
//!
//! What it reads is totals, sources, workers and one page of lanes, whatever the number of lanes; rates come out of what the
//! server remembers (`watch.rs`). That nothing is lost is computed from the totals at every look and shown with its terms.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use quell::Presence;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{Concern, Health, QueueStats, Reason, SourceFilter, SourceRow};
use quell::quell_core::source::Standing;
use quell::quell_core::store::Durability;
use quell::quell_core::totals::Totals;
use quell::rates::{self, Seen};

use super::dead::{self, Group};
use super::shell::{Content, Shell, rendered};
use super::sources::{is_troubled, state_of};
use super::spark::{self, Spark};
use super::view::{self, Clock};
use super::{Failed, PageAnswer};
use crate::app::App;
use crate::auth::Principal;
use crate::limits;

/// Due for longer than this means that nobody takes it: workers look at least once a second.
const LATE: Duration = Duration::from_secs(10);
/// Sources that the page looks at; the page of sources lists all.
const SOURCES: usize = 200;
/// Those of them that it shows: first the ones in trouble.
const SOURCES_SHOWN: usize = 8;
/// Groups of dead letters that it shows; their own page has all.
const GROUPS_SHOWN: usize = 5;
/// A worker tells of itself every 20 seconds. After twice that time it was late, and after a minute it is forgotten.
const SILENT: Duration = Duration::from_secs(40);

/// Something to look at, and where.
struct Worry {
    text: String,
    place: Option<String>,
}

/// A figure with its way there.
struct Rate {
    name: &'static str,
    now: String,
    unit: &'static str,
    spark: Option<Spark>,
    alarm: bool,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    clock: Clock,
    worries: Vec<Worry>,
    /// Queues of which events are missing, or there are too many.
    broken: Vec<QueueStats>,
    rates: Vec<Rate>,
    total: Totals,
    lanes: Vec<(Reason, u64)>,
    more_lanes: bool,
    /// What fails most, of the newest dead letters.
    failing: Vec<Group>,
    queues: Vec<QueueStats>,
    tenants: bool,
    workers: Vec<(Presence, Timestamp)>,
    sources: Vec<SourceRow>,
    /// Sources that are not shown.
    more_sources: usize,
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
    let mut sources = sources(&app, &principal).await?;
    let workers = workers(&app, &principal).await?;
    let lanes = app.watch.lanes(&app.engine).await?;
    let total = sum(&queues);
    let failing = if total.dead > 0 { failing(&app, &principal).await? } else { Vec::new() };
    let seen = app.watch.seen(&queues, |tenant, queue| principal.sees_of(tenant, queue));
    let store = principal.unlimited().is_ok().then_some(health.clone());
    let worries = worries(&queues, &sources, store.as_ref());
    let more_sources = sources.len().saturating_sub(SOURCES_SHOWN);
    sources.truncate(SOURCES_SHOWN);
    let host = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let overview = Overview {
        clock: Clock { now: health.now },
        worries,
        broken: queues.iter().filter(|stats| !stats.totals.hold()).cloned().collect(),
        rates: rates_of(&seen, &queues),
        total,
        lanes: lanes.counts(|tenant, queue| principal.sees_of(tenant, queue)),
        more_lanes: lanes.more,
        failing,
        tenants: queues.iter().any(|stats| !stats.tenant.is_none()),
        queues,
        workers,
        sources,
        more_sources,
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

/// The largest groups of what may be seen.
async fn failing(app: &App, principal: &Principal) -> Result<Vec<Group>, Failed> {
    let rows = app.watch.dead(&app.engine).await?;
    let rules = &app.engine.settings().dashboard.redact;
    let mut groups = dead::groups(rules, rows.iter().filter(|row| principal.sees(&row.lane)));
    groups.truncate(GROUPS_SHOWN);
    Ok(groups)
}

/// Those that keep somebody waiting come first.
async fn sources(app: &App, principal: &Principal) -> Result<Vec<SourceRow>, Failed> {
    let filter = SourceFilter { limit: SOURCES, ..SourceFilter::default() };
    let mut rows = app.engine.sources(filter).await?.items;
    rows.retain(|row| principal.sees_tenant(&row.tenant));
    rows.sort_by_key(|row| !is_troubled(row));
    Ok(rows)
}

fn sum(queues: &[QueueStats]) -> Totals {
    queues.iter().fold(Totals::default(), |sum, stats| sum.plus(&stats.totals))
}

fn rates_of(seen: &[Seen], queues: &[QueueStats]) -> Vec<Rate> {
    let speed = |name, of: fn(&rates::Counted) -> u64| {
        let trend = rates::trend(seen, of);
        let now = trend.now.map_or_else(|| "–".to_owned(), spark::rate);
        Rate { name, now, unit: "events per second", spark: Spark::of(&trend.steps), alarm: false }
    };
    let failing = rates::error_rate(seen);
    let late = queues.iter().filter_map(|stats| stats.oldest_due_ms).max().map(Duration::from_millis);
    vec![
        speed("Accepted", |c| c.accepted),
        speed("Succeeded", |c| c.succeeded),
        Rate {
            name: "Error rate",
            now: failing.map_or_else(|| "–".to_owned(), spark::percent),
            unit: "of what ended failed for good",
            spark: Spark::of(&rates::trend(seen, |c| c.dead).steps),
            alarm: failing.is_some_and(|share| share > 0.0),
        },
        Rate {
            name: "Oldest due",
            now: late.map_or_else(|| "–".to_owned(), |late| view::distance(late.as_secs())),
            unit: if late.is_some() { "waits for a worker" } else { "nothing waits for a worker" },
            spark: None,
            alarm: late.is_some_and(|late| late > LATE),
        },
    ]
}

fn worries(queues: &[QueueStats], sources: &[SourceRow], store: Option<&Health>) -> Vec<Worry> {
    let mut worries = Vec::new();
    for stats in queues {
        let name = named(stats);
        let lanes = Some(lanes_of(stats));
        if let Some(by) = &stats.paused_by {
            worries.push(Worry { text: format!("{name} is paused by {by}."), place: lanes.clone() });
        }
        if stats.totals.dead > 0 {
            let text = format!("{name} has {} in the dead letter.", events(stats.totals.dead));
            let place = Some(format!("/ui/dead{}", filter_of(stats)));
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
    }
    for source in sources.iter().filter(|source| is_troubled(source)) {
        let waiting = view::number(&source.waiting);
        let text =
            format!("Source {} is {}; lanes waiting for it: {waiting}.", source.name, state_of(source));
        worries.push(Worry { text, place: Some("/ui/sources".to_owned()) });
    }
    if let Some(health) = store {
        let text = |of: &Concern| format!("The store: {}. To mend it: {}.", of.text, of.fix);
        worries.extend(health.warnings.iter().map(|of| Worry { text: text(of), place: None }));
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

fn filter_of(stats: &QueueStats) -> String {
    view::query(&[("queue", stats.queue.as_str()), ("tenant", stats.tenant.as_str())])
}

fn lanes_of(stats: &QueueStats) -> String {
    let tenant = match stats.tenant.as_str() {
        "" => String::new(),
        tenant => format!(" tenant:{tenant:?}"),
    };
    let words = format!("queue:{}{tenant}", stats.queue);
    format!("/ui/lanes{}", view::query(&[("q", words.as_str())]))
}

impl Overview {
    fn lanes_of(&self, stats: &QueueStats) -> String {
        lanes_of(stats)
    }

    fn dead_of(&self, stats: &QueueStats) -> String {
        format!("/ui/dead{}", filter_of(stats))
    }

    fn waits(&self, stats: &QueueStats) -> Option<String> {
        stats.oldest_due_ms.map(|ms| view::distance(ms / 1000))
    }

    fn durable(&self, health: &Health) -> bool {
        health.description.durability == Durability::Durable
    }

    fn tone(&self, reason: &Reason) -> &'static str {
        match reason {
            Reason::Window | Reason::Idle => "pending",
            Reason::Running => "running",
            Reason::Due | Reason::Source | Reason::Backoff | Reason::Paused | Reason::QueuePaused => "paused",
            Reason::Expired | Reason::Blocked => "failed",
        }
    }

    /// What lanes do that wait for it.
    fn word(&self, reason: &Reason) -> &'static str {
        match reason {
            Reason::Window => "collecting",
            Reason::Due => "due",
            Reason::Running => "running",
            Reason::Backoff => "backing off",
            Reason::Paused => "paused",
            Reason::QueuePaused => "of a paused queue",
            Reason::Source => "held by a source",
            Reason::Blocked => "blocked",
            Reason::Expired => "lost their worker",
            Reason::Idle => "idle",
        }
    }

    fn lanes_because(&self, reason: &Reason) -> String {
        let words = format!("why:{}", reason.as_str());
        format!("/ui/lanes{}", view::query(&[("q", words.as_str())]))
    }

    fn counted(&self) -> u64 {
        limits::LANES_COUNTED as u64
    }

    fn standing(&self, source: &SourceRow) -> &'static str {
        match source.standing {
            Standing::Enabled => "enabled",
            Standing::Disabled => "disabled",
            Standing::Removed => "removed",
            Standing::Released => "released",
        }
    }

    fn is_troubled(&self, source: &SourceRow) -> bool {
        is_troubled(source)
    }

    fn is_silent(&self, seen_at: &Timestamp) -> bool {
        self.clock.now.since(*seen_at) > SILENT
    }

    /// What is wrong with a queue whose totals do not add up.
    fn difference(&self, stats: &QueueStats) -> String {
        let (accepted, found) = (stats.totals.accepted, stats.totals.accounted());
        if accepted > found {
            format!("{}: {} missing.", named(stats), events(accepted - found))
        } else {
            format!("{}: {} too many.", named(stats), events(found - accepted))
        }
    }

    fn queues_of(&self, about: &Presence) -> String {
        let list =
            |queues: &Vec<_>| queues.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ");
        about.queues.as_ref().map_or_else(|| "all".to_owned(), list)
    }
}
