//! What goes wrong with an answer of the local market, as it goes wrong with real ones.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use quell::clock;
use serde_json::json;

use super::catalogue::{respelt, with_numbers};
use super::{Refusal, json_answer, with_headers};

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Where tokens of eBay are made.
    Token,
    /// The Browse API.
    Search,
    /// The plain shop.
    Shop,
    /// `robots.txt`.
    Robots,
}

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// 429, with a time to wait or without.
    TooMany(Option<Duration>),
    /// 500.
    ServerError,
    /// 503 with a time to wait.
    Unavailable(Duration),
    /// 401, as if the token were not good.
    Unauthorized,
    /// It is answered after this time.
    Slow(Duration),
    /// No answer ever comes.
    Silent,
    /// An error page of somebody in between, with a good status.
    NotJson,
    /// The answer ends in the middle, as if it were whole.
    Half,
    /// The connection is lost in the middle of the answer.
    Lost,
    /// It leads elsewhere.
    Redirect(String),
    /// Every price is `NaN`, as some writers of JSON do.
    Nan,
    /// Every price is the text `"NaN"`.
    NanText,
    /// Every price is this text.
    Price(String),
    /// Every price is in this currency.
    Currency(String),
    /// Exactly this answer.
    Exactly { status: u16, headers: Vec<(String, String)>, body: String },
}

impl Fault {
    /// What is answered in the place of a good answer.
    pub(super) async fn spoil(self, good: String) -> Response<Body> {
        let waiting = |status, wait: Option<Duration>, body: String| {
            let wait = wait.map(|wait| wait.as_secs().to_string());
            let json = ("content-type", "application/json");
            match &wait {
                Some(wait) => with_headers(status, &[json, ("retry-after", wait)], body),
                None => with_headers(status, &[json], body),
            }
        };
        match self {
            Fault::TooMany(wait) => {
                let said = complaint(2001, "ACCESS", "Too many requests.");
                waiting(StatusCode::TOO_MANY_REQUESTS, wait, said)
            }
            Fault::ServerError => json_answer(
                StatusCode::INTERNAL_SERVER_ERROR,
                &complaint(12000, "API_BROWSE", "Internal error"),
            ),
            Fault::Unavailable(wait) => waiting(
                StatusCode::SERVICE_UNAVAILABLE,
                Some(wait),
                complaint(12000, "API_BROWSE", "Down for a while"),
            ),
            Fault::Unauthorized => {
                let (status, said) = unauthorized();
                json_answer(status, &said)
            }
            Fault::Slow(wait) => {
                clock::sleep(wait).await;
                json_answer(StatusCode::OK, &with_numbers(&good))
            }
            Fault::Silent => std::future::pending().await,
            Fault::NotJson => {
                let page = "<html><body><h1>Please try again</h1></body></html>";
                with_headers(StatusCode::OK, &[("content-type", "text/html")], page)
            }
            Fault::Half => json_answer(StatusCode::OK, half(&with_numbers(&good))),
            Fault::Lost => {
                let half = Bytes::copy_from_slice(half(&with_numbers(&good)).as_bytes());
                let lost = io::Error::other("lost, as it was told to be");
                let body = Body::from_stream(stream::iter([Ok(half), Err(lost)]));
                with_headers(StatusCode::OK, &[("content-type", "application/json")], body)
            }
            Fault::Redirect(to) => with_headers(StatusCode::FOUND, &[("location", &to)], ""),
            Fault::Nan => json_answer(StatusCode::OK, &with_numbers(&respelt(&good, Some("#num:NaN"), None))),
            Fault::NanText => json_answer(StatusCode::OK, &with_numbers(&respelt(&good, Some("NaN"), None))),
            Fault::Price(price) => {
                json_answer(StatusCode::OK, &with_numbers(&respelt(&good, Some(&price), None)))
            }
            Fault::Currency(other) => {
                json_answer(StatusCode::OK, &with_numbers(&respelt(&good, None, Some(&other))))
            }
            Fault::Exactly { status, headers, body } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let headers: Vec<_> =
                    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                with_headers(status, &headers, body)
            }
        }
    }
}

pub(super) fn unauthorized() -> Refusal {
    (StatusCode::UNAUTHORIZED, complaint(1001, "OAuth", "Invalid access token"))
}

pub(super) fn refused(error_id: i64, message: &str) -> Refusal {
    (StatusCode::BAD_REQUEST, complaint(error_id, "API_BROWSE", message))
}

fn complaint(error_id: i64, domain: &str, message: &str) -> String {
    let error = json!({"errorId": error_id, "domain": domain, "category": "REQUEST", "message": message});
    json!({"errors": [error]}).to_string()
}

fn half(text: &str) -> &str {
    let mut at = text.len() / 2;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}
