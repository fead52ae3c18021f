//! What becomes of a delivery: proof, reading, store. Also of one that is taken in again from the inspector.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use quell::config::Unkeyed;
use quell::deliveries::{DeliveredEvent, DeliveryRecord, DeliveryVerdict};
use quell::endpoints::ReadyEndpoint;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{EventId, Invalid, Key, LaneKey, Payload};
use quell::quell_core::limits as core_limits;
use quell::quell_core::store::Receipt;
use quell::webhook::{Because, Delivery, Found, Handshake, Item, Reading, Refusal};
use quell::{Engine, Incoming};

use crate::append::{kept_headers, too_much};
use crate::error::Problem;

/// Header fields that are never kept, whatever the scheme says.
const CONFIDENTIAL: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
pub(super) const REDACTED: &str = "[redacted]";
/// Where no endpoint says what is confidential, names with one of these in them are.
const TELLING: [&str; 6] = ["auth", "cookie", "key", "password", "secret", "token"];

/// A delivery and when it came.
#[derive(Clone, Copy)]
pub(super) struct Sent<'a> {
    pub(super) method: &'a Method,
    pub(super) target: &'a str,
    pub(super) rest: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
    pub(super) at: Timestamp,
}

impl<'a> Sent<'a> {
    pub(super) fn delivery(&self) -> Delivery<'a> {
        let Sent { method, target, rest, headers, body, .. } = *self;
        Delivery { method, target, rest, headers, body }
    }

    fn seconds(&self) -> i64 {
        self.at.as_millis().div_euclid(1_000)
    }
}

/// What became of it.
pub(super) enum Received {
    /// It only asked whether somebody is here.
    Greeted(Handshake),
    Taken {
        events: Vec<DeliveredEvent>,
        ignored: Vec<String>,
        secret: usize,
    },
    Refused {
        refusal: Refusal,
        /// The secret that proved it, if it is proven.
        secret: Option<usize>,
    },
    /// Nothing is wrong with it, and still it cannot be taken now: too large, the queue is full, the store is away.
    Failed {
        problem: Problem,
        proven: bool,
    },
}

impl Received {
    pub(super) fn refused(refusal: Refusal, secret: Option<usize>) -> Self {
        Received::Refused { refusal, secret }
    }

    pub(super) fn failed(problem: Problem, proven: bool) -> Self {
        Received::Failed { problem, proven }
    }

    /// Whether whoever sent it has proven themselves.
    pub(super) fn is_proven(&self) -> bool {
        match self {
            Received::Greeted(_) | Received::Taken { .. } => true,
            Received::Refused { secret, .. } => secret.is_some(),
            Received::Failed { proven, .. } => *proven,
        }
    }
}

/// What a refusal is answered with. A wrong verify token is the one thing unproven that has an answer of its own: the provider
/// shows it to whoever is setting the endpoint up.
pub(super) fn status(refusal: &Refusal) -> StatusCode {
    match refusal.because {
        Because::BadVerifyToken => StatusCode::FORBIDDEN,
        because if because.is_unproven() => StatusCode::UNAUTHORIZED,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// The number of the secret that proves it, or what it is instead. Nothing is asked of the store for somebody unknown.
pub(super) fn prove(endpoint: &ReadyEndpoint, sent: &Sent<'_>) -> Result<usize, Received> {
    let (delivery, now) = (sent.delivery(), sent.seconds());
    match endpoint.proofs.greet(&delivery, now) {
        Some(Ok(handshake)) => return Err(Received::Greeted(handshake)),
        Some(Err(refusal)) => return Err(Received::refused(refusal, None)),
        None => {}
    }
    if *sent.method != Method::POST {
        // Not 405: that would tell which endpoints there are.
        let refusal = Refusal::new(Because::WrongMethod, "this endpoint only takes POST");
        return Err(Received::refused(refusal, None));
    }
    endpoint.proofs.verify(&delivery, now).map_err(|refusal| Received::refused(refusal, None))
}

/// Reads what is proven and stores it. With `anew`, ids get this at their end, so that they are new.
pub(super) async fn take(
    engine: &Engine,
    endpoint: &ReadyEndpoint,
    delivery: &Delivery<'_>,
    secret: usize,
    anew: Option<&str>,
) -> Received {
    let items = match endpoint.proofs.read(delivery) {
        Ok(Reading::Handshake(handshake)) => return Received::Greeted(handshake),
        Ok(Reading::Items(items)) => items,
        Err(refusal) if refusal.because == Because::NoKey && endpoint.settings.unkeyed == Unkeyed::Ignore => {
            return Received::Taken { events: Vec::new(), ignored: vec![refusal.detail], secret };
        }
        Err(refusal) => return Received::refused(refusal, Some(secret)),
    };
    let (mut events, mut ignored) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Item::Ignored(why) => ignored.push(why),
            Item::Event(found) => match incoming(endpoint, delivery.headers, found, anew) {
                Ok(event) => events.push(event),
                Err(invalid) => {
                    let refusal = Refusal::new(Because::Unusable, invalid.to_string());
                    return Received::refused(refusal, Some(secret));
                }
            },
        }
    }
    match store(engine, events).await {
        Ok(events) => Received::Taken { events, ignored, secret },
        Err(problem) => Received::failed(problem, true),
    }
}

fn incoming(
    endpoint: &ReadyEndpoint,
    sent: &HeaderMap,
    found: Found,
    anew: Option<&str>,
) -> Result<Incoming, Invalid> {
    let settings = &endpoint.settings;
    let lane = LaneKey::new(settings.queue.clone(), Key::new(&found.key)?).of(settings.tenant.clone());
    let payload = Payload::from_json(found.payload.as_bytes())?;
    let id = match (found.id, anew) {
        (Some(id), Some(anew)) => Some(renewed(&id, anew)?),
        (Some(id), None) => Some(EventId::new(id)?),
        (None, _) => None,
    };
    let headers = kept_headers(sent).into_iter().chain(found.headers).collect();
    Ok(Incoming { id, headers, ..Incoming::to(lane, payload) })
}

/// The id and what makes it new; of a long one the beginning.
fn renewed(id: &str, anew: &str) -> Result<EventId, Invalid> {
    let room = core_limits::EVENT_ID_BYTES_MAX.saturating_sub(anew.len() + 1);
    EventId::new(format!("{}~{anew}", &id[..id.floor_char_boundary(room)]))
}

/// All in one transaction. A known id is a duplicate whatever the body says: the first one stays, and a 4xx would only make
/// the provider send it again.
async fn store(engine: &Engine, events: Vec<Incoming>) -> Result<Vec<DeliveredEvent>, Problem> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let lanes: Vec<LaneKey> = events.iter().map(|event| event.lane.clone()).collect();
    let together = engine.append(events.clone()).await.map_err(too_much);
    match together {
        Ok(receipts) => Ok(lanes.into_iter().zip(receipts).map(|(lane, r)| stored(lane, r)).collect()),
        Err(problem) if problem.code() == "conflict" => {
            let mut delivered = Vec::new();
            for (lane, event) in lanes.into_iter().zip(events) {
                let id = event.id.clone();
                match (engine.append(vec![event]).await.map_err(too_much), id) {
                    (Ok(receipts), _) => {
                        delivered.extend(receipts.into_iter().map(|receipt| stored(lane.clone(), receipt)));
                    }
                    (Err(problem), Some(id)) if problem.code() == "conflict" => {
                        delivered.push(DeliveredEvent { differs: true, ..known(lane, id) });
                    }
                    (Err(problem), _) => return Err(problem),
                }
            }
            Ok(delivered)
        }
        Err(problem) => Err(problem),
    }
}

fn stored(lane: LaneKey, receipt: Receipt) -> DeliveredEvent {
    DeliveredEvent { duplicate: receipt.duplicate, ..known(lane, receipt.event_id) }
}

fn known(lane: LaneKey, event_id: EventId) -> DeliveredEvent {
    let LaneKey { queue, key, tenant } = lane;
    DeliveredEvent { queue, key, tenant, event_id, duplicate: true, differs: false }
}

/// Takes a delivery in again. What was proven is proven; what was not is checked anew, with the secrets of today and the time
/// at which it came. One that was taken before becomes new events: sent in again on purpose, it is no duplicate.
pub(super) async fn again(
    engine: &Engine,
    endpoint: Option<&ReadyEndpoint>,
    record: &DeliveryRecord,
    by: &str,
) -> Result<DeliveryRecord, String> {
    let Some(endpoint) = endpoint else {
        return Err(format!("there is no endpoint {:?} in this configuration", record.endpoint));
    };
    if !record.is_whole() {
        return Err("it was not kept whole: let the provider send it again".to_owned());
    }
    let body = if record.body_is_base64 {
        STANDARD.decode(&record.body).map_err(|error| format!("its body cannot be read: {error}"))?
    } else {
        record.body.clone().into_bytes()
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &record.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
    let method: Method = record.method.parse().map_err(|_| "its method cannot be read".to_owned())?;
    let target = record.target.as_str();
    let at = record.first_at.unwrap_or(record.received_at);
    let sent = Sent { method: &method, target, rest: None, headers: &headers, body: &body, at };
    let id = engine.delivery_id();
    let received = if record.proven {
        let was_taken = record.verdict != DeliveryVerdict::Refused;
        let anew = was_taken.then(|| id.trim_start_matches("dlv_"));
        take(engine, endpoint, &sent.delivery(), record.secret.map_or(0, |n| n - 1), anew).await
    } else {
        match prove(endpoint, &sent) {
            Ok(secret) => take(engine, endpoint, &sent.delivery(), secret, None).await,
            Err(received) => received,
        }
    };
    let replayed = self::record(id, &record.endpoint, Some(endpoint), &sent, &received);
    Ok(DeliveryRecord {
        from: record.from.clone(),
        received_at: engine.wall(),
        first_at: Some(at),
        replay_of: Some(record.id.clone()),
        replayed_by: Some(by.to_owned()),
        ..replayed
    })
}

/// What the inspector keeps: nothing that is as good as a secret.
pub(super) fn record(
    id: String,
    name: &str,
    endpoint: Option<&ReadyEndpoint>,
    sent: &Sent<'_>,
    received: &Received,
) -> DeliveryRecord {
    let scheme = endpoint.map(|endpoint| &endpoint.settings.scheme);
    let mut confidential = scheme.map(|scheme| scheme.confidential()).unwrap_or_default();
    confidential.extend(CONFIDENTIAL.map(str::to_owned));
    let headers = sent.headers.iter().map(|(name, value)| {
        let telling = scheme.is_none() && TELLING.iter().any(|part| name.as_str().contains(part));
        let hidden = telling || confidential.iter().any(|one| one == name.as_str());
        let value = if hidden { REDACTED.into() } else { String::from_utf8_lossy(value.as_bytes()) };
        (name.as_str().to_owned(), value.into_owned())
    });
    let kept = scheme.and_then(|scheme| scheme.without_secrets(sent.body));
    let kept = kept.as_deref().unwrap_or(sent.body);
    let (body, body_is_base64) = match std::str::from_utf8(kept) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (STANDARD.encode(kept), true),
    };
    let said = Said::of(received);
    DeliveryRecord {
        id,
        endpoint: name.to_owned(),
        scheme: scheme.map_or("unknown", |scheme| scheme.name()).to_owned(),
        received_at: sent.at,
        first_at: None,
        from: None,
        method: sent.method.to_string(),
        target: without_values(sent.target, sent.rest),
        headers: headers.collect(),
        headers_are_cut: false,
        body,
        body_is_base64,
        body_bytes: sent.body.len(),
        body_is_cut: false,
        verdict: said.verdict,
        reason: said.reason,
        detail: said.detail,
        status: said.status.as_u16(),
        proven: said.proven,
        secret: said.secret.map(|number| number + 1),
        events: said.events,
        replay_of: None,
        replayed_by: None,
    }
    .bounded()
}

/// The part of a record that depends on what became of the delivery.
struct Said {
    verdict: DeliveryVerdict,
    status: StatusCode,
    reason: Option<String>,
    detail: Option<String>,
    proven: bool,
    secret: Option<usize>,
    events: Vec<DeliveredEvent>,
}

impl Said {
    fn of(received: &Received) -> Self {
        let nothing = Said {
            verdict: DeliveryVerdict::Ignored,
            status: StatusCode::OK,
            reason: None,
            detail: None,
            proven: true,
            secret: None,
            events: Vec::new(),
        };
        match received {
            Received::Greeted(_) => {
                Said { detail: Some("it only asked whether somebody is here".to_owned()), ..nothing }
            }
            Received::Taken { events, ignored, secret } => {
                let verdict = match events.as_slice() {
                    [] => DeliveryVerdict::Ignored,
                    all if all.iter().all(|event| event.duplicate) => DeliveryVerdict::Duplicate,
                    _ => DeliveryVerdict::Accepted,
                };
                let detail = (!ignored.is_empty()).then(|| ignored.join("; "));
                Said { verdict, detail, secret: Some(*secret), events: events.clone(), ..nothing }
            }
            Received::Refused { refusal, secret } => Said {
                verdict: DeliveryVerdict::Refused,
                status: self::status(refusal),
                reason: Some(refusal.because.as_str().to_owned()),
                detail: Some(refusal.detail.clone()),
                proven: secret.is_some(),
                secret: *secret,
                ..nothing
            },
            Received::Failed { problem, proven } => Said {
                verdict: DeliveryVerdict::Refused,
                status: problem.http_status(),
                reason: Some(problem.code().to_owned()),
                detail: Some(problem.detail().to_owned()),
                proven: *proven,
                ..nothing
            },
        }
    }
}

/// The target with the names of its parameters alone: a careless provider puts its secret there, or behind the path.
fn without_values(target: &str, rest: Option<&str>) -> String {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let path = match rest.and_then(|rest| path.strip_suffix(rest)) {
        Some(path) => format!("{path}{REDACTED}"),
        None => path.to_owned(),
    };
    let Some(query) = query else { return path };
    let names = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => format!("{name}={REDACTED}"),
        None => REDACTED.to_owned(),
    });
    format!("{path}?{}", names.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_keeps_the_names_of_its_parameters_and_no_value() {
        for (target, kept) in [
            ("/hooks/a", "/hooks/a"),
            ("/hooks/a?token=secret&x=1", "/hooks/a?token=[redacted]&x=[redacted]"),
            ("/hooks/a?secret", "/hooks/a?[redacted]"),
            ("/hooks/a?", "/hooks/a?[redacted]"),
        ] {
            assert_eq!(without_values(target, None), kept);
        }
        assert_eq!(without_values("/hooks/a/word", Some("word")), "/hooks/a/[redacted]");
        assert_eq!(without_values("/hooks/a/word?x=word", Some("word")), "/hooks/a/[redacted]?x=[redacted]");
    }
}
