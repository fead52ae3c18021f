//! The governed client of one run: cache, then limiter, then request, then breaker.
//!
//! A handler whose run asks a source makes its requests through a [`Fetcher`]. In this order:
//!
//! 1. The guard reads the URL. A forbidden one costs nothing.
//! 2. The cache. A hit touches neither bucket nor breaker. Of all who want one answer at a time, in all processes, one
//!    fetches it; the others wait for it, as long as that one's flight lasts.
//! 3. The limiter. The claim of the run has paid for its first request; every further one takes its own token. If none
//!    comes within a second, the run is handed back: [`Fetcher::outcome`] says so as an [`Outcome`].
//! 4. The request (`call.rs`).
//! 5. The breaker. Every request is reported by itself, as fine or as the source's fault: a time-out, a lost connection,
//!    429 and 5xx are its fault, any other answer is an answer.
//!
//! [`Fetcher::open`] does the same for an answer that is read while it comes, without the cache: the status tells a fault,
//! and whether all is fine shows at the end, so that a source whose answers always break off is not taken for a good one.
//!
//! A run that made no request gives its token back; [`Fetcher::report`] is what its outcome says of the source.
//!
//! What several requests together bring can be kept as one value under a key of the handler's own ([`Fetcher::recall`]).
//!
//! A run that asks a second party has a second client for it ([`Fetcher::of_source`]): every request takes a token there
//! and is reported there, nothing is kept, and of the run's own source it says nothing.
//!
//! A handler whose future is dropped while it fetches leaves its flight behind; it ends by itself after half a minute.

mod recall;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use quell_core::batch::{Batch, RunId};
use quell_core::clock::Timestamp;
use quell_core::error::{ErrorKind, StoreError};
use quell_core::event::SourceName;
use quell_core::limits;
use quell_core::outcome::Outcome;
use quell_core::source::{Because, FaultKind, SourceFault, SourceReport, SourceVerdict};
use quell_core::store::{SourceAction, SourceAnswer, SourceRequest, Store};

use self::recall::Patience;
use crate::cache::{Kept, key_of};
use crate::call::{Call, CallError, Http, Opened, Reply};
use crate::clock;
use crate::guard::Refused;

/// The pauses between the questions for a token: one second together, as the contract says, and the first ones short,
/// because a fast source has its next token in a few milliseconds.
const TOKEN_PAUSES: [Duration; 6] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(150),
    Duration::from_millis(250),
    Duration::from_millis(250),
    Duration::from_millis(250),
];

/// The first and the longest pause between two looks at an answer that somebody else fetches.
const FLIGHT_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Two flights: whoever waited so long has met two that failed, and gives its lane back rather than wait in a line.
const FLIGHT_WAIT_MAX: Duration = limits::CACHE_FLIGHT.saturating_mul(2);

/// A source that says "again at once" after a fault is left alone for this long.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// How much of an answer that tells a fault is kept with the error: enough for what a source says of its reasons.
const FAULT_BODY_BYTES_MAX: usize = 64 * 1024;

/// Tasks of one run that want the same answer take turns; two keys that share a turn only wait for each other.
const TURNS: usize = 16;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum FetchError {
    /// Our own: a forbidden URL, a request that cannot be sent, an answer that is too large.
    #[error(transparent)]
    Own(CallError),
    /// The source's: it has been reported.
    #[error("{text}")]
    Fault {
        fault: SourceFault,
        text: String,
        /// What it answered, if it did: 429 or 5xx, with the beginning of the body.
        reply: Option<Box<Reply>>,
    },
    /// No further token within a second; the source will have one at this moment at the earliest.
    #[error("no further request before {until}: the source {}", because.phrase())]
    NoToken { until: Timestamp, because: Because },
    /// Others have been fetching the same answer for too long.
    #[error("others were fetching the same answer and did not get it in time")]
    Busy,
    /// The limits and kept answers are in the store, and it could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Refused> for FetchError {
    fn from(refused: Refused) -> Self {
        FetchError::Own(CallError::Refused(refused))
    }
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The source, by a request.
    Source,
    /// The cache; nobody was asked.
    Cache,
    /// The cache, after the source said that nothing has changed.
    Revalidated,
}

/// An answer. Any status but 429 and 5xx is one: redirects are not followed, and "not found" is for the handler to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// What the other side made of it.
    pub status: StatusCode,
    /// Of an answer from the cache, only the headers that are kept.
    pub headers: HeaderMap,
    /// All of it.
    pub body: Vec<u8>,
    /// Whether it came over the network.
    pub origin: Origin,
}

/// The client of one run. Its tasks may share it.
pub struct Fetcher {
    http: Http,
    store: Arc<dyn Store>,
    run_id: RunId,
    token: u64,
    governed: bool,
    /// Asked in place of the run's own source.
    other: Option<SourceName>,
    ttl: Option<Duration>,
    /// Answers to single requests are kept.
    keeps: bool,
    /// The token that came with the claim has not been used yet.
    prepaid: AtomicBool,
    made: AtomicUsize,
    /// A fault that the store could not be told of: the outcome says it.
    unreported: Mutex<Option<SourceFault>>,
    turns: [tokio::sync::Mutex<()>; TURNS],
}

impl Fetcher {
    /// For the run of this batch. One that names no source is not governed: it is guarded and bounded, and no more.
    pub fn new(http: Http, store: Arc<dyn Store>, batch: &Batch) -> Self {
        Fetcher {
            http,
            store,
            run_id: batch.run_id,
            token: batch.token,
            governed: batch.source.is_some(),
            other: None,
            ttl: None,
            keeps: true,
            prepaid: AtomicBool::new(true),
            made: AtomicUsize::new(0),
            unreported: Mutex::new(None),
            turns: Default::default(),
        }
    }

    /// For requests of this run to another declared source than its own. The outcome of the run is still finished by the
    /// client of its own source, if it has one: `own.finish(other.outcome(&error))`.
    pub fn of_source(http: Http, store: Arc<dyn Store>, batch: &Batch, name: SourceName) -> Self {
        Fetcher {
            governed: true,
            other: Some(name),
            prepaid: AtomicBool::new(false),
            ..Fetcher::new(http, store, batch)
        }
    }

    /// Keeps answers for at most this long, and is content with none that is older. Without it the declaration of the
    /// source says how long.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// What most handlers want.
    pub async fn get(&self, url: &str) -> Result<Fetched, FetchError> {
        self.fetch(Call::get(url)).await
    }

    /// Answers from the cache or by a request.
    pub async fn fetch(&self, call: Call) -> Result<Fetched, FetchError> {
        let url = self.http.admit(&call.url)?;
        let kept = self.keeps && self.governed && self.other.is_none();
        match key_of(&call, &url).filter(|_| kept) {
            Some(key) => self.cached(&key, &call).await,
            None => Ok(fetched(self.request(&call).await?, Origin::Source)),
        }
    }

    /// Makes a request whose answer is read while it comes; never from the cache, and never kept. Dropping the answer
    /// closes the connection, and says nothing of the source.
    pub async fn open(&self, call: Call) -> Result<Streamed<'_>, FetchError> {
        self.http.admit(&call.url)?;
        let prepaid = self.spend().await?;
        let opened = match self.http.open(call).await {
            Ok(opened) => opened,
            Err(error) => return Err(self.unanswered(error, prepaid).await),
        };
        match verdict_of(opened.status, &opened.headers, clock::wall()) {
            SourceVerdict::Fine => Ok(Streamed { fetcher: self, opened, told: false }),
            SourceVerdict::Fault(fault) => {
                self.tell(SourceVerdict::Fault(fault)).await?;
                Err(faulty(fault, opened.beginning(FAULT_BODY_BYTES_MAX).await))
            }
        }
    }

    /// The right to one request that is made by other means: [`Fetcher::tell_source`] says afterwards what it has shown.
    pub async fn take_token(&self) -> Result<(), FetchError> {
        self.spend().await.map(drop)
    }

    /// What a request by other means has shown.
    pub async fn tell_source(&self, verdict: SourceVerdict) -> Result<(), FetchError> {
        self.tell(verdict).await
    }

    /// What the run's outcome says of its source; nothing, if it is another's.
    pub fn report(&self) -> SourceReport {
        match *self.unreported() {
            _ if self.other.is_some() => SourceReport::Reported,
            Some(fault) => SourceReport::Fault(fault),
            None if self.made.load(Ordering::SeqCst) > 0 => SourceReport::Reported,
            None => SourceReport::Unused,
        }
    }

    /// The outcome with what is to be said of the source.
    pub fn finish(&self, outcome: Outcome) -> Outcome {
        Outcome { source: self.report(), ..outcome }
    }

    /// What becomes of a run that an error ends: without a token it is handed back until there is one, a fault of the
    /// source or of the store is tried again, and what is wrong with the request itself fails.
    pub fn outcome(&self, error: &FetchError) -> Outcome {
        let text = error.to_string();
        match error {
            FetchError::NoToken { .. } if self.other.is_none() => Outcome::starved(text),
            FetchError::NoToken { .. } | FetchError::Busy => self.finish(Outcome::release(text)),
            FetchError::Fault { .. } | FetchError::Store(_) => self.finish(Outcome::retry(text)),
            FetchError::Own(_) => self.finish(Outcome::failed(text)),
        }
    }

    async fn cached(&self, key: &str, call: &Call) -> Result<Fetched, FetchError> {
        // Keys end with a digest, so the last byte spreads them.
        let turn = key.as_bytes().last().map_or(0, |byte| usize::from(*byte) % TURNS);
        let _turn = self.turns[turn].lock().await;
        let mut patience = Patience::new();
        loop {
            match self.look_up(key, call).await? {
                Recalled::Answer(reply) => return Ok(fetched(reply, Origin::Cache)),
                Recalled::Off => return Ok(fetched(self.request(call).await?, Origin::Source)),
                Recalled::Fly(stale) => {
                    let landed = self.ask_source(call, stale).await;
                    let keep = landed.as_ref().ok().and_then(|landed| landed.keep.as_ref());
                    self.land(key, keep).await?;
                    return landed.map(|landed| landed.fetched);
                }
                Recalled::Replace => {
                    let landed = self.ask_source(call, None).await?;
                    if let Some(kept) = &landed.keep {
                        self.land(key, Some(kept)).await?;
                    }
                    return Ok(landed.fetched);
                }
                Recalled::Wait => patience.pause().await?,
            }
        }
    }

    /// One look into the cache. An answer that limits its own freshness is asked for a second time, with that limit: by
    /// its clock the store says whether it still serves, and whose turn it is to ask the source if not.
    async fn look_up(&self, key: &str, call: &Call) -> Result<Recalled, FetchError> {
        let recall = |ttl| SourceAction::Recall { key: key.to_owned(), ttl };
        let kept = match self.ask(recall(self.ttl)).await? {
            SourceAnswer::Hit(value) => Kept::read(value).filter(|kept| kept.fits(call)),
            SourceAnswer::Fetch { until: Some(_) } => return Ok(Recalled::Fly(None)),
            SourceAnswer::Fetch { until: None } => return Ok(Recalled::Off),
            _ => return Ok(Recalled::Wait),
        };
        let Some(kept) = kept else { return Ok(Recalled::Replace) };
        let served = match kept.fresh_for(call) {
            None => Some(kept),
            Some(age) => match self.ask(recall(Some(self.bounded(age)))).await? {
                SourceAnswer::Hit(value) => Kept::read(value).filter(|kept| kept.fits(call)),
                SourceAnswer::Fetch { .. } => return Ok(Recalled::Fly(Some(kept))),
                _ => None,
            },
        };
        Ok(match served.and_then(|kept| kept.reply()) {
            Some(reply) => Recalled::Answer(reply),
            None => Recalled::Wait,
        })
    }

    /// Asks whether an old answer has changed, or for a new one.
    async fn ask_source(&self, call: &Call, stale: Option<Kept>) -> Result<Landed, FetchError> {
        if let Some(kept) = stale {
            let reply = self.request(&kept.question(call)).await?;
            if reply.status != StatusCode::NOT_MODIFIED {
                return Ok(landed(call, reply));
            }
            if kept.is_meant_by(&reply) {
                let (kept, keep) = kept.renewed(&reply, clock::wall());
                if let Some(reply) = kept.reply() {
                    let fetched = fetched(reply, Origin::Revalidated);
                    return Ok(Landed { fetched, keep: keep.then_some(kept) });
                }
            }
            // It spoke of another version than ours, or ours cannot be read: ask for the whole.
        }
        Ok(landed(call, self.request(call).await?))
    }

    /// Ends a flight with an answer that is kept as long as it is worth it.
    async fn land(&self, key: &str, kept: Option<&Kept>) -> Result<(), FetchError> {
        let value = kept.map(|kept| {
            let ttl = kept.worth().map(|worth| self.bounded(worth)).or(self.ttl);
            (kept.value(), ttl)
        });
        self.land_value(key, value).await
    }

    /// Ends a flight. An answer that is not kept is forgotten, so that the others need not wait. The answer is in hand
    /// by now; a store that is away for a moment takes nothing from it.
    async fn land_value(
        &self,
        key: &str,
        value: Option<(serde_json::Value, Option<Duration>)>,
    ) -> Result<(), FetchError> {
        if let Some((value, ttl)) = value {
            let keep = SourceAction::Keep { key: key.to_owned(), value, ttl };
            match self.ask(keep).await {
                Err(error) if error.kind == ErrorKind::Limit => {}
                other => return bearable(other),
            }
        }
        bearable(self.ask(SourceAction::Forget { key: key.to_owned() }).await)
    }

    fn bounded(&self, age: Duration) -> Duration {
        self.ttl.map_or(age, |ttl| ttl.min(age))
    }

    /// Limiter, request, breaker.
    async fn request(&self, call: &Call) -> Result<Reply, FetchError> {
        let prepaid = self.spend().await?;
        let reply = match self.http.call(call.clone()).await {
            Ok(reply) => reply,
            Err(error) => return Err(self.unanswered(error, prepaid).await),
        };
        let verdict = verdict_of(reply.status, &reply.headers, clock::wall());
        self.tell(verdict).await?;
        match verdict {
            SourceVerdict::Fine => Ok(reply),
            SourceVerdict::Fault(fault) => Err(faulty(fault, reply)),
        }
    }

    /// Takes the right to one request and counts it, before it is sent: a handler that is stopped meanwhile has used its
    /// token. True when the claim had paid for it.
    async fn spend(&self) -> Result<bool, FetchError> {
        let prepaid = self.take().await?;
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(prepaid)
    }

    /// What it means that there is no answer: it is reported, unless nothing was sent.
    async fn unanswered(&self, error: CallError, prepaid: bool) -> FetchError {
        let Some(verdict) = verdict_without(&error) else {
            self.made.fetch_sub(1, Ordering::SeqCst);
            self.prepaid.fetch_or(prepaid, Ordering::SeqCst);
            return FetchError::Own(error);
        };
        if let Err(lost) = self.tell(verdict).await {
            return lost;
        }
        match verdict {
            SourceVerdict::Fine => FetchError::Own(error),
            SourceVerdict::Fault(fault) => FetchError::Fault { fault, text: error.to_string(), reply: None },
        }
    }

    /// The right to one request; true when the claim had paid for it.
    async fn take(&self) -> Result<bool, FetchError> {
        if !self.governed || self.prepaid.swap(false, Ordering::SeqCst) {
            return Ok(true);
        }
        let mut pauses = TOKEN_PAUSES.into_iter();
        loop {
            let SourceAnswer::Wait { until, because } = self.ask(SourceAction::Take).await? else {
                return Ok(false);
            };
            // A token comes by itself. An open breaker is tried by the next claim, not by a run that began before.
            let comes = matches!(because, Because::RateLimited | Because::RetryAfter);
            match pauses.next().filter(|_| comes) {
                Some(pause) => clock::sleep(pause).await,
                None => return Err(FetchError::NoToken { until, because }),
            }
        }
    }

    /// Reports one request. What the store could not be told of a fault is said by the outcome; if it was told and only
    /// its answer got lost, the fault counts twice, which only makes the breaker more careful.
    async fn tell(&self, verdict: SourceVerdict) -> Result<(), FetchError> {
        if !self.governed {
            return Ok(());
        }
        let told = self.ask(SourceAction::Report(verdict)).await;
        *self.unreported() = match (verdict, &told) {
            (SourceVerdict::Fault(fault), Err(_)) => Some(fault),
            _ => None,
        };
        bearable(told)
    }

    async fn ask(&self, action: SourceAction) -> Result<SourceAnswer, StoreError> {
        let (run_id, token, source) = (self.run_id, self.token, self.other.clone());
        self.store.source(SourceRequest { run_id, token, source, action }).await
    }

    fn unreported(&self) -> std::sync::MutexGuard<'_, Option<SourceFault>> {
        self.unreported.lock().expect("nothing panics while it is locked")
    }
}

/// An answer that is read while it comes. Any status but 429 and 5xx is one.
pub struct Streamed<'a> {
    fetcher: &'a Fetcher,
    opened: Opened,
    /// The source has its verdict.
    told: bool,
}

impl Streamed<'_> {
    /// What the other side made of it.
    pub fn status(&self) -> StatusCode {
        self.opened.status
    }

    /// What came along.
    pub fn headers(&self) -> &HeaderMap {
        &self.opened.headers
    }

    /// The next piece; nothing at the end, which is when the source is told to be fine. One that breaks off or takes too
    /// long is its fault.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        match self.opened.chunk().await {
            Ok(Some(chunk)) => Ok(Some(chunk)),
            Ok(None) => {
                self.fine().await?;
                Ok(None)
            }
            Err(error) if self.told => Err(FetchError::Own(error)),
            Err(error) => {
                self.told = true;
                Err(self.fetcher.unanswered(error, false).await)
            }
        }
    }

    /// For a reader that has all it wants before the end.
    pub async fn enough(mut self) -> Result<(), FetchError> {
        self.fine().await
    }

    async fn fine(&mut self) -> Result<(), FetchError> {
        if std::mem::replace(&mut self.told, true) {
            return Ok(());
        }
        self.fetcher.tell(SourceVerdict::Fine).await
    }
}

/// What a look into the cache says.
enum Recalled {
    Answer(Reply),
    /// Fetch it for all who wait: ask about this old one, or for a new one.
    Fly(Option<Kept>),
    /// Another variant is kept, or a form that is not ours: fetch this one, and keep it in the place of that.
    Replace,
    /// The source has no cache.
    Off,
    /// Somebody else is fetching it, or has just done so.
    Wait,
}

/// What a flight brought.
struct Landed {
    fetched: Fetched,
    keep: Option<Kept>,
}

fn landed(call: &Call, reply: Reply) -> Landed {
    let keep = Kept::new(call, &reply, clock::wall());
    Landed { fetched: fetched(reply, Origin::Source), keep }
}

fn fetched(reply: Reply, origin: Origin) -> Fetched {
    let Reply { status, headers, body } = reply;
    Fetched { status, headers, body, origin }
}

/// A store that is away for a moment is no reason to lose an answer; a lost lease is.
fn bearable(answer: Result<SourceAnswer, StoreError>) -> Result<(), FetchError> {
    match answer {
        Err(error) if !error.is_temporary() => Err(FetchError::Store(error)),
        _ => Ok(()),
    }
}

/// The error of an answer that tells a fault.
fn faulty(fault: SourceFault, mut reply: Reply) -> FetchError {
    reply.body.truncate(FAULT_BODY_BYTES_MAX);
    let text = format!("the source answered {}", reply.status);
    FetchError::Fault { fault, text, reply: Some(Box::new(reply)) }
}

/// What an answer has shown of its source.
fn verdict_of(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> SourceVerdict {
    match SourceFault::of_status(status.as_u16()) {
        Some(fault) => {
            let retry_after = retry_after(headers, now);
            SourceVerdict::Fault(SourceFault { retry_after, ..fault })
        }
        None => SourceVerdict::Fine,
    }
}

/// What a request without an answer has shown of its source; none when nothing was sent.
fn verdict_without(error: &CallError) -> Option<SourceVerdict> {
    let fault = |kind| SourceVerdict::Fault(SourceFault::new(kind));
    match error {
        CallError::TimedOut(_) => Some(fault(FaultKind::TimeOut)),
        CallError::Connect(_) | CallError::Broken(_) => Some(fault(FaultKind::Connection)),
        // It did answer; that we do not want so much is not its fault.
        CallError::TooLarge { .. } => Some(SourceVerdict::Fine),
        CallError::Refused(_) | CallError::Invalid(_) => None,
    }
}

/// `Retry-After` as a time span within our bounds. A date is compared with the answer's own, so that only the source's
/// clock counts. A time that has passed is the shortest wait; what is neither a number nor a date says nothing.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let date = |name| text(name).and_then(|text| httpdate::parse_http_date(text).ok());
    let said = text(header::RETRY_AFTER)?;
    let digits = said.strip_prefix('-').unwrap_or(said);
    let wait = if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let then = date(header::RETRY_AFTER)?;
        then.duration_since(date(header::DATE).unwrap_or(now)).unwrap_or_default()
    } else if said == digits {
        Duration::from_secs(digits.parse().unwrap_or(u64::MAX))
    } else {
        Duration::ZERO
    };
    Some(wait.clamp(RETRY_AFTER_MIN, limits::SOURCE_RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn retry_after_is_read_in_both_forms_and_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |said: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(said).unwrap());
            if let Some(date) = date {
                headers.insert(header::DATE, HeaderValue::from_str(date).unwrap());
            }
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        let day = 24 * 3600;
        let cases = [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("0", Some(1)),
            ("1000000000000", Some(day)),
            ("99999999999999999999999999", Some(day)),
            ("-5", Some(1)),
            ("-", None),
            ("soon", None),
            ("", None),
            ("1.5", None),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(1)),
            ("Sat, 06 Nov 2094 08:49:00 GMT", Some(day)),
        ];
        for (said, expected) in cases {
            assert_eq!(read(said, None), expected, "{said}");
        }
        // The server's clock is an hour behind ours: its own date counts.
        let date = Some("Sun, 06 Nov 1994 07:49:37 GMT");
        assert_eq!(read("Sun, 06 Nov 1994 07:50:07 GMT", date), Some(30));
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn only_time_outs_lost_connections_429_and_5xx_are_the_sources_fault() {
        let kind = |verdict: Option<SourceVerdict>| match verdict {
            Some(SourceVerdict::Fault(fault)) => Some(fault.kind),
            _ => None,
        };
        let status = |code| {
            let status = StatusCode::from_u16(code).unwrap();
            kind(Some(verdict_of(status, &HeaderMap::new(), SystemTime::UNIX_EPOCH)))
        };
        for code in [200, 204, 301, 304, 400, 401, 403, 404, 408, 410, 425, 428, 431] {
            assert_eq!(status(code), None, "{code}");
        }
        assert_eq!(status(429), Some(FaultKind::TooManyRequests));
        for code in [500, 502, 503, 504, 599] {
            assert_eq!(status(code), Some(FaultKind::ServerError), "{code}");
        }
        let without = |error: CallError| kind(verdict_without(&error));
        assert_eq!(without(CallError::TimedOut(String::new())), Some(FaultKind::TimeOut));
        assert_eq!(without(CallError::Connect(String::new())), Some(FaultKind::Connection));
        assert_eq!(without(CallError::Broken(String::new())), Some(FaultKind::Connection));
        assert_eq!(without(CallError::TooLarge { max: 1 }), None);
        assert_eq!(verdict_without(&CallError::Invalid(String::new())), None);
    }
}
