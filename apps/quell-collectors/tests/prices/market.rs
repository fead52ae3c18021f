//! A small marketplace on this machine, and an adapter that asks it through the governed client of a run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{Query as UrlQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use quell::clock;
use quell::fetch::Fetcher;
use quell_collectors::adapter::{Adapter, AdapterError, Page, Query};
use quell_collectors::found::{Found, PriceType};
use quell_collectors::money::{Currency, Money};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What the marketplace does in place of answering.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Status(u16),
    /// It says nothing until it is let go.
    Silence,
    /// It says that the page is followed by itself.
    Circle,
}

#[derive(Default)]
struct Hall {
    pages: Mutex<Vec<Vec<Value>>>,
    asked: Mutex<Vec<String>>,
    faults: Mutex<BTreeMap<usize, VecDeque<Fault>>>,
    delay: Mutex<Duration>,
    inside: AtomicUsize,
    most_inside: AtomicUsize,
    gone_on: Notify,
}

/// The marketplace. It stops with the test.
pub(crate) struct Market {
    hall: Arc<Hall>,
    pub(crate) url: String,
}

impl Market {
    pub(crate) async fn start() -> Market {
        let hall = Arc::new(Hall::default());
        let router = Router::new().fallback(answer).with_state(hall.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Market { hall, url }
    }

    /// What is for sale from now on.
    pub(crate) fn offer(&self, pages: Vec<Vec<Value>>) {
        *self.hall.pages.lock().unwrap() = pages;
    }

    /// The next answer for this page is none.
    pub(crate) fn fail(&self, page: usize, fault: Fault) {
        self.hall.faults.lock().unwrap().entry(page).or_default().push_back(fault);
    }

    /// Every answer takes this long.
    pub(crate) fn slow_down(&self, delay: Duration) {
        *self.hall.delay.lock().unwrap() = delay;
    }

    /// Whoever waits in silence is answered.
    pub(crate) fn go_on(&self) {
        self.hall.gone_on.notify_waiters();
    }

    /// The pages that were asked for, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.hall.asked.lock().unwrap().clone()
    }

    /// How many were asking at once at the most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.hall.most_inside.load(Ordering::SeqCst)
    }

    pub(crate) fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::new(Asking { base: self.url.clone() })
    }
}

/// Leaves the hall also when its asker has gone away.
struct Inside<'a>(&'a Hall);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(
    State(hall): State<Arc<Hall>>,
    UrlQuery(query): UrlQuery<BTreeMap<String, String>>,
) -> Response {
    let page: usize = query.get("page").and_then(|page| page.parse().ok()).unwrap_or(1);
    let inside = hall.inside.fetch_add(1, Ordering::SeqCst) + 1;
    hall.most_inside.fetch_max(inside, Ordering::SeqCst);
    let _inside = Inside(&hall);
    let gone_on = hall.gone_on.notified();
    tokio::pin!(gone_on);
    gone_on.as_mut().enable();
    hall.asked.lock().unwrap().push(page.to_string());
    let delay = *hall.delay.lock().unwrap();
    clock::sleep(delay).await;
    let fault = hall.faults.lock().unwrap().get_mut(&page).and_then(VecDeque::pop_front);
    match fault {
        Some(Fault::Status(status)) => return StatusCode::from_u16(status).unwrap().into_response(),
        Some(Fault::Circle) => {
            return json!({ "items": [], "next": page.to_string() }).to_string().into_response();
        }
        Some(Fault::Silence) => gone_on.await,
        None => {}
    }
    let pages = hall.pages.lock().unwrap();
    let items = pages.get(page - 1).cloned().unwrap_or_default();
    let next = (page < pages.len()).then(|| (page + 1).to_string());
    json!({ "items": items, "next": next }).to_string().into_response()
}

/// An item for sale.
pub(crate) fn item(id: &str, title: &str, price: &str) -> Value {
    json!({ "id": id, "url": format!("http://market.example/{id}"), "title": title, "price": price, "currency": "USD" })
}

struct Asking {
    base: String,
}

#[async_trait]
impl Adapter for Asking {
    fn base_url(&self) -> &str {
        &self.base
    }

    async fn page(
        &self,
        fetcher: &Fetcher,
        query: Query<'_>,
        cursor: Option<&str>,
    ) -> Result<Page, AdapterError> {
        let words = query.params.get("q").or(query.about.series.as_ref()).map(String::as_str).unwrap_or("-");
        let words = words.replace(' ', "+");
        let url = format!("{}/search?page={}&q={words}", self.base, cursor.unwrap_or("1"));
        let fetched = fetcher.get(&url).await?;
        if !fetched.status.is_success() {
            return Err(AdapterError::Permanent(format!("the market answered {}", fetched.status)));
        }
        let answer: Value = serde_json::from_slice(&fetched.body)
            .map_err(|error| AdapterError::Transient(format!("the market sent no JSON: {error}")))?;
        let items = answer["items"].as_array().unwrap().iter().map(read).collect::<Result<_, _>>()?;
        let next = answer["next"].as_str().map(str::to_owned);
        Ok(Page { items, skipped: 0, next })
    }
}

fn read(item: &Value) -> Result<Found, AdapterError> {
    let text = |name: &str| item[name].as_str().map(str::to_owned);
    let currency = Currency::new(&text("currency").unwrap()).unwrap();
    let price = Money::parse(&text("price").unwrap(), currency)
        .map_err(|error| AdapterError::Permanent(error.to_string()))?;
    Ok(Found {
        external_id: text("id"),
        url: text("url"),
        title: text("title").unwrap_or_default(),
        price,
        original: None,
        price_type: text("type").and_then(|name| PriceType::named(&name)).unwrap_or(PriceType::Ask),
        date: None,
    })
}
