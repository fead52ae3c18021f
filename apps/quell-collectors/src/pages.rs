//! The dashboard's pages: what intakes are worth, one of them with its prices over time, and the three questions that whoever
//! runs collectors asks: what has happened lately, how are the sources, what is stuck.
//!
//! Titles come from strangers and stay text: the templates escape them. Lists are bounded, and the statements of a page do not
//! grow with the number of intakes.

use std::time::Duration;

use askama::Template;
use async_trait::async_trait;
use quell::Engine;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Tenant;
use quell::quell_core::inspect::{RunFilter, RunRow, SourceFilter, SourceRow};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::source::{Breaker, Standing};
use quell_server::pages::{Clock, Page, PageError, PageRequest, Section, When, number, query, segment};
use tokio::sync::OnceCell;

use crate::book::{Book, Collected, Listing, Point, PointFilter, Valued};
use crate::chart::{Chart, Interval};
use crate::intake::Intake;
use crate::{COLLECT, queue};

/// Rows of a page.
const LISTED: usize = 100;
/// Runs of a page, as the older system listed them.
const RUNS: usize = 20;
/// Points of one intake that are drawn and listed.
const POINTS: usize = 500;
/// Points that are listed below the chart.
const POINTS_LISTED: usize = 50;
/// A run that is running and has said nothing for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// Prices, for the dashboard.
pub struct Pages {
    engine: Engine,
    /// Opened when somebody looks.
    book: OnceCell<Book>,
}

impl Pages {
    pub fn new(engine: Engine) -> Self {
        Pages { engine, book: OnceCell::new() }
    }

    async fn book(&self) -> Result<&Book, PageError> {
        let open = || async { Ok::<_, PageError>(Book::open(self.engine.store().clone()).await?) };
        self.book.get_or_try_init(open).await
    }
}

#[async_trait]
impl Section for Pages {
    fn name(&self) -> &'static str {
        "prices"
    }

    fn title(&self) -> &'static str {
        "Prices"
    }

    async fn page(&self, request: PageRequest) -> Result<Page, PageError> {
        match request.path()[..] {
            [] => self.values(&request).await,
            ["intake", id] => self.intake(&request, id).await,
            ["runs"] => self.runs(&request, false).await,
            ["stuck"] => self.runs(&request, true).await,
            ["sources"] => self.sources(&request).await,
            _ => Err(PageError::not_found("there is no such page of prices")),
        }
    }
}

/// What all templates write the same way.
struct View {
    base: String,
    clock: Clock,
}

impl View {
    fn of(request: &PageRequest) -> Self {
        View { base: request.base.clone(), clock: Clock { now: request.now } }
    }

    fn when(&self, at: &Timestamp) -> When {
        self.clock.when(at)
    }

    fn number(&self, n: &u64) -> String {
        number(n)
    }

    fn intake(&self, tenant: &Tenant, id: &str) -> String {
        format!("{}/intake/{}{}", self.base, segment(id), query(&[("tenant", tenant.as_str())]))
    }

    fn lane(&self, row: &RunRow) -> String {
        let tenant = query(&[("tenant", row.lane.tenant.as_str())]);
        format!("/ui/lanes/{}/{}{tenant}", row.lane.queue, segment(row.lane.key.as_str()))
    }
}

/// The links between the pages; `here` is the one that is shown.
#[derive(Template)]
#[template(path = "prices_head.html")]
struct Head<'a> {
    view: &'a View,
    here: &'static str,
    lead: &'static str,
}

impl Head<'_> {
    fn pages(&self) -> [(&'static str, &'static str); 4] {
        [("", "Values"), ("/runs", "Recent runs"), ("/sources", "Sources"), ("/stuck", "Stuck runs")]
    }
}

#[derive(Template)]
#[template(path = "prices_values.html")]
struct Values<'a> {
    view: &'a View,
    items: Vec<Valued>,
    next: Option<String>,
}

impl Values<'_> {
    /// All intervals of the page are drawn by one measure for each currency.
    fn interval(&self, one: &Valued) -> Option<Interval> {
        let estimate = one.valuation.estimate?;
        let highest = self
            .items
            .iter()
            .filter(|other| other.valuation.currency == one.valuation.currency)
            .filter_map(|other| Some(other.valuation.estimate?.high_cents))
            .max()?;
        Some(Interval::new(&estimate, highest))
    }

    fn after(&self, cursor: &str) -> String {
        query(&[("cursor", cursor)])
    }
}

#[derive(Template)]
#[template(path = "prices_intake.html")]
struct OneIntake<'a> {
    view: &'a View,
    intake: Intake,
    valued: Option<Valued>,
    chart: Option<Chart>,
    points: Vec<Point>,
    collected: Vec<Collected>,
    more: bool,
}

impl OneIntake<'_> {
    /// What is known of the thing, with its names.
    fn about(&self) -> Vec<(&'static str, &str)> {
        let about = &self.intake.about;
        let parts = [
            ("Year", &about.year),
            ("Mint mark", &about.mintmark),
            ("Denomination", &about.denomination),
            ("Series", &about.series),
            ("Title", &about.title),
        ];
        parts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?))).collect()
    }

    fn is_cut(&self) -> bool {
        self.more || self.points.len() > POINTS_LISTED
    }

    fn listed(&self) -> &[Point] {
        &self.points[..self.points.len().min(POINTS_LISTED)]
    }

    /// Only what a browser may follow.
    fn link<'p>(&self, point: &'p Point) -> Option<&'p str> {
        let url = point.url.as_deref()?;
        ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)).then_some(url)
    }
}

#[derive(Template)]
#[template(path = "prices_runs.html")]
struct Runs<'a> {
    view: &'a View,
    rows: Vec<RunRow>,
    stuck: bool,
}

#[derive(Template)]
#[template(path = "prices_sources.html")]
struct Sources<'a> {
    view: &'a View,
    rows: Vec<SourceRow>,
}

impl Sources<'_> {
    fn standing(&self, row: &SourceRow) -> (&'static str, &'static str) {
        match (row.standing, row.breaker) {
            (Standing::Disabled, _) => ("paused", "disabled"),
            (Standing::Removed, _) => ("failed", "removed"),
            (Standing::Released, _) => ("waiting", "released"),
            (Standing::Enabled, Breaker::Open) => ("failed", "paused by its breaker"),
            (Standing::Enabled, Breaker::HalfOpen) => ("waiting", "being tried"),
            (Standing::Enabled, Breaker::Closed) => ("done", "enabled"),
        }
    }

    fn tokens(&self, row: &SourceRow) -> String {
        row.tokens.map_or_else(|| "no limit".to_owned(), |tokens| format!("{tokens} of {}", row.rules.burst))
    }
}

impl Pages {
    async fn values(&self, request: &PageRequest) -> Result<Page, PageError> {
        let view = View::of(request);
        let listing =
            Listing { tenant: None, cursor: request.field("cursor").map(str::to_owned), limit: LISTED };
        let page = self.book().await?.valuations(&listing).await?;
        let lead = "What each intake is worth: the median of its prices, better matches and younger ones counting more. The bar is \
                    the interval that holds half of the weight.";
        let head = Head { view: &view, here: "", lead };
        let values = Values { view: &view, items: page.items, next: page.next };
        Ok(Page::new("Prices").fixed(&head).live(&values))
    }

    async fn intake(&self, request: &PageRequest, id: &str) -> Result<Page, PageError> {
        let view = View::of(request);
        let tenant = Tenant::new(request.field("tenant").unwrap_or_default())
            .map_err(|e| PageError::invalid(e.to_string()))?;
        let book = self.book().await?;
        let intake = book.intake(&tenant, id).await?;
        let intake = intake.ok_or_else(|| PageError::not_found("there is no such intake"))?;
        let valued = book.valuation(&tenant, id).await?;
        let collected = book.collected(&tenant, id).await?;
        let filter = PointFilter { tenant, intake: id.to_owned(), source: None, cursor: None, limit: POINTS };
        let found = book.points(&filter).await?;
        let chart =
            Chart::new(&found.items, valued.as_ref().map(|valued| &valued.valuation), intake.currency);
        let title = intake.id.clone();
        let more = found.next.is_some();
        let shown = OneIntake { view: &view, intake, valued, chart, points: found.items, collected, more };
        Ok(Page::new(title).live(&shown))
    }

    /// Recent ones, or those that run and have given no sign of life lately.
    async fn runs(&self, request: &PageRequest, stuck: bool) -> Result<Page, PageError> {
        let view = View::of(request);
        let filter = RunFilter {
            queue: Some(queue(COLLECT)),
            state: stuck.then_some(RunState::Running),
            limit: if stuck { LISTED } else { RUNS },
            ..RunFilter::default()
        };
        let mut rows = self.engine.runs(filter).await?.items;
        if stuck {
            let silent = |row: &RunRow| row.heartbeat_at.is_none_or(|at| request.now.since(at) > STUCK_AFTER);
            rows.retain(silent);
        }
        let (here, lead) = match stuck {
            false => ("/runs", "The last collections, the newest first."),
            true => (
                "/stuck",
                "Collections that are running and have given no sign of life for five minutes. Each is taken over when its \
                 lease is over, by itself.",
            ),
        };
        let head = Head { view: &view, here, lead };
        Ok(Page::new("Prices").fixed(&head).live(&Runs { view: &view, rows, stuck }))
    }

    async fn sources(&self, request: &PageRequest) -> Result<Page, PageError> {
        let view = View::of(request);
        let settings = self.engine.settings();
        let ours = settings.prices.as_ref().map(|prices| &prices.sources);
        let filter = SourceFilter { limit: LISTED, ..SourceFilter::default() };
        let mut rows = self.engine.sources(filter).await?.items;
        rows.retain(|row| ours.is_some_and(|ours| ours.contains_key(&row.name)));
        let lead = "Whom prices are asked of. A source that fails again and again is paused by its breaker, and what waits for it \
                    keeps its attempts.";
        let head = Head { view: &view, here: "/sources", lead };
        Ok(Page::new("Prices").fixed(&head).live(&Sources { view: &view, rows }))
    }
}
