//! A model that answers by a script, as chat completions do: in pieces or whole, and wrongly when it is told to.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use futures_util::{Stream, stream};
use http::{HeaderMap, Response, StatusCode, header};
use quell::clock;
use quell::quell_core::clock::Timestamp;
use quell::webhook::Secret;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Listening, Shared, json as json_answer, with_headers};
use crate::model::Turn;

/// Pieces of a streamed answer have so many characters.
const PIECE_CHARS: usize = 7;

/// What a model says to a request.
pub type Words = Arc<dyn Fn(&Asked) -> String + Send + Sync>;

/// How the model behaves from now on.
#[derive(Clone)]
pub struct Script {
    pub answer: Words,
    /// Between two pieces of a streamed answer, and before a whole one.
    pub delay: Duration,
    /// Before the first piece.
    pub thinking: Duration,
    /// More turns than these are too many.
    pub turns_max: Option<usize>,
    /// More bytes of turns than these are too many.
    pub bytes_max: Option<usize>,
    /// Only requests with this key are answered.
    pub key: Option<Secret>,
}

impl Script {
    /// Always says the same.
    pub fn fixed(text: impl Into<String>) -> Self {
        let text = text.into();
        Script::computed(move |_| text.clone())
    }

    /// Says what is made of the request.
    pub fn computed(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Self {
        Script {
            answer: Arc::new(answer),
            delay: Duration::ZERO,
            thinking: Duration::ZERO,
            turns_max: None,
            bytes_max: None,
            key: None,
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("delay", &self.delay).finish_non_exhaustive()
    }
}

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelFault {
    /// 429, again after this time.
    RateLimited(Duration),
    /// 429 for good.
    Quota,
    /// 500.
    ServerError,
    /// It is answered after this time.
    Slow(Duration),
    /// 400: too long a conversation.
    ContextLength,
    /// The answer ends in the middle, as if it were whole.
    Cut,
    /// The connection is lost in the middle of the answer.
    Lost,
    /// An error in the middle of the answer.
    ErrorMidway,
    /// Something that is no answer at all.
    Garbage,
    /// Exactly this answer, byte by byte.
    Exactly { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
}

/// A request, as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// When it came, by this machine's clock.
    pub at: Timestamp,
    pub messages: Vec<Turn>,
    /// All of its fields.
    pub body: Value,
    pub stream: bool,
    pub ended: Ended,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is still being given.
    NotYet,
    Whole,
    /// The client closed before the end.
    HungUp,
}

/// The server.
#[derive(Debug)]
pub struct LocalModel {
    listening: Listening,
    state: Shared<Inner>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Inner {
    script: Script,
    faults: VecDeque<ModelFault>,
    asked: Vec<Asked>,
}

impl fmt::Debug for Shared<Inner> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

impl LocalModel {
    pub async fn start(script: Script) -> io::Result<LocalModel> {
        let state = Shared::new(Inner { script, faults: VecDeque::new(), asked: Vec::new() });
        let changed = Arc::new(Notify::new());
        let served = (state.clone(), changed.clone());
        let router =
            Router::new().route("/v1/chat/completions", axum::routing::post(serve)).with_state(served);
        Ok(LocalModel { listening: Listening::start(router).await?, state, changed })
    }

    /// What a `ModelCall` wants to know.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.listening.url())
    }

    /// From the next request on.
    pub fn follow(&self, script: Script) {
        self.state.lock().script = script;
    }

    /// The next request without a fault of its own gets this one.
    pub fn fail_next(&self, fault: ModelFault) {
        self.state.lock().faults.push_back(fault);
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.state.lock().asked.clone()
    }

    /// Waits until the requests look like this; put a time limit around it.
    pub async fn wait_until(&self, like: impl Fn(&[Asked]) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if like(&self.state.lock().asked) {
                return;
            }
            changed.await;
        }
    }
}

type Served = (Shared<Inner>, Arc<Notify>);

async fn serve(State(served): State<Served>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let Some(asked) = read(&body) else {
        let said = complaint(
            "invalid_request_error",
            Value::Null,
            "We could not parse the JSON body of your request.",
        );
        return json_answer(StatusCode::BAD_REQUEST, &said);
    };
    let (script, fault, number) = {
        let mut inner = served.0.lock();
        if !inner.script.key.as_ref().is_none_or(|key| is_authorized(&headers, key)) {
            let said =
                complaint("invalid_request_error", json!("invalid_api_key"), "Incorrect API key provided.");
            return json_answer(StatusCode::UNAUTHORIZED, &said);
        }
        inner.asked.push(asked.clone());
        (inner.script.clone(), inner.faults.pop_front(), inner.asked.len() - 1)
    };
    served.1.notify_waiters();
    let watch = Watch { served, number, whole: false };
    clock::sleep(script.thinking).await;
    answer(watch, &asked, &script, fault).await
}

fn read(body: &[u8]) -> Option<Asked> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body.get("model")?.as_str()?;
    let messages: Vec<Turn> = serde_json::from_value(body.get("messages")?.clone()).ok()?;
    let stream = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let at = clock::Time::wall(&clock::RealTime::new());
    Some(Asked { at, messages, body, stream, ended: Ended::NotYet })
}

fn is_authorized(headers: &HeaderMap, key: &Secret) -> bool {
    let presented =
        headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    presented.is_some_and(|presented| key.is(presented))
}

async fn answer(watch: Watch, asked: &Asked, script: &Script, fault: Option<ModelFault>) -> Response<Body> {
    let too_long = |what: usize, most: Option<usize>| most.is_some_and(|most| what > most);
    let bytes = asked.messages.iter().map(|turn| turn.content.len()).sum();
    let too_long = too_long(asked.messages.len(), script.turns_max) || too_long(bytes, script.bytes_max);
    match fault {
        _ if too_long => watch.whole(context_length()),
        Some(ModelFault::ContextLength) => watch.whole(context_length()),
        Some(ModelFault::RateLimited(wait)) => watch.whole(rate_limited(wait)),
        Some(ModelFault::Quota) => {
            let said = complaint(
                "insufficient_quota",
                json!("insufficient_quota"),
                "You exceeded your current quota.",
            );
            watch.whole(json_answer(StatusCode::TOO_MANY_REQUESTS, &said))
        }
        Some(ModelFault::ServerError) => {
            let said = complaint("server_error", Value::Null, "The server had an error.");
            watch.whole(json_answer(StatusCode::INTERNAL_SERVER_ERROR, &said))
        }
        Some(ModelFault::Garbage) if asked.stream => {
            streamed(watch, vec!["data: {half\n\n".into()], script.delay, false)
        }
        Some(ModelFault::Garbage) => watch.whole(json_answer(StatusCode::OK, &json!(["what?"]))),
        Some(ModelFault::Exactly { status, headers, body }) => exactly(watch, status, &headers, &body),
        Some(ModelFault::Slow(wait)) => {
            clock::sleep(wait).await;
            spoken(watch, asked, script, None).await
        }
        fault => spoken(watch, asked, script, fault).await,
    }
}

/// The script's own words, in pieces or whole.
async fn spoken(watch: Watch, asked: &Asked, script: &Script, fault: Option<ModelFault>) -> Response<Body> {
    let text = (script.answer)(asked);
    let model = asked.body.get("model").cloned().unwrap_or_default();
    if !asked.stream {
        clock::sleep(script.delay).await;
        return match fault {
            Some(ModelFault::Cut | ModelFault::Lost) => {
                let half = completion(&model, &text, asked).to_string();
                let half = Bytes::from(half.into_bytes()).slice(..40);
                let body = Body::from_stream(broken_off(watch, half));
                with_headers(StatusCode::OK, &[("content-type", "application/json")], body)
            }
            Some(ModelFault::ErrorMidway) => {
                let said = complaint("server_error", Value::Null, "The server had an error.");
                watch.whole(json_answer(StatusCode::OK, &said))
            }
            _ => watch.whole(json_answer(StatusCode::OK, &completion(&model, &text, asked))),
        };
    }
    let mut pieces = pieces(&model, &text, asked);
    let half = pieces.len() / 2;
    match fault {
        Some(ModelFault::Cut) => pieces.truncate(half),
        Some(ModelFault::Lost) => {
            pieces.truncate(half);
            return streamed(watch, pieces, script.delay, true);
        }
        Some(ModelFault::ErrorMidway) => {
            pieces.truncate(half);
            pieces.push(event(&complaint("server_error", Value::Null, "The server had an error.")));
        }
        _ => {}
    }
    streamed(watch, pieces, script.delay, false)
}

fn completion(model: &Value, text: &str, asked: &Asked) -> Value {
    json!({
        "id": "chatcmpl-local", "object": "chat.completion", "created": seconds(asked), "model": model,
        "choices": [{
            "index": 0, "finish_reason": "stop", "logprobs": null,
            "message": {"role": "assistant", "content": text, "refusal": null},
        }],
        "usage": usage(text, asked),
    })
}

/// The events of a streamed answer.
fn pieces(model: &Value, text: &str, asked: &Asked) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        event(&json!({
            "id": "chatcmpl-local", "object": "chat.completion.chunk", "created": seconds(asked), "model": model,
            "choices": choices, "usage": usage,
        }))
    };
    let choice = |delta: Value, finish: Value| {
        chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]), Value::Null)
    };
    let characters: Vec<char> = text.chars().collect();
    let mut pieces = vec![choice(json!({"role": "assistant", "content": ""}), Value::Null)];
    for piece in characters.chunks(PIECE_CHARS) {
        pieces.push(choice(json!({"content": piece.iter().collect::<String>()}), Value::Null));
    }
    pieces.push(choice(json!({}), json!("stop")));
    if asked.body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)) {
        pieces.push(chunk(json!([]), usage(text, asked)));
    }
    pieces.push("data: [DONE]\n\n".into());
    pieces
}

/// Words stand for tokens.
fn usage(text: &str, asked: &Asked) -> Value {
    let words = |text: &str| text.split_whitespace().count();
    let prompt: usize = asked.messages.iter().map(|turn| words(&turn.content)).sum();
    let completion = words(text);
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

fn seconds(asked: &Asked) -> i64 {
    asked.at.as_millis().div_euclid(1000)
}

fn event(said: &Value) -> String {
    format!("data: {said}\n\n")
}

fn complaint(kind: &str, code: Value, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn context_length() -> Response<Body> {
    let said = complaint(
        "invalid_request_error",
        json!("context_length_exceeded"),
        "This model's maximum context length is exceeded. Please reduce the length of the messages.",
    );
    json_answer(StatusCode::BAD_REQUEST, &said)
}

fn rate_limited(wait: Duration) -> Response<Body> {
    let said = complaint("requests", json!("rate_limit_exceeded"), "Rate limit reached.");
    let headers = [
        ("content-type", "application/json"),
        ("retry-after", &wait.as_secs().to_string()),
        ("retry-after-ms", &wait.as_millis().to_string()),
    ];
    with_headers(StatusCode::TOO_MANY_REQUESTS, &headers, said.to_string())
}

fn streamed(watch: Watch, pieces: Vec<String>, delay: Duration, lost: bool) -> Response<Body> {
    let pieces = pieces.into_iter().map(Bytes::from).collect();
    let headers = [("content-type", "text/event-stream; charset=utf-8"), ("x-request-id", "req_local")];
    with_headers(StatusCode::OK, &headers, Body::from_stream(slowly(watch, pieces, delay, lost)))
}

fn exactly(watch: Watch, status: u16, headers: &[(String, String)], body: &[u8]) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let bytes = body.iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect();
    with_headers(status, &headers, Body::from_stream(slowly(watch, bytes, Duration::ZERO, false)))
}

/// The pieces one after the other. With the last one the answer is whole, and a client may close; or the connection is to
/// be lost after it.
fn slowly(
    watch: Watch,
    pieces: VecDeque<Bytes>,
    delay: Duration,
    lost: bool,
) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((watch, pieces), move |(mut watch, mut pieces)| async move {
        if !delay.is_zero() {
            clock::sleep(delay).await;
        }
        let piece = match pieces.pop_front() {
            Some(piece) => Ok(piece),
            None if lost && !watch.whole => Err(io::Error::other("lost, as it was told to be")),
            None => return watch.whole(None),
        };
        watch.whole = piece.is_err() || (pieces.is_empty() && !lost);
        Some((piece, (watch, pieces)))
    })
}

fn broken_off(watch: Watch, half: Bytes) -> impl Stream<Item = io::Result<Bytes>> {
    slowly(watch, VecDeque::from([half]), Duration::ZERO, true)
}

/// Sees whether an answer comes to its end: it is dropped with the connection.
struct Watch {
    served: Served,
    number: usize,
    whole: bool,
}

impl Watch {
    fn whole<T>(mut self, answer: T) -> T {
        self.whole = true;
        answer
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let ended = if self.whole { Ended::Whole } else { Ended::HungUp };
        if let Some(asked) = self.served.0.lock().asked.get_mut(self.number) {
            asked.ended = ended;
        }
        self.served.1.notify_waiters();
    }
}
