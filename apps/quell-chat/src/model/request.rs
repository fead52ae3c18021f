//! The question, as it goes over the wire.

use http::{HeaderValue, Method, header};
use quell::fetch::Call;
use serde::Serialize;

use super::{MaxTokensAs, ModelCall, ModelError, Turn};
use crate::words::bearer;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: &'a [Turn],
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// What is sent. Servers of others refuse fields that they do not know, so only those stand there that are needed.
pub(super) fn call(settings: &ModelCall, messages: &[Turn]) -> Result<Call, ModelError> {
    let url = format!("{}/chat/completions", settings.base_url.trim_end_matches('/'));
    let accept = if settings.stream { "text/event-stream" } else { "application/json" };
    let mut call = Call::new(Method::POST, url)
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(header::ACCEPT, HeaderValue::from_static(accept))
        .body(body(settings, messages)?)
        .timeout(settings.timeout);
    if let Some(key) = &settings.key {
        let value = bearer(key).ok_or_else(|| {
            ModelError::Refused("nothing was sent: the key holds characters that no header may have".into())
        })?;
        call = call.header(header::AUTHORIZATION, value);
    }
    Ok(call)
}

fn body(settings: &ModelCall, messages: &[Turn]) -> Result<Vec<u8>, ModelError> {
    let tokens = |name| settings.max_tokens.filter(|_| settings.max_tokens_as == name);
    let body = Body {
        model: &settings.model,
        messages,
        temperature: settings.temperature,
        max_completion_tokens: tokens(MaxTokensAs::MaxCompletionTokens),
        max_tokens: tokens(MaxTokensAs::MaxTokens),
        stream: settings.stream,
        stream_options: settings.stream.then_some(StreamOptions { include_usage: true }),
    };
    serde_json::to_vec(&body).map_err(|error| ModelError::Refused(format!("nothing was sent: {error}")))
}

#[cfg(test)]
mod tests {
    use quell::webhook::Secret;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Role;

    fn body_of(settings: &ModelCall) -> Value {
        let turns = [Turn::new(Role::System, "Be kind."), Turn::new(Role::User, "Hé")];
        serde_json::from_slice(&call(settings, &turns).unwrap().body).unwrap()
    }

    #[test]
    fn only_what_is_set_is_sent() {
        let messages = json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hé"}]);
        let settings = ModelCall::new("http://127.0.0.1:1/v1/", "m");
        let options = json!({"include_usage": true});
        let streamed = json!({"model": "m", "messages": messages, "stream": true, "stream_options": options});
        assert_eq!(body_of(&settings), streamed);
        let settings = ModelCall { stream: false, temperature: Some(0.5), max_tokens: Some(300), ..settings };
        assert_eq!(
            body_of(&settings),
            json!({"model": "m", "messages": messages, "temperature": 0.5, "max_completion_tokens": 300})
        );
        let settings = ModelCall { max_tokens_as: MaxTokensAs::MaxTokens, temperature: None, ..settings };
        assert_eq!(body_of(&settings), json!({"model": "m", "messages": messages, "max_tokens": 300}));
        assert_eq!(call(&settings, &[]).unwrap().url, "http://127.0.0.1:1/v1/chat/completions");
    }

    #[test]
    fn the_key_is_not_shown() {
        let settings = ModelCall { key: Some(Secret::new("opensesame")), ..ModelCall::new("http://x", "m") };
        let shown = format!("{settings:?} {:?}", call(&settings, &[]).unwrap());
        assert!(!shown.contains("opensesame"), "{shown}");
        let settings = ModelCall { key: Some(Secret::new("open\nsesame")), ..settings };
        let error = call(&settings, &[]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sesame"), "{error}");
    }
}
