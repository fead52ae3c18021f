//! One collection: an intake asked for at one source, and what came of it, stored.
//!
//! The order is the promise. What is wrong with the request is told before anybody is asked. An answer from the cache touches
//! neither bucket nor breaker; otherwise the pages of the source are turned one by one, each a step, so that neither a crash
//! nor a token that does not come makes a page be fetched twice. Then everything is sifted (`sift.rs`) and stored in one
//! transaction, or nothing of it, and the run ends together with the event that has the intake valued anew (`valuation.rs`).
//!
//! What becomes of a run that does not come so far: a source that is at fault is tried again, one without a token is waited for
//! without an attempt, and what cannot be right (a template, a currency, a price that is no number) fails.
//!
//! The time of everything that is seen is the store's, taken by the attempt that fetched the first page and remembered with it:
//! an answer from the cache is as old as its first page.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use quell::fetch::{FetchError, Fetcher, Http, Origin};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::quell_core::event::{Event, SourceName};
use quell::quell_core::source::SourceReport;
use quell::{Engine, EngineError, Handler, Outcome, Run, RunError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::adapter::{AdapterError, Page, Query};
use crate::book::{Book, Collected, Collection};
use crate::dedupe::cache_key;
use crate::found::Found;
use crate::intake::{About, Intake, lane};
use crate::request::{One, Request, value_event};
use crate::sift::{ITEMS_MAX, shown, sift};
use crate::{COLLECT_TEST, PAGES_MAX, PriceSource, fan_out};

/// Handles the queues `collect` and `collect.test`.
pub struct Collects {
    pub engine: Engine,
    pub book: Book,
    pub http: Http,
    pub sources: Arc<BTreeMap<SourceName, PriceSource>>,
}

/// All pages of a source, as they are kept for whoever asks the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Who asked.
    pub(crate) run: String,
    pub(crate) at: Timestamp,
    pub(crate) pages: u32,
    pub(crate) items: Vec<Found>,
    pub(crate) skipped: u32,
}

/// One page, as it is remembered.
#[derive(Serialize, Deserialize)]
struct Turned {
    at: Timestamp,
    page: Page,
}

/// Why a run does not go on.
pub(crate) enum Stop {
    /// The run's answer is clear.
    With(Box<Outcome>),
    /// The governed client says what it is.
    Fetch(FetchError),
    /// The run could not be asked: it is somebody else's, or the store is away.
    Run(RunError),
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Self {
        Stop::Run(error)
    }
}

impl From<FetchError> for Stop {
    fn from(error: FetchError) -> Self {
        Stop::Fetch(error)
    }
}

impl From<Outcome> for Stop {
    fn from(outcome: Outcome) -> Self {
        Stop::With(Box::new(outcome))
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        let text = match error.kind {
            ErrorKind::Conflict => {
                "nothing was stored: another claim has collected this since, or the intake was removed"
                    .to_owned()
            }
            _ => format!("the store did not answer: {error}"),
        };
        Outcome::retry(text).into()
    }
}

impl From<AdapterError> for Stop {
    fn from(error: AdapterError) -> Self {
        match error {
            AdapterError::Fetch(error) => Stop::Fetch(error),
            AdapterError::Permanent(text) => Outcome::failed(text).into(),
            AdapterError::Transient(text) => Outcome::retry(text).into(),
        }
    }
}

/// One request on its way.
struct Asked<'a> {
    run: &'a Run,
    about: &'a About,
    name: &'a SourceName,
    source: &'a PriceSource,
    params: &'a BTreeMap<String, String>,
}

#[async_trait]
impl Handler for Collects {
    async fn handle(&self, run: &Run) -> Outcome {
        let [event] = run.events() else {
            let text = "requests are collected one by one: set max_events = 1 for this queue";
            return Outcome::failed(text).source_unused();
        };
        let ended = match run.queue().as_str() {
            COLLECT_TEST => self.test(run, event).await,
            _ => self.collect(run, event).await,
        };
        match ended {
            Ok(outcome) => outcome,
            Err(Stop::With(outcome)) => outcome.source_unused(),
            Err(Stop::Fetch(error)) => Outcome::retry(error.to_string()).source_unused(),
            Err(Stop::Run(error)) => Outcome::retry(error.to_string()).source_unused(),
        }
    }
}

impl Collects {
    async fn collect(&self, run: &Run, event: &Event) -> Result<Outcome, Stop> {
        let one = match Request::read(&event.payload).map_err(Outcome::failed)? {
            Request::All => return fan_out::send_all(self, run).await,
            Request::One(one) => one,
        };
        let id = one.intake.as_deref().unwrap_or_default();
        let wanted = lane(id, &one.source);
        if run.key().as_str() != wanted {
            let text =
                format!("the key of the event is not that of its payload: send it with key {wanted:?}");
            return Err(Outcome::failed(text).into());
        }
        let source = self.source(run, &one)?;
        let intake = self.intake(run, id).await?;
        let (about, name, params) = (&intake.about, &one.source, &one.params);
        let asked = Asked { run, about, name, source, params };
        let fetcher = self.fetcher(&asked)?;
        let ended = self.collected(&asked, &intake, &fetcher).await;
        Ok(finished(&fetcher, ended))
    }

    async fn collected(
        &self,
        asked: &Asked<'_>,
        intake: &Intake,
        fetcher: &Fetcher,
    ) -> Result<Outcome, Stop> {
        let key = cache_key(asked.name, asked.about, asked.params);
        let pages = || self.pages(asked, fetcher, Some(&key));
        let (answer, origin): (Answer, Origin) = fetcher.recall(&key, pages).await?;
        // One that was kept before the source was declared anew.
        same_currency(asked, &answer.items)?;
        let run = asked.run.run_id().to_string();
        // What this run fetched before it died is not what others have fetched.
        let cached = origin == Origin::Cache && answer.run != run;
        let sifted = sift(&answer, asked.about, &asked.source.rules);
        let collection = Collection {
            intake,
            source: asked.name,
            run: &run,
            token: asked.run.token(),
            at: answer.at,
            points: &sifted.points,
            found: sifted.found,
            unmatched: sifted.unmatched,
            skipped: sifted.skipped,
            pages: answer.pages.into(),
            cached,
        };
        let stored = self.book.store(&collection).await?;
        tracing::info!(intake = %intake.id, source = %asked.name, run = %run, new = stored.new, "prices.collected");
        let again =
            value_event(intake).map_err(EngineError::from).and_then(|event| asked.run.follow_up(event));
        let again = again.map_err(|problem| {
            Outcome::retry(format!("the prices are stored, and their value cannot be asked for: {problem}"))
        })?;
        let requests = u32::try_from(fetcher.requests()).map_or(f64::MAX, f64::from);
        let outcome = Outcome::succeeded().with_result(result(&stored));
        Ok(outcome.with_usage("requests", requests).then(again))
    }

    /// Asks as a collection does, past the cache, and shows what would be stored.
    async fn test(&self, run: &Run, event: &Event) -> Result<Outcome, Stop> {
        let one = Request::read_test(&event.payload).map_err(Outcome::failed)?;
        let source = self.source(run, &one)?;
        let about = match (&one.intake, &one.about) {
            (Some(id), _) => self.intake(run, id).await?.about,
            (None, about) => about.clone().unwrap_or_default(),
        };
        let asked = Asked { run, about: &about, name: &one.source, source, params: &one.params };
        let fetcher = self.fetcher(&asked)?;
        let pages = self.pages(&asked, &fetcher, None).await;
        let ended =
            pages.map(|answer| Outcome::succeeded().with_result(shown(&answer, &about, &source.rules)));
        Ok(finished(&fetcher, ended))
    }

    fn source(&self, run: &Run, one: &One) -> Result<&PriceSource, Stop> {
        let name = &one.source;
        let source = self.sources.get(name).ok_or_else(|| {
            Outcome::failed(format!("there is no source {name:?}: describe it as [prices.sources.{name}]"))
        })?;
        match run.batch().source {
            Some(_) => Ok(source),
            // Ungoverned, it would be asked without its limits.
            None => Err(Outcome::failed(format!(
                "the event is not governed by its source: send it with source {name:?}"
            ))
            .into()),
        }
    }

    async fn intake(&self, run: &Run, id: &str) -> Result<Intake, Stop> {
        let known = self.book.intake(run.tenant(), id).await?;
        known.ok_or_else(|| {
            Outcome::failed(format!("there is no intake {id:?}: add it with `quell prices intake add`"))
                .into()
        })
    }

    fn fetcher(&self, asked: &Asked<'_>) -> Result<Fetcher, Stop> {
        // The address of a source stands in the operator's own configuration, so it is meant.
        let http = self.http.meaning(asked.source.adapter.base_url());
        let fetcher = asked.run.fetcher(&http);
        let fetcher = fetcher.ok_or_else(|| Outcome::retry("there is no worker behind this run"))?;
        Ok(fetcher.past_the_cache())
    }

    /// Turns the pages of a source. `key` is what others wait for meanwhile.
    async fn pages(&self, asked: &Asked<'_>, fetcher: &Fetcher, key: Option<&str>) -> Result<Answer, Stop> {
        let (run, at) = (asked.run, asked.run.batch().claimed_at);
        let mut answer =
            Answer { run: run.run_id().to_string(), at, pages: 0, items: Vec::new(), skipped: 0 };
        let mut cursor: Option<String> = None;
        for number in 1..=asked.source.max_pages.clamp(1, PAGES_MAX) {
            if let (Some(key), true) = (key, number > 1) {
                fetcher.still_fetching(key).await?;
            }
            let from = cursor.as_deref();
            let turn = || async {
                let query = Query { about: asked.about, params: asked.params };
                let page = asked.source.adapter.page(fetcher, query, from).await?;
                check(asked, &page, number, from)?;
                Ok::<_, Stop>(Turned { at, page })
            };
            let turned: Turned = run.step(&format!("page-{number}"), turn).await.map_err(|stop| match stop {
                Stop::Run(RunError::Store(error)) if error.kind == ErrorKind::Limit => Outcome::failed(format!(
                    "page {number} of {} is larger than a run remembers: ask for fewer items a page ({error})",
                    asked.name
                ))
                .into(),
                stop => stop,
            })?;
            if number == 1 {
                answer.at = turned.at;
            }
            answer.pages = number;
            answer.skipped = answer.skipped.saturating_add(turned.page.skipped);
            answer.items.extend(turned.page.items);
            cursor = turned.page.next;
            if cursor.is_none() || answer.items.len() >= ITEMS_MAX {
                break;
            }
        }
        Ok(answer)
    }
}

/// What no page may be like: it is not remembered, not kept, and not tried again.
fn check(asked: &Asked<'_>, page: &Page, number: u32, from: Option<&str>) -> Result<(), Stop> {
    if page.next.is_some() && page.next.as_deref() == from {
        let text = format!(
            "page {number} of {} says that it is followed by itself: its paging is described wrongly",
            asked.name
        );
        return Err(Outcome::failed(text).into());
    }
    same_currency(asked, &page.items)
}

fn same_currency(asked: &Asked<'_>, items: &[Found]) -> Result<(), Stop> {
    let Some(declared) = asked.source.currency else { return Ok(()) };
    let Some(other) = items.iter().find(|item| item.price.currency != declared) else { return Ok(()) };
    let text = format!(
        "{} has a price in {}, and is declared to be in {declared}: nothing was stored; correct the currency of the \
         source, or leave it out to keep what each item says",
        asked.name, other.price.currency
    );
    Err(Outcome::failed(text).into())
}

/// What a run ends with, and what that means for its source.
fn finished(fetcher: &Fetcher, ended: Result<Outcome, Stop>) -> Outcome {
    let outcome = match ended {
        Ok(outcome) => outcome,
        Err(Stop::With(outcome)) => *outcome,
        Err(Stop::Fetch(error)) => fetcher.outcome(&error),
        Err(Stop::Run(error)) => Outcome::retry(error.to_string()),
    };
    match outcome.source == SourceReport::default() {
        true => fetcher.finish(outcome),
        // What the client made of an error says already what it means for the source.
        false => outcome,
    }
}

fn result(stored: &Collected) -> serde_json::Value {
    json!({
        "found": stored.found,
        "new": stored.new,
        "replaced": stored.replaced,
        "seen": stored.seen,
        "unmatched": stored.unmatched,
        "skipped": stored.skipped,
        "pages": stored.pages,
        "cached": stored.cached,
    })
}
