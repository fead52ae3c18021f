//! Problems as documents (RFC 9457): one text for the client, another for the log.
//!
//! `code` is the part that programs compare; `type` is the same as a URN. What the store says of a request is told to its
//! sender; what it says of itself (corrupt, unreachable) goes to the log, and the sender learns only what to do.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use quell::EngineError;
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::quell_core::event::Invalid;
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong, where, and what to do.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    /// The part of the request that is meant: a header, a parameter, a place in the body.
    place: Option<String>,
    retry_after: Option<Duration>,
    /// The methods that would have been taken.
    allow: Option<&'static str>,
}

/// A problem as it is sent (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemDocument {
    /// `urn:quell:` and the code.
    #[schema(example = "urn:quell:stale-token")]
    r#type: String,
    /// The reason phrase of the status.
    title: &'static str,
    status: u16,
    /// What programs compare.
    #[schema(example = "stale-token")]
    code: &'static str,
    /// For people: what happened and what to do.
    detail: String,
    /// The part of the request that is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
}

pub(crate) type Answer<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Problem { status, code, detail: detail.into(), place: None, retry_after: None, allow: None }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    }

    pub(crate) fn unsupported(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
    }

    pub(crate) fn too_slow() -> Self {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            "the body did not arrive in time; nothing was stored",
        )
    }

    pub(crate) fn too_many(detail: impl Into<String>, retry_after: Duration) -> Self {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail).retry_after(retry_after)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Problem::new(status, "unavailable", detail).retry_after(Duration::from_secs(1))
    }

    #[must_use]
    pub(crate) fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    #[must_use]
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    #[must_use]
    pub(crate) fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    /// Another status for the same text: what a limit means depends on what was asked.
    #[must_use]
    pub(crate) fn status(mut self, status: StatusCode, code: &'static str) -> Self {
        (self.status, self.code) = (status, code);
        self
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn http_status(&self) -> StatusCode {
        self.status
    }

    /// The reason phrase of the status.
    pub(crate) fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Problem")
    }

    /// Whether the store itself has a problem: then the rest of many actions is not worth trying.
    pub(crate) fn ends_bulk(&self) -> bool {
        matches!(self.code(), "unavailable" | "unknown-outcome" | "corrupt")
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn document(&self) -> ProblemDocument {
        ProblemDocument {
            r#type: format!("urn:quell:{}", self.code),
            title: self.title(),
            status: self.status.as_u16(),
            code: self.code,
            detail: self.detail.clone(),
            place: self.place.clone(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.document()).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = self.retry_after {
            // Whole seconds, and never "at once".
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"quell\""));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = error.kind.as_str();
        let told = |status| Problem::new(status, code, error.detail.clone());
        match error.kind {
            ErrorKind::Invalid => told(StatusCode::BAD_REQUEST),
            ErrorKind::Limit => told(StatusCode::UNPROCESSABLE_ENTITY),
            // How soon there is room nobody knows; a second is what a worker needs.
            ErrorKind::Full => told(StatusCode::TOO_MANY_REQUESTS).retry_after(Duration::from_secs(1)),
            ErrorKind::Conflict | ErrorKind::NotIdle | ErrorKind::LostLease | ErrorKind::AlreadySettled => {
                told(StatusCode::CONFLICT)
            }
            ErrorKind::NotFound => told(StatusCode::NOT_FOUND),
            ErrorKind::Unavailable => {
                tracing::warn!(%error, "the store is not available");
                Problem::unavailable("the store cannot be reached or is busy; nothing was done, try again")
            }
            ErrorKind::Unknown => {
                tracing::warn!(%error, "the store's answer is unknown");
                let detail = "nobody knows whether it was done; repeat it with the same id or token";
                Problem::unavailable(detail).status(StatusCode::SERVICE_UNAVAILABLE, code)
            }
            ErrorKind::Corrupt => {
                tracing::error!(%error, "the store is not as it should be");
                let detail = "the store is not as it should be; the server's log and `quell doctor` say more";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, code, detail)
            }
        }
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::UnknownQueue { queue, .. } => unknown_queue(queue.as_str()),
            EngineError::NoHandler { .. } | EngineError::BadHandler { .. } => {
                Problem::bad_request(error.to_string())
            }
            EngineError::NotPulled { .. } => {
                Problem::new(StatusCode::CONFLICT, "not-pulled", error.to_string())
            }
            EngineError::Invalid(invalid) => invalid.into(),
            EngineError::Store(error) => error.into(),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Problem::bad_request(invalid.to_string())
    }
}

/// The same for a queue that is not configured and for one that the credential may not see.
pub(crate) fn unknown_queue(queue: &str) -> Problem {
    let detail = format!("there is no queue {queue:?} here: add [queues.{queue}] to quell.toml");
    Problem::new(StatusCode::NOT_FOUND, "unknown-queue", detail)
}
