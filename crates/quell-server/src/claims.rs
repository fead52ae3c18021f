//! Work out: pull workers claim, keep, pass the gate, remember and settle over plain HTTP.
//!
//! A claim whose answer cannot be delivered is handed back at once and its attempt refunded: the runs travel inside a
//! [`Delivery`], which gives them back when it is dropped before the connection has taken them. A caller that named its
//! claim can come back for it instead, so those are left to their lease.

mod delivery;
mod shapes;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use quell::PullWish;
use quell::quell_core::batch::{Batch, RunId, WorkerId};
use quell::quell_core::event::{LaneKey, QueueName};
use quell::quell_core::limits as core_limits;
use quell::quell_core::store::{ClaimQueues, ExtendRequest, HoldRequest, StepAction, StepAnswer};

pub(crate) use self::delivery::Delivery;
use self::shapes::{
    ClaimBody, Claims, ExtendBody, Extension as Extended, HoldBody, HoldReply, SettleBody, Settlement,
    StepBody, StepReply,
};
use crate::app::App;
use crate::auth::Principal;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::{Path, body, json, limits, polls};

/// What the server remembers of runs that it handed out, so that it need not look them up at every call.
#[derive(Default)]
pub(crate) struct ClaimBook(Mutex<HashMap<RunId, Remembered>>);

#[derive(Clone)]
struct Remembered {
    token: u64,
    lane: LaneKey,
    retries: u32,
    lease: Duration,
}

impl ClaimBook {
    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Remembered>> {
        self.0.lock().expect("no panic happens while it is locked")
    }

    fn remember(&self, batches: &[Batch]) {
        let mut known = self.locked();
        if known.len() + batches.len() > limits::CLAIMS_REMEMBERED {
            // Those of workers that died, mostly; the others are looked up.
            known.clear();
        }
        for batch in batches {
            let lease = batch.lease_until.since(batch.claimed_at);
            let (token, lane) = (batch.token, batch.lane.clone());
            known.insert(batch.run_id, Remembered { token, lane, retries: batch.retries, lease });
        }
    }

    fn forget(&self, run: RunId) {
        self.locked().remove(&run);
    }
}

/// The run that a path names, if the caller may see it. What is remembered of another attempt is not worth anything: since
/// then it may have been handed out by another server.
async fn remembered(app: &App, principal: &Principal, run: &str, token: u64) -> Answer<(RunId, Remembered)> {
    let run: RunId = run.parse()?;
    let unknown = || Problem::not_found(format!("{run} does not exist"));
    let known = app.claims.locked().get(&run).filter(|known| known.token == token).cloned();
    let known = match known {
        Some(known) => known,
        None => {
            let found = app.engine.run(run).await?.ok_or_else(unknown)?;
            let lease = app.engine.queue(&found.row.lane.queue).map(|queue| queue.run.lease);
            let lease = lease.unwrap_or(core_limits::LEASE_DEFAULT);
            Remembered { token, lane: found.row.lane.clone(), retries: found.row.retries, lease }
        }
    };
    if principal.sees(&known.lane) { Ok((run, known)) } else { Err(unknown()) }
}

/// Takes runs under a lease, and waits for some.
///
/// Answers with an empty list when the wait is over. Each run must be settled with its token, or extended before its lease
/// ends.
#[utoipa::path(
    post, path = "/v1/claims", operation_id = "claim", tag = "work",
    request_body = ClaimBody,
    responses(
        (status = 200, description = "Runs, each with its events", body = Claims<'static>),
        (status = 404, description = "No such queue", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "The server handles this queue itself", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["work"])),
)]
pub(crate) async fn claim(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    request: Request<Body>,
) -> Answer<Response> {
    let wish: ClaimBody = body::json(request).await?;
    let queues = wish.queues.iter().map(QueueName::new).collect::<Result<Vec<_>, _>>()?;
    for queue in &queues {
        principal.queue(queue)?;
    }
    let queues = match principal.queue_filter(None) {
        Ok(Some(own)) if queues.is_empty() => vec![own],
        Err(problem) if queues.is_empty() => return Err(problem),
        _ => queues,
    };
    let max = wish.max.unwrap_or(1);
    if max == 0 || max > limits::CLAIM_MAX {
        return Err(Problem::bad_request(format!("max is between 1 and {}", limits::CLAIM_MAX)).at("max"));
    }
    if wish.worker.is_empty() || wish.worker.len() > 128 || wish.worker.chars().any(char::is_control) {
        let detail = "the name of a worker is 1 to 128 bytes without control characters";
        return Err(Problem::bad_request(detail).at("worker"));
    }
    if wish.claim_id.as_ref().is_some_and(|id| id.chars().any(char::is_control)) {
        return Err(Problem::bad_request("a claim_id has no control characters").at("claim_id"));
    }
    let lease = wish.lease_ms.map(lease).transpose()?;
    // Stable for one worker, so that it can repeat a claim; another credential is another worker.
    let worker = WorkerId { name: wish.worker, pid: 0, start: principal.id().to_owned() };
    let wish_of = PullWish {
        worker: Arc::new(worker),
        queues,
        tenant: principal.tenant_filter(wish.tenant.as_deref())?,
        max,
        lease,
        claim_id: wish.claim_id,
    };
    let request = app.engine.pull_request(&wish_of)?;
    request.check()?;
    if matches!(&request.queues, ClaimQueues::Listed(list) if list.is_empty()) {
        let detail =
            "no queue of this server is pulled: set handler = \"pull\", or start it with --handler pull";
        return Err(Problem::new(http::StatusCode::CONFLICT, "not-pulled", detail));
    }
    let wait = Duration::from_millis(wish.wait_ms.unwrap_or(0)).min(limits::WAIT_MAX);
    let delivery = polls::claim(&app, request, wait).await?;
    app.claims.remember(delivery.batches());
    Ok(delivery.respond())
}

fn lease(ms: u64) -> Answer<Duration> {
    let lease = Duration::from_millis(ms);
    if lease < core_limits::LEASE_MIN || lease > core_limits::LEASE_MAX {
        return Err(Problem::bad_request("a lease is between 100 ms and 24 hours").at("lease_ms"));
    }
    Ok(lease)
}

/// Keeps a lease, and tells what happened meanwhile.
#[utoipa::path(
    post, path = "/v1/claims/{run_id}/extend", operation_id = "extend", tag = "work",
    params(("run_id" = RunId, Path)),
    request_body = ExtendBody,
    responses(
        (status = 200, description = "Kept", body = Extended),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "The token does not hold the run", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["work"])),
)]
pub(crate) async fn extend(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    let wish: ExtendBody = body::json(request).await?;
    let (run_id, known) = remembered(&app, &principal, &run, wish.token).await?;
    let lease = wish.lease_ms.map(lease).transpose()?.unwrap_or(known.lease);
    let kept = app.engine.extend(ExtendRequest { run_id, token: wish.token, lease }).await?;
    let held = match wish.hold {
        true => Some(app.engine.hold(HoldRequest { run_id, token: wish.token, if_head: None }).await?.answer),
        false => None,
    };
    Ok(json(&Extended {
        lease_until: kept.lease_until,
        head_seq: kept.head_seq,
        newer: kept.newer,
        interrupt: kept.interrupt,
        cancel: kept.cancel,
        held,
    }))
}

/// The gate before an effect: freezes the batch, or ends the attempt because newer events want to be part of it.
#[utoipa::path(
    post, path = "/v1/claims/{run_id}/hold", operation_id = "hold", tag = "work",
    params(("run_id" = RunId, Path)),
    request_body = HoldBody,
    responses(
        (status = 200, description = "`held`: go on. `superseded` or `interrupted`: the attempt is over and refunded.", body = HoldReply),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "The token does not hold the run", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["work"])),
)]
pub(crate) async fn hold(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    let wish: HoldBody = body::json(request).await?;
    let (run_id, _) = remembered(&app, &principal, &run, wish.token).await?;
    let held = app.engine.hold(HoldRequest { run_id, token: wish.token, if_head: wish.if_head }).await?;
    Ok(json(&HoldReply { answer: held.answer, state: held.state }))
}

/// Remembers the result of a piece of the run; the first one stays. With `begin`, records the intent to do what must not be
/// done twice.
#[utoipa::path(
    put, path = "/v1/claims/{run_id}/steps/{name}", operation_id = "put_step", tag = "work",
    params(("run_id" = RunId, Path), ("name" = String, Path, max_length = 128)),
    request_body = StepBody,
    responses(
        (status = 200, description = "What is remembered now", body = StepReply),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "The token does not hold the run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "Too large, or too many steps", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["work"])),
)]
pub(crate) async fn put_step(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((run, name)): Path<(String, String)>,
    request: Request<Body>,
) -> Answer<Response> {
    let wish: StepBody = body::json(request).await?;
    let action = match (wish.begin, wish.value) {
        (true, None) => StepAction::Begin,
        (false, Some(value)) => StepAction::Finish(value),
        _ => return Err(Problem::bad_request("send a value, or begin: true").at("value")),
    };
    step(&app, &principal, (&run, wish.token), &name, action).await
}

/// What is remembered of a piece of the run.
#[utoipa::path(
    get, path = "/v1/claims/{run_id}/steps/{name}", operation_id = "get_step", tag = "work",
    params(("run_id" = RunId, Path), ("name" = String, Path, max_length = 128), ("token" = u64, Query)),
    responses(
        (status = 200, description = "What is remembered", body = StepReply),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "The token does not hold the run", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["work"])),
)]
pub(crate) async fn get_step(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path((run, name)): Path<(String, String)>,
    crate::Query(query): crate::Query<shapes::Holder>,
) -> Answer<Response> {
    step(&app, &principal, (&run, query.token), &name, StepAction::Read).await
}

async fn step(
    app: &App,
    principal: &Principal,
    (run, token): (&str, u64),
    name: &str,
    action: StepAction,
) -> Answer<Response> {
    let (run_id, _) = remembered(app, principal, run, token).await?;
    let reply = match app.engine.step(run_id, token, name, action).await? {
        StepAnswer::New => StepReply { state: "new", value: None, stored: false },
        StepAnswer::Begun => StepReply { state: "begun", value: None, stored: true },
        StepAnswer::Unknown => StepReply { state: "unknown", value: None, stored: false },
        StepAnswer::Done { value, stored } => StepReply { state: "done", value: Some(value), stored },
    };
    Ok(json(&reply))
}

/// Ends an attempt.
///
/// Repeated with the same token and outcome it gets the same answer; with another outcome it is 409 `already-settled`; a
/// token that does not hold the run is 409 `stale-token`.
#[utoipa::path(
    post, path = "/v1/claims/{run_id}/settle", operation_id = "settle", tag = "work",
    params(("run_id" = RunId, Path)),
    request_body = SettleBody,
    responses(
        (status = 200, description = "The run's new state: not always what was asked for", body = Settlement),
        (status = 404, description = "No such run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "`stale-token`, `already-settled` or `superseded`", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["work"])),
)]
pub(crate) async fn settle(
    State(app): State<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(run): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    let origin = quell::spans::origin(request.headers());
    let wish: SettleBody = body::json(request).await?;
    let (run_id, known) = remembered(&app, &principal, &run, wish.token).await?;
    let (token, gated) = (wish.token, wish.if_head.is_some());
    let outcome = wish.outcome()?;
    let span = quell::spans::settling(&known.lane.queue, origin);
    let settled = app.engine.settle((run_id, token), &known.lane.queue, known.retries, outcome).await;
    span.told(settled.as_ref().err().map(quell::EngineError::kind));
    let settled = settled?;
    app.claims.forget(run_id);
    if gated && settled.change == quell::quell_core::lifecycle::Change::Superseded {
        let detail =
            "newer events have arrived: they and this batch are the next one, and the attempt is refunded";
        return Err(Problem::new(http::StatusCode::CONFLICT, "superseded", detail));
    }
    Ok(json(&Settlement {
        run_id,
        state: settled.state,
        next_at: settled.next_at,
        repeated: settled.repeated,
    }))
}
