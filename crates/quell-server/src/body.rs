//! Reading what a client sends: bounded in size and in time, and checked for its type.
//!
//! A body is refused as soon as it is known to be too large (by its announced length, or by the byte that is one too
//! many), and a sender that lets the server wait is given up. Compressed bodies are refused: what they would become is
//! not known before it is in memory.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use quell::clock::Stopwatch;
use serde::de::DeserializeOwned;

use crate::error::{Answer, Problem};
use crate::limits;

/// A body that arrives piece by piece, each in time.
pub(crate) struct Incoming {
    body: Body,
    seen: u64,
    since: Stopwatch,
}

impl Incoming {
    pub(crate) fn new(body: Body) -> Self {
        Incoming { body, seen: 0, since: Stopwatch::start() }
    }

    /// The next piece, or nothing at the end.
    pub(crate) async fn piece(&mut self) -> Answer<Option<Bytes>> {
        loop {
            let frame = tokio::time::timeout(limits::BODY_PAUSE, self.body.frame());
            let frame = frame.await.map_err(|_| Problem::too_slow())?;
            let Some(frame) = frame else { return Ok(None) };
            let broken = |_| Problem::bad_request("the body broke off; nothing of it was stored");
            let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
            self.seen += piece.len() as u64;
            self.check_rate(self.since.elapsed())?;
            return Ok(Some(piece));
        }
    }

    /// Throws away what still comes: a connection that is closed with something unread is reset, and an answer on its way
    /// is lost with it.
    async fn leave(mut self) {
        let mut left = limits::LEFTOVER_BYTES;
        let rest = async {
            while let Some(Ok(frame)) = self.body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        };
        // Too much or too late, it is closed all the same.
        let _ = tokio::time::timeout(limits::LEFTOVER_TIME, rest).await;
    }

    fn check_rate(&self, taken: Duration) -> Answer<()> {
        let slow = taken > limits::BODY_PAUSE && self.seen < taken.as_secs() * limits::BODY_RATE;
        if slow { Err(Problem::too_slow()) } else { Ok(()) }
    }
}

/// The whole body, of `most` bytes at the most.
pub(crate) async fn read(request: Request<Body>, most: usize) -> Answer<Bytes> {
    let (parts, body) = request.into_parts();
    let mut incoming = Incoming::new(body);
    let whole = read_from(&parts.headers, &mut incoming, most).await;
    // Whoever waits for a word before sending more is not asked for it.
    if matches!(&whole, Err(problem) if problem.code() != "too-slow") && !parts.headers.contains_key(EXPECT) {
        tokio::spawn(incoming.leave());
    }
    whole
}

async fn read_from(headers: &HeaderMap, incoming: &mut Incoming, most: usize) -> Answer<Bytes> {
    refuse_encoding(headers)?;
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > most as u64) {
        return Err(too_large(most));
    }
    let Some(first) = incoming.piece().await? else { return Ok(Bytes::new()) };
    if first.len() > most {
        return Err(too_large(most));
    }
    let Some(second) = incoming.piece().await? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    let mut next = Some(second);
    while let Some(piece) = next {
        if whole.len() + piece.len() > most {
            return Err(too_large(most));
        }
        whole.extend_from_slice(&piece);
        next = incoming.piece().await?;
    }
    Ok(whole.freeze())
}

/// A small JSON document.
pub(crate) async fn json<T: DeserializeOwned>(request: Request<Body>) -> Answer<T> {
    if !is_json(&media_type(request.headers())?) {
        return Err(Problem::unsupported("send the body as application/json"));
    }
    let bytes = read(request, limits::SMALL_BODY_BYTES).await?;
    parse(&bytes)
}

/// A small JSON document, or what stands for none.
pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(request: Request<Body>) -> Answer<T> {
    let media = media_type(request.headers())?;
    if !media.is_empty() && !is_json(&media) {
        return Err(Problem::unsupported("send the body as application/json, or none"));
    }
    let bytes = read(request, limits::SMALL_BODY_BYTES).await?;
    if bytes.is_empty() { Ok(T::default()) } else { parse(&bytes) }
}

/// JSON with the place of what is wrong in it. Places are looked for only in what is wrong.
pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Answer<T> {
    if let Ok(parsed) = serde_json::from_slice(bytes) {
        return Ok(parsed);
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let problem = Problem::bad_request(format!("the body is not as it should be: {}", error.inner()));
        if path == "." { problem.at("body") } else { problem.at(path) }
    })?;
    reader.end().map_err(|e| Problem::bad_request(format!("after the JSON document: {e}")).at("body"))?;
    Ok(parsed)
}

/// The media type in small letters without its parameters; empty when there is none.
pub(crate) fn media_type(headers: &HeaderMap) -> Answer<String> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::bad_request("two Content-Type headers").at("Content-Type"));
    }
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

pub(crate) fn is_json(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}

pub(crate) fn refuse_encoding(headers: &HeaderMap) -> Answer<()> {
    if headers.get_all(CONTENT_ENCODING).iter().any(|value| value != "identity") {
        let detail = "compressed bodies are not taken: send it as it is";
        return Err(Problem::unsupported(detail).at("Content-Encoding"));
    }
    Ok(())
}

fn too_large(most: usize) -> Problem {
    Problem::too_large(format!("the body has more than {most} bytes; nothing of it was stored"))
}
