//! The model: one question to a server that speaks OpenAI's chat completions, one answer or the reason why there is none.
//!
//! - `request.rs` writes the question.
//! - `stream.rs` reads an answer that comes in pieces, `reply.rs` one that comes whole, and what an error means.
//!
//! What a server says of itself decides what becomes of a run: too long a conversation is shortened, a rate limit is
//! waited for, a spent quota or a wrong key is for the operator, a broken answer is asked for again.
//!
//! Dropping the future of [`ask`] closes the connection, so a run that is interrupted stops paying.

mod reply;
mod request;
mod stream;

use std::time::Duration;

use quell::fetch::{BODY_BYTES_MAX, FetchError, Fetcher, HttpSettings, Streamed};
use quell::quell_core::limits;
use quell::webhook::Secret;
use serde::{Deserialize, Serialize};

use crate::words::wall;

pub use reply::{fault, read};
pub use stream::Reading;

/// Which model is asked, where and how.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// With the version and without the path of the call: `https://api.openai.com/v1`.
    pub base_url: String,
    pub model: String,
    /// None for a server of one's own that wants no key.
    pub key: Option<Secret>,
    /// Whether the answer comes in pieces; either way it is given back whole.
    pub stream: bool,
    /// From the first byte sent to the last byte read.
    pub timeout: Duration,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub max_tokens_as: MaxTokensAs,
}

impl ModelCall {
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        ModelCall {
            base_url: base_url.into(),
            model: model.into(),
            key: None,
            stream: true,
            timeout: Duration::from_secs(50),
            temperature: None,
            max_tokens: None,
            max_tokens_as: MaxTokensAs::default(),
        }
    }
}

/// What the server calls the limit of an answer; each refuses or ignores the other name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensAs {
    #[default]
    MaxCompletionTokens,
    /// As older servers know it.
    MaxTokens,
}

/// One turn of a conversation, as it is told to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub role: Role,
    pub content: String,
}

impl Turn {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Turn { role, content: content.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
}

/// What the model answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Reply {
        text: String,
        /// It reached its limit in the middle.
        cut: bool,
        usage: Usage,
        /// What the server calls this request, for a question to its operators.
        request_id: Option<String>,
    },
    /// It answered, and there is nothing to send.
    Nothing { why: NoReply, usage: Usage },
}

/// Why there is nothing to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoReply {
    #[error("the model refused to answer")]
    Refusal,
    #[error("the model's content filter held the answer back")]
    ContentFilter,
    #[error("the model answered nothing")]
    Blank,
    #[error("the model wanted to call a tool, and it was given none")]
    ToolCall,
}

/// What was counted, where the server counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub prompt: Option<u64>,
    pub completion: Option<u64>,
    pub total: Option<u64>,
}

/// Why there is no answer. No text of these ever holds the key.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// Leave out the oldest turns and ask again.
    #[error("the conversation is too long for the model: {0}")]
    ContextLength(String),
    /// Ask again after the time, which is at most two minutes.
    #[error("the model's server wants fewer requests: {text}")]
    RateLimited { retry_after: Option<Duration>, text: String },
    /// Nothing but money or a new month helps.
    #[error("the account at the model's server is used up: {0}")]
    Quota(String),
    /// Our request or our key is wrong: asking again changes nothing, the operator must look at it.
    #[error("the model's server refused the request: {0}")]
    Refused(String),
    /// An answer that cannot be used; the next one may be better.
    #[error("the model's answer cannot be used: {0}")]
    Broken(String),
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// Bounds of a client for [`ask`]: a streamed answer repeats a few hundred bytes for each word, so it gets the largest
/// cap there is. Every call has a time limit of its own.
pub fn http_settings() -> HttpSettings {
    HttpSettings { timeout: limits::LEASE_MAX, body_bytes_max: BODY_BYTES_MAX, ..HttpSettings::default() }
}

/// Asks once. The client of the fetcher must mean the base URL when that is an address (`Http::meaning`).
pub async fn ask(fetcher: &Fetcher, settings: &ModelCall, messages: &[Turn]) -> Result<Answer, ModelError> {
    let answer = ask_plainly(fetcher, settings, messages).await;
    answer.map_err(|error| without_key(error, settings.key.as_ref()))
}

async fn ask_plainly(
    fetcher: &Fetcher,
    settings: &ModelCall,
    messages: &[Turn],
) -> Result<Answer, ModelError> {
    let call = request::call(settings, messages)?;
    let mut stream = match fetcher.open(call).await {
        Ok(stream) => stream,
        Err(error) => {
            let said = match &error {
                FetchError::Fault { reply: Some(reply), .. } => fault(reply, wall()),
                _ => None,
            };
            return Err(said.unwrap_or(ModelError::Fetch(error)));
        }
    };
    let headers = stream.headers();
    let text_of = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let request_id = text_of("x-request-id");
    // A server that cannot stream answers whole, whatever it was asked for.
    let in_pieces = text_of("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    if !stream.status().is_success() || !in_pieces {
        return whole(stream, request_id).await;
    }
    let mut reading = Reading::default();
    while let Some(chunk) = stream.chunk().await? {
        if reading.feed(&chunk)? {
            // Nothing of use comes after the end mark, and some servers keep the line open.
            stream.enough().await?;
            break;
        }
    }
    reading.end(request_id)
}

async fn whole(mut stream: Streamed<'_>, request_id: Option<String>) -> Result<Answer, ModelError> {
    let mut body = Vec::new();
    while let Some(chunk) = stream.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    read(stream.status(), &body, request_id)
}

/// Servers like to repeat what they were given.
fn without_key(error: ModelError, key: Option<&Secret>) -> ModelError {
    let key = key.and_then(|key| std::str::from_utf8(key.bytes()).ok()).filter(|key| !key.is_empty());
    let Some(key) = key else { return error };
    let plain = |text: String| text.replace(key, "[redacted]");
    match error {
        ModelError::ContextLength(text) => ModelError::ContextLength(plain(text)),
        ModelError::RateLimited { retry_after, text } => {
            ModelError::RateLimited { retry_after, text: plain(text) }
        }
        ModelError::Quota(text) => ModelError::Quota(plain(text)),
        ModelError::Refused(text) => ModelError::Refused(plain(text)),
        ModelError::Broken(text) => ModelError::Broken(plain(text)),
        // Its text is ours; what the server said goes no further.
        ModelError::Fetch(FetchError::Fault { fault, text, .. }) => {
            ModelError::Fetch(FetchError::Fault { fault, text: plain(text), reply: None })
        }
        ModelError::Fetch(other) => ModelError::Fetch(other),
    }
}
