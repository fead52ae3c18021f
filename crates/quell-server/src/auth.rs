//! Who asks, and what they may do.
//!
//! Every request under `/v1` is first given a [`Principal`] (401 without one), and every group of routes demands a scope
//! (403 without it): what stands in no group cannot be reached. Without any token in the store a server that listens on
//! loopback only lets everybody do everything; one that can be reached from elsewhere does not start.
//!
//! A credential may be limited to tenants and queues. What it names expressly and may not touch is 403; what belongs to
//! somebody else is 404, as if it were not there. No tenant is the empty text; a credential with exactly one tenant means
//! that one when the request names none.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use quell::Presence;
use quell::clock::Stopwatch;
use quell::quell_core::audit::signed;
use quell::quell_core::event::{LaneKey, QueueName, Tenant};
use quell::tokens::{ApiToken, Presented, Scope};
use tokio::sync::Mutex as AsyncMutex;

use crate::accept::Peer;
use crate::app::App;
use crate::error::{Answer, Problem, unknown_queue};
use crate::limits;

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// Nothing where no tokens are needed.
    token: Option<Arc<ApiToken>>,
    /// Why they ask for this, if they say so.
    reason: Option<Arc<str>>,
}

/// In which a program says why it does something by hand; for the audit trail.
const REASON: &str = "quell-reason";

impl Principal {
    /// On loopback, while there are no tokens.
    pub(crate) fn anybody() -> Self {
        Principal { token: None, reason: None }
    }

    pub(crate) fn of(token: Arc<ApiToken>) -> Self {
        Principal { token: Some(token), reason: None }
    }

    /// The same with the reason that a request gives.
    fn because(mut self, headers: &HeaderMap) -> Self {
        let given = headers.get(REASON).map(|value| String::from_utf8_lossy(value.as_bytes()));
        self.reason = given.map(Arc::from);
        self
    }

    /// For the audit trail.
    pub(crate) fn actor(&self) -> String {
        let who =
            self.token.as_ref().map_or_else(|| "api".to_owned(), |token| format!("token:{}", token.name));
        signed(&who, self.reason.as_deref())
    }

    /// The token's name, for people; nothing where none is needed.
    pub(crate) fn name(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.name.as_str())
    }

    /// Which credential this is, for what only its bearer may repeat.
    pub(crate) fn id(&self) -> &str {
        self.token.as_ref().map_or("pull", |token| &token.id)
    }

    pub(crate) fn token_id(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.id.as_str())
    }

    pub(crate) fn allows(&self, wanted: Scope) -> bool {
        self.token.as_ref().is_none_or(|token| token.allows(wanted))
    }

    fn tenants(&self) -> Option<&BTreeSet<Tenant>> {
        self.token.as_ref().map(|token| &token.tenants).filter(|set| !set.is_empty())
    }

    fn queues(&self) -> Option<&BTreeSet<QueueName>> {
        self.token.as_ref().map(|token| &token.queues).filter(|set| !set.is_empty())
    }

    /// The tenant of a request that belongs to one: the named one, else the credential's own.
    pub(crate) fn tenant(&self, named: Option<&str>) -> Answer<Tenant> {
        Ok(self.tenant_filter(named)?.unwrap_or_else(Tenant::none))
    }

    /// The tenant of a listing; nothing means all of them, which only an unlimited credential may see.
    pub(crate) fn tenant_filter(&self, named: Option<&str>) -> Answer<Option<Tenant>> {
        let named = named.map(Tenant::new).transpose()?;
        let Some(own) = self.tenants() else { return Ok(named) };
        match named {
            Some(tenant) if own.contains(&tenant) => Ok(Some(tenant)),
            Some(_) => Err(Problem::forbidden("this token is for another tenant").at("tenant")),
            None if own.len() == 1 => Ok(own.first().cloned()),
            None => Err(Problem::bad_request("this token is for several tenants: name one").at("tenant")),
        }
    }

    /// A queue that the request names.
    pub(crate) fn queue(&self, queue: &QueueName) -> Answer<()> {
        match self.queues() {
            Some(own) if !own.contains(queue) => {
                Err(Problem::forbidden("this token is for other queues").at("queue"))
            }
            _ => Ok(()),
        }
    }

    /// The queue of a listing; nothing means all of them.
    pub(crate) fn queue_filter(&self, named: Option<&str>) -> Answer<Option<QueueName>> {
        let named = named.map(QueueName::new).transpose()?;
        let Some(own) = self.queues() else { return Ok(named) };
        match named {
            Some(queue) => self.queue(&queue).map(|()| Some(queue)),
            None if own.len() == 1 => Ok(own.first().cloned()),
            None => Err(Problem::bad_request("this token is for several queues: name one").at("queue")),
        }
    }

    /// Whether something of this lane may be seen at all.
    pub(crate) fn sees(&self, lane: &LaneKey) -> bool {
        self.sees_of(&lane.tenant, &lane.queue)
    }

    pub(crate) fn sees_of(&self, tenant: &Tenant, queue: &QueueName) -> bool {
        self.tenants().is_none_or(|own| own.contains(tenant))
            && self.queues().is_none_or(|own| own.contains(queue))
    }

    /// Whether what belongs to no queue may be seen: sources of this tenant.
    pub(crate) fn sees_tenant(&self, tenant: &Tenant) -> bool {
        self.tenants().is_none_or(|own| own.contains(tenant))
    }

    /// Declarations and pauses that concern every tenant are for those who are not limited to some.
    pub(crate) fn unlimited(&self) -> Answer<()> {
        match (self.tenants(), self.queues()) {
            (None, None) => Ok(()),
            _ => Err(Problem::forbidden(
                "this concerns all tenants and queues, and the token is limited to some",
            )),
        }
    }

    /// A source governs lanes of every queue, and a shared one those of every tenant.
    pub(crate) fn source(&self, shared: bool) -> Answer<()> {
        match (self.queues(), shared) {
            (None, false) => Ok(()),
            _ => self.unlimited(),
        }
    }

    /// A worker for all tenants is the business of those who are for all.
    pub(crate) fn sees_worker(&self, about: &Presence) -> bool {
        match &about.tenant {
            Some(tenant) => self.sees_tenant(tenant),
            None => self.tenants().is_none(),
        }
    }

    /// The lane that a request names.
    pub(crate) fn lane(&self, tenant: Option<&str>, queue: &str, key: &str) -> Answer<LaneKey> {
        let queue = QueueName::new(queue)?;
        self.queue(&queue).map_err(|_| unknown_queue(queue.as_str()))?;
        let key = quell::quell_core::event::Key::new(key)?;
        Ok(LaneKey::new(queue, key).of(self.tenant(tenant)?))
    }
}

/// The tokens of the store as this server knows them.
pub(crate) struct TokenBook {
    known: Mutex<Option<Known>>,
    /// One at a time asks the store.
    asking: AsyncMutex<()>,
    /// Whether this server may be open to everybody while there are no tokens.
    loopback: bool,
    guesses: Mutex<HashMap<IpAddr, Guesses>>,
}

#[derive(Clone)]
struct Known {
    tokens: Arc<HashMap<String, Arc<ApiToken>>>,
    since: Stopwatch,
}

struct Guesses {
    wrong: u32,
    last: Stopwatch,
}

impl TokenBook {
    pub(crate) fn new(loopback: bool) -> Self {
        TokenBook {
            known: Mutex::new(None),
            asking: AsyncMutex::new(()),
            loopback,
            guesses: Mutex::default(),
        }
    }

    /// Not older than [`limits::TOKENS_AGE`], unless the store is away: then as they were.
    async fn tokens(&self, app: &App) -> Answer<Arc<HashMap<String, Arc<ApiToken>>>> {
        let fresh = |known: &Option<Known>| {
            known
                .as_ref()
                .filter(|known| known.since.elapsed() < limits::TOKENS_AGE)
                .map(|known| known.tokens.clone())
        };
        if let Some(tokens) = fresh(&self.locked()) {
            return Ok(tokens);
        }
        let _one = self.asking.lock().await;
        if let Some(tokens) = fresh(&self.locked()) {
            return Ok(tokens);
        }
        match app.engine.tokens().await {
            Ok(list) => {
                let tokens: HashMap<_, _> = list.into_iter().map(|t| (t.id.clone(), Arc::new(t))).collect();
                let tokens = Arc::new(tokens);
                *self.locked() = Some(Known { tokens: tokens.clone(), since: Stopwatch::start() });
                Ok(tokens)
            }
            Err(error) => {
                let known = self.locked().as_ref().map(|known| known.tokens.clone());
                known.ok_or_else(|| error.into())
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().expect("no panic happens while it is locked")
    }

    /// What has just been made or taken away is known at once on this server.
    pub(crate) fn forget(&self) {
        *self.locked() = None;
    }

    /// Whether everybody may do everything.
    pub(crate) async fn is_open(&self, app: &App) -> Answer<bool> {
        Ok(self.loopback && self.tokens(app).await?.is_empty())
    }

    /// Who shows this text, or 401 with one text for every reason.
    pub(crate) async fn known(&self, app: &App, text: &str) -> Answer<Principal> {
        let wrong =
            || Problem::unauthorized("this token is not known here: it is misspelt, expired or taken away");
        let presented = Presented::read(text).ok_or_else(wrong)?;
        let tokens = self.tokens(app).await?;
        let token = tokens.get(presented.id).filter(|token| token.is(&presented)).ok_or_else(wrong)?;
        if !is_valid(app, token) {
            return Err(wrong());
        }
        Ok(Principal::of(token.clone()))
    }

    /// The token of this id, for one who has shown it before.
    pub(crate) async fn by_id(&self, app: &App, id: &str) -> Answer<Option<Arc<ApiToken>>> {
        Ok(self.tokens(app).await?.get(id).filter(|token| is_valid(app, token)).cloned())
    }

    /// 429 for an address that has guessed too often lately.
    pub(crate) fn may_guess(&self, from: IpAddr) -> Answer<()> {
        let guesses = self.guesses.lock().expect("no panic happens while it is locked");
        let Some(found) = guesses.get(&from) else { return Ok(()) };
        let left = pause(found.wrong).saturating_sub(found.last.elapsed());
        if left.is_zero() {
            Ok(())
        } else {
            Err(Problem::too_many("too many wrong tokens from this address", left))
        }
    }

    pub(crate) fn guessed(&self, from: IpAddr, right: bool) {
        let mut guesses = self.guesses.lock().expect("no panic happens while it is locked");
        if right {
            guesses.remove(&from);
            return;
        }
        if guesses.len() >= limits::GUESSERS {
            guesses.retain(|_, found| found.last.elapsed() < limits::GUESS_PAUSE_MAX);
        }
        if guesses.len() < limits::GUESSERS || guesses.contains_key(&from) {
            let found = guesses.entry(from).or_insert(Guesses { wrong: 0, last: Stopwatch::start() });
            // Whoever has been quiet for the longest pause begins anew.
            let before = if found.last.elapsed() > limits::GUESS_PAUSE_MAX { 0 } else { found.wrong };
            found.wrong = before.saturating_add(1);
            found.last = Stopwatch::start();
        }
    }
}

fn is_valid(app: &App, token: &ApiToken) -> bool {
    token.expires_at.is_none_or(|at| app.wall() < at)
}

fn pause(wrong: u32) -> Duration {
    match wrong.checked_sub(limits::GUESSES_FREE) {
        None => Duration::ZERO,
        Some(more) => (limits::GUESS_PAUSE * 2u32.saturating_pow(more.min(16))).min(limits::GUESS_PAUSE_MAX),
    }
}

/// Gives every request of a group its principal, and demands the group's scope of it.
pub(crate) async fn admit(
    State((app, scope)): State<(Arc<App>, Scope)>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let from = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let shown = bearer(request.headers());
    match principal(&app, from, shown).await {
        Ok(principal) if principal.allows(scope) => {
            let principal = principal.because(request.headers());
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Ok(_) => Problem::forbidden(format!("this needs a token with the scope `{scope}`")).into_response(),
        Err(problem) => problem.into_response(),
    }
}

/// Who shows this, counted against the address it comes from.
pub(crate) async fn principal(
    app: &App,
    from: Option<IpAddr>,
    shown: Answer<Option<String>>,
) -> Answer<Principal> {
    if app.tokens.is_open(app).await? {
        return Ok(Principal::anybody());
    }
    let Some(text) = shown? else {
        let detail =
            "this server wants a token: send `Authorization: Bearer quell_…`; `quell token create` makes one";
        return Err(Problem::unauthorized(detail));
    };
    let known = app.tokens.known(app, &text).await;
    match (&known, from) {
        (Err(problem), Some(from)) if problem.code() == "unauthorized" => {
            metrics::counter!("quell_http_wrong_tokens_total").increment(1);
            // Only the wrong ones wait. All programs of a host, and all those behind a proxy, have one address: a worker
            // with an old token must not stop the others, and 256 bits are not guessed however fast one may try.
            app.tokens.may_guess(from)?;
            app.tokens.guessed(from, false);
        }
        _ => {}
    }
    known
}

fn bearer(headers: &HeaderMap) -> Answer<Option<String>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::unauthorized("two Authorization headers"));
    }
    let text = value.to_str().unwrap_or_default();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    Ok(scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_and_ends() {
        assert_eq!(pause(0), Duration::ZERO);
        assert_eq!(pause(9), Duration::ZERO);
        assert_eq!(pause(10), limits::GUESS_PAUSE);
        assert_eq!(pause(11), limits::GUESS_PAUSE * 2);
        assert_eq!(pause(u32::MAX), limits::GUESS_PAUSE_MAX);
    }
}
