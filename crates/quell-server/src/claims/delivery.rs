//! Runs on their way to a worker that asked over HTTP.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body::{Frame, SizeHint};
use quell::Engine;
use quell::quell_core::batch::Batch;
use quell::quell_core::error::{StoreError, StoreResult};
use quell::quell_core::outcome::Outcome;
use quell::quell_core::store::{ClaimRequest, Claimed};
use tokio::sync::oneshot;

use super::shapes::Claims;
use crate::app::App;

/// Claimed runs that nobody has taken over yet; dropped, they are handed back and their attempts refunded.
pub(crate) struct Delivery {
    engine: Engine,
    claimed: Claimed,
    /// Whoever named the claim comes back for it.
    named: bool,
}

impl Delivery {
    /// Claims. Whoever stops waiting for the answer has not got it: the claim itself is always seen to its end.
    pub(crate) async fn claim(app: &App, request: ClaimRequest) -> StoreResult<Delivery> {
        let (tell, told) = oneshot::channel();
        let engine = app.engine.clone();
        tokio::spawn(async move {
            let named = request.claim_id.is_some();
            let claimed = engine.claim(request).await;
            // Not taken, it is dropped here or in the channel, and handed back.
            let _ = tell.send(claimed.map(|claimed| Delivery { engine, claimed, named }));
        });
        told.await.unwrap_or_else(|_| Err(StoreError::unavailable("the claim was given up")))
    }

    pub(crate) fn batches(&self) -> &[Batch] {
        &self.claimed.batches
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claimed.batches.is_empty()
    }

    /// How long until another claim could find something.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        self.claimed.next_at.map(|next| next.since(self.claimed.now))
    }

    /// The answer; until the connection has taken it, it can be dropped like this.
    pub(crate) fn respond(self) -> Response {
        let bytes = serde_json::to_vec(&Claims { claims: &self.claimed.batches, now: self.claimed.now });
        let body = Envelope { bytes: Some(bytes.unwrap_or_default().into()), delivery: Some(self) };
        let mut response = Body::new(body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.named || self.claimed.batches.is_empty() {
            return;
        }
        let batches = std::mem::take(&mut self.claimed.batches);
        let engine = self.engine.clone();
        metrics::counter!("quell_http_claims_undelivered_total").increment(1);
        // A runtime that is ending takes nothing on: then the lease has to do.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            for batch in batches {
                let outcome = Outcome::release("its worker went away before it got the run");
                let (holder, queue) = ((batch.run_id, batch.token), &batch.lane.queue);
                if let Err(error) = engine.settle(holder, queue, batch.retries, outcome).await {
                    tracing::warn!(run = %batch.run_id, %error, "a run that could not be delivered waits for its lease");
                }
            }
        });
    }
}

/// One piece of bytes with the runs that are in it.
struct Envelope {
    bytes: Option<Bytes>,
    delivery: Option<Delivery>,
}

impl http_body::Body for Envelope {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // From here on the connection has them; whether they arrive nobody can know, and their lease is for that.
        if let Some(mut delivery) = self.delivery.take() {
            delivery.claimed.batches.clear();
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
