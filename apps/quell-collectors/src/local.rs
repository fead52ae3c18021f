//! A local server that behaves like a marketplace: eBay's place of tokens and its Browse API, and a plain shop that answers with
//! JSON.
//!
//! It serves `quell demo prices`, where nothing may leave the machine, and the tests, which run over real HTTP, also from many
//! processes at once. It listens on the loopback address, checks what the real ones check, counts who asks and how many at a time,
//! and misbehaves when it is told to.

mod catalogue;
mod ebay;
mod fault;
mod shop;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use quell::clock::{self, RealTime, Stopwatch, Time};
use quell::quell_core::clock::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use catalogue::{Catalogue, Listing, Made};
pub use fault::{Endpoint, Fault};

const CLIENT_ID: &str = "LocalCoin-collect-PRD-1a2b3c4d5-6e7f8a9b";
const CLIENT_SECRET: &str = "PRD-local-client-secret-0123";
const SHOP_KEY: &str = "local-shop-key-4567";

/// Requests are small; a larger one is a mistake.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// More requests than these are counted, and not remembered one by one.
const ASKED_MAX: usize = 200_000;

/// How the market behaves from now on.
#[derive(Debug, Clone)]
pub struct Behaviour {
    pub catalogue: Catalogue,
    /// Before each answer with items.
    pub delay: Duration,
    /// How long a token lives.
    pub token_life: Duration,
    /// What `/robots.txt` says; nothing means that there is none.
    pub robots: Option<String>,
}

/// A request, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// When it came, by this machine's clock.
    pub at: Timestamp,
    pub endpoint: Endpoint,
    /// What was searched for.
    pub query: String,
    /// Which page or item the answer begins with.
    pub from: u64,
    pub user_agent: String,
    /// What was answered; 0 while that is not known.
    pub status: u16,
}

/// The server. It listens until it is dropped.
#[derive(Debug)]
pub struct LocalMarket {
    address: SocketAddr,
    task: JoinHandle<()>,
    market: Arc<Market>,
}

/// What the server and its owner share.
#[derive(Debug)]
struct Market {
    opened: Timestamp,
    state: Mutex<Inner>,
    changed: Notify,
}

struct Inner {
    behaviour: Behaviour,
    faults: HashMap<Endpoint, VecDeque<Fault>>,
    outages: HashMap<Endpoint, Fault>,
    tokens: HashMap<String, Stopwatch>,
    tokens_made: u64,
    asked: Vec<Asked>,
    counts: HashMap<Endpoint, u64>,
    at_once: usize,
    most_at_once: usize,
    alike: HashMap<String, usize>,
    most_alike: usize,
}

impl LocalMarket {
    pub async fn start(catalogue: Catalogue) -> io::Result<LocalMarket> {
        let behaviour = Behaviour {
            catalogue,
            delay: Duration::ZERO,
            token_life: Duration::from_secs(7200),
            robots: Some("User-agent: *\nDisallow: /private/\n".into()),
        };
        let inner = Inner {
            behaviour,
            faults: HashMap::new(),
            outages: HashMap::new(),
            tokens: HashMap::new(),
            tokens_made: 0,
            asked: Vec::new(),
            counts: HashMap::new(),
            at_once: 0,
            most_at_once: 0,
            alike: HashMap::new(),
            most_alike: 0,
        };
        let opened = RealTime::new().wall();
        let market = Arc::new(Market { opened, state: Mutex::new(inner), changed: Notify::new() });
        let router = Router::new().fallback(serve).with_state(market.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "a local server has stopped");
            }
        });
        Ok(LocalMarket { address, task, market })
    }

    /// Where it listens: what `url` of the adapter `ebay` wants to know.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where the shop searches, with the places of a template.
    pub fn shop_url(&self) -> String {
        format!("{}{}?q={{query}}&page={{page}}&limit={{limit}}", self.url(), shop::PATH)
    }

    /// Both sources as they stand in a configuration. Their secrets are in [`LocalMarket::env`].
    pub fn settings(&self) -> String {
        format!(
            "[prices.sources.ebay]\nadapter = \"ebay\"\nurl = \"{}\"\nclient_id_env = \"LOCAL_EBAY_ID\"\n\
             client_secret_env = \"LOCAL_EBAY_SECRET\"\ncurrency = \"USD\"\n\n\
             [prices.sources.shop]\nurl = \"{}\"\nheaders = {{ \"X-Api-Key\" = \"{{secret}}\" }}\n\
             secret_env = \"LOCAL_SHOP_KEY\"\nitems = \"/results\"\n\
             fields = {{ id = \"/sku\", title = \"/name\", price = \"/price/amount\", currency = \"/price/currency\", \
             url = \"/link\", date = \"/listed\", type = \"/state\" }}\n\
             types = {{ BUY_NOW = \"ask\", ENDED = \"sold\", BIDDING = \"bid\" }}\n\
             paging = {{ by = \"page\", size = 20, total = \"/total\" }}\n",
            self.url(),
            self.shop_url()
        )
    }

    /// The variables that those settings name.
    pub fn env() -> [(&'static str, &'static str); 3] {
        [("LOCAL_EBAY_ID", CLIENT_ID), ("LOCAL_EBAY_SECRET", CLIENT_SECRET), ("LOCAL_SHOP_KEY", SHOP_KEY)]
    }

    /// From the next request on.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.market.lock().behaviour);
    }

    /// The next request to this endpoint without a fault of its own gets this one.
    pub fn fail_next(&self, endpoint: Endpoint, fault: Fault) {
        self.market.lock().faults.entry(endpoint).or_default().push_back(fault);
    }

    /// Every request to this endpoint gets this fault until it is taken back.
    pub fn fail_always(&self, endpoint: Endpoint, fault: Option<Fault>) {
        let mut inner = self.market.lock();
        match fault {
            Some(fault) => inner.outages.insert(endpoint, fault),
            None => inner.outages.remove(&endpoint),
        };
    }

    /// No token that was given out is good any more.
    pub fn withdraw_tokens(&self) {
        self.market.lock().tokens.clear();
    }

    /// All requests so far, in the order in which they came.
    pub fn asked(&self) -> Vec<Asked> {
        self.market.lock().asked.clone()
    }

    /// How many requests there were to an endpoint.
    pub fn count(&self, endpoint: Endpoint) -> u64 {
        self.market.lock().counts.get(&endpoint).copied().unwrap_or(0)
    }

    /// How many requests for items were being answered at one time, at the most.
    pub fn most_at_once(&self) -> usize {
        self.market.lock().most_at_once
    }

    /// The same of requests that searched for the same.
    pub fn most_alike_at_once(&self) -> usize {
        self.market.lock().most_alike
    }

    /// Waits until the requests look like this; put a time limit around it.
    pub async fn wait_until(&self, like: impl Fn(&[Asked]) -> bool) {
        loop {
            let changed = self.market.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if like(&self.market.lock().asked) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for LocalMarket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Market {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Writes a request down and says what goes wrong with it.
    fn note(&self, parts: &Parts, endpoint: Endpoint, query: &str, from: u64) -> (usize, Option<Fault>) {
        let user_agent = header_text(parts, &header::USER_AGENT).unwrap_or_default().to_owned();
        let (at, query) = (RealTime::new().wall(), query.to_owned());
        let mut inner = self.lock();
        *inner.counts.entry(endpoint).or_default() += 1;
        let number = inner.asked.len();
        if number < ASKED_MAX {
            inner.asked.push(Asked { at, endpoint, query, from, user_agent, status: 0 });
        }
        let fault = inner.faults.get_mut(&endpoint).and_then(VecDeque::pop_front);
        let fault = fault.or_else(|| inner.outages.get(&endpoint).cloned());
        drop(inner);
        self.changed.notify_waiters();
        (number, fault)
    }

    fn answered(&self, number: usize, status: StatusCode) {
        if let Some(asked) = self.lock().asked.get_mut(number) {
            asked.status = status.as_u16();
        }
        self.changed.notify_waiters();
    }
}

/// One request for items that is being answered; its end is seen even if the client goes away.
struct Busy {
    market: Arc<Market>,
    query: String,
}

impl Busy {
    fn with(market: &Arc<Market>, query: &str) -> Busy {
        let mut guard = market.lock();
        let inner = &mut *guard;
        inner.at_once += 1;
        inner.most_at_once = inner.most_at_once.max(inner.at_once);
        let alike = inner.alike.entry(query.to_owned()).or_default();
        *alike += 1;
        inner.most_alike = inner.most_alike.max(*alike);
        drop(guard);
        Busy { market: market.clone(), query: query.to_owned() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut inner = self.market.lock();
        inner.at_once -= 1;
        if let Some(alike) = inner.alike.get_mut(&self.query) {
            *alike -= 1;
            if *alike == 0 {
                inner.alike.remove(&self.query);
            }
        }
    }
}

async fn serve(State(market): State<Arc<Market>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return json_answer(StatusCode::PAYLOAD_TOO_LARGE, &json!({}).to_string());
    };
    match (&parts.method, parts.uri.path()) {
        (&Method::POST, ebay::TOKEN_PATH) => ebay::token(&market, &parts, &body).await,
        (&Method::GET, ebay::SEARCH_PATH) => ebay::search(&market, &parts).await,
        (&Method::GET, shop::PATH) => shop::search(&market, &parts).await,
        (&Method::GET, "/robots.txt") => robots(&market, &parts).await,
        _ => json_answer(StatusCode::NOT_FOUND, &json!({"message": "not found"}).to_string()),
    }
}

async fn robots(market: &Arc<Market>, parts: &Parts) -> Response<Body> {
    let (number, fault) = market.note(parts, Endpoint::Robots, "", 0);
    let robots = market.lock().behaviour.robots.clone();
    let response = match (fault, robots) {
        (Some(fault), text) => fault.spoil(text.unwrap_or_default()).await,
        (None, Some(text)) => with_headers(StatusCode::OK, &[("content-type", "text/plain")], text),
        (None, None) => with_headers(StatusCode::NOT_FOUND, &[], "nothing here"),
    };
    market.answered(number, response.status());
    response
}

/// What a caller is told who did something wrong.
type Refusal = (StatusCode, String);

/// An answer with items: after the delay, and with the fault if there is one.
async fn items(
    market: &Arc<Market>,
    (number, fault): (usize, Option<Fault>),
    query: &str,
    page: impl FnOnce(&Catalogue) -> Result<String, Refusal>,
) -> Response<Body> {
    let _busy = Busy::with(market, query);
    let behaviour = market.lock().behaviour.clone();
    if !behaviour.delay.is_zero() {
        clock::sleep(behaviour.delay).await;
    }
    let response = match (page(&behaviour.catalogue), fault) {
        (Ok(text), Some(fault)) => fault.spoil(text).await,
        (Ok(text), None) => json_answer(StatusCode::OK, &catalogue::with_numbers(&text)),
        (Err((status, said)), _) => json_answer(status, &said),
    };
    market.answered(number, response.status());
    response
}

fn json_answer(status: StatusCode, body: &str) -> Response<Body> {
    with_headers(status, &[("content-type", "application/json")], body.to_owned())
}

/// Headers that no answer can carry are left out.
fn with_headers(status: StatusCode, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    for (name, value) in headers {
        let pair = (header::HeaderName::from_bytes(name.as_bytes()), header::HeaderValue::from_str(value));
        if let (Ok(name), Ok(value)) = pair {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn header_text<'a>(parts: &'a Parts, name: &header::HeaderName) -> Option<&'a str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}

/// A value of the query of a URL, or of a form.
fn pair(form: &[u8], name: &str) -> Option<String> {
    form_urlencoded::parse(form).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
