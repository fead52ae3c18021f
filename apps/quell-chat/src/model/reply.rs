//! What a server said: an answer, or a complaint in one of the forms that are in use.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use quell::fetch::{Reply, retry_after};
use serde_json::Value;

use super::{Answer, ModelError, NoReply, Usage};
use crate::words::line;

/// A server cannot make a customer wait longer than this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// Reads an answer that came whole, with any status but those that are a fault of the source.
pub fn read(status: StatusCode, body: &[u8], request_id: Option<String>) -> Result<Answer, ModelError> {
    let said: Option<Value> = serde_json::from_slice(body).ok();
    let complaint = said.as_ref().and_then(Complaint::of);
    if !status.is_success() {
        let complaint = complaint.unwrap_or_else(|| Complaint::unreadable(body));
        return match complaint.code.as_deref() {
            Some("content_filter") => {
                Ok(Answer::Nothing { why: NoReply::ContentFilter, usage: Usage::default() })
            }
            _ => Err(complaint.with_status(status)),
        };
    }
    if let Some(complaint) = complaint {
        return Err(complaint.without_status());
    }
    let Some(said) = said else { return Err(ModelError::Broken("it is not JSON".into())) };
    let mut heard = Heard::default();
    if !heard.hear(&said, "message") {
        return Err(ModelError::Broken("it holds no choice".into()));
    }
    Ok(heard.answer(request_id))
}

/// What an answer with 429 or 5xx means beyond "a fault of the source"; nothing when it means no more than that.
pub fn fault(reply: &Reply, now: SystemTime) -> Option<ModelError> {
    let said: Option<Value> = serde_json::from_slice(&reply.body).ok();
    let complaint =
        said.as_ref().and_then(Complaint::of).unwrap_or_else(|| Complaint::unreadable(&reply.body));
    if complaint.is_context_length() {
        return Some(ModelError::ContextLength(complaint.text));
    }
    if reply.status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    if complaint.is_quota() {
        return Some(ModelError::Quota(complaint.text));
    }
    Some(ModelError::RateLimited { retry_after: wait(&reply.headers, now), text: complaint.text })
}

/// How long the server wants to be left alone: in milliseconds, in seconds with a fraction, or as a date.
fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let number = |name: &str| {
        let value: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
        value.is_finite().then(|| value.clamp(0.0, 1e9))
    };
    let said = number("retry-after-ms")
        .map(|millis| Duration::from_secs_f64(millis / 1000.0))
        .or_else(|| number("retry-after").map(Duration::from_secs_f64))
        .or_else(|| retry_after(headers, now));
    said.map(|wait| wait.min(RETRY_AFTER_MAX))
}

/// What a server says is wrong.
#[derive(Debug, PartialEq)]
pub(super) struct Complaint {
    text: String,
    code: Option<String>,
    kind: Option<String>,
}

impl Complaint {
    /// `{"error": {…}}`, `{"error": "text"}`, or an object that calls itself an error.
    pub(super) fn of(said: &Value) -> Option<Complaint> {
        let error = match said.get("error") {
            Some(error) if !error.is_null() => error,
            _ if said.get("object").and_then(Value::as_str) == Some("error") => said,
            _ => return None,
        };
        let word = |name: &str| match error.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let text = error.as_str().map(str::to_owned).or_else(|| word("message"));
        let text = text.unwrap_or_else(|| "it does not say why".to_owned());
        Some(Complaint { text: line(&text), code: word("code"), kind: word("type") })
    }

    fn unreadable(body: &[u8]) -> Complaint {
        // Pages of proxies say less than their status.
        let text = String::from_utf8_lossy(&body[..body.len().min(4096)]);
        let page = text.trim_start().starts_with('<');
        let text =
            if page || text.trim().is_empty() { "it does not say why".to_owned() } else { line(&text) };
        Complaint { text, code: None, kind: None }
    }

    fn with_status(self, status: StatusCode) -> ModelError {
        if self.is_context_length() {
            return ModelError::ContextLength(self.text);
        }
        let text = format!("{status}: {}", self.text);
        match status.as_u16() {
            402 => ModelError::Quota(text),
            408 | 409 | 425 => ModelError::Broken(text),
            300..=399 => ModelError::Refused(format!("{text}; redirects are never followed")),
            _ => ModelError::Refused(text),
        }
    }

    /// A complaint inside of an answer that began as a good one.
    pub(super) fn without_status(self) -> ModelError {
        let is =
            |word: &Option<String>, names: &[&str]| word.as_deref().is_some_and(|word| names.contains(&word));
        if self.is_context_length() {
            ModelError::ContextLength(self.text)
        } else if self.is_quota() {
            ModelError::Quota(self.text)
        } else if is(&self.code, &["rate_limit_exceeded", "429"]) {
            ModelError::RateLimited { retry_after: None, text: self.text }
        } else if is(&self.kind, &["invalid_request_error", "authentication_error"])
            || is(&self.code, &["400", "401", "403", "404"])
        {
            ModelError::Refused(self.text)
        } else {
            ModelError::Broken(self.text)
        }
    }

    /// Some servers have a code for it, others only words.
    fn is_context_length(&self) -> bool {
        let named = [&self.code, &self.kind]
            .into_iter()
            .flatten()
            .any(|word| matches!(word.as_str(), "context_length_exceeded" | "exceed_context_size_error"));
        named || self.text.contains("maximum context length")
    }

    fn is_quota(&self) -> bool {
        [&self.code, &self.kind].into_iter().flatten().any(|word| word == "insufficient_quota")
    }
}

/// What has been heard of an answer so far. Only the first choice counts: no more than one is asked for.
#[derive(Debug, Default)]
pub(super) struct Heard {
    text: String,
    refusal: bool,
    tool: bool,
    pub(super) finish: Option<String>,
    usage: Usage,
}

impl Heard {
    /// Takes in an answer or a piece of one, whose words stand in this part of a choice; false when it holds no choice.
    /// What a model thinks to itself (`reasoning_content` and its like) is nobody's business.
    pub(super) fn hear(&mut self, said: &Value, part: &str) -> bool {
        if let Some(usage) = said.get("usage").filter(|usage| usage.is_object()) {
            self.usage = usage_of(usage);
        }
        let choices = said.get("choices").and_then(Value::as_array);
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        let Some(choice) = choices.and_then(|choices| choices.iter().find(first)) else { return false };
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(finish.to_owned());
        }
        let Some(words) = choice.get(part) else { return true };
        push_text(&mut self.text, words.get("content"));
        let refusal = words.get("refusal").and_then(Value::as_str);
        self.refusal |= refusal.is_some_and(|refusal| !refusal.trim().is_empty());
        let calls = words.get("tool_calls").and_then(Value::as_array);
        self.tool |= calls.is_some_and(|calls| !calls.is_empty());
        self.tool |= words.get("function_call").is_some_and(Value::is_object);
        true
    }

    pub(super) fn answer(self, request_id: Option<String>) -> Answer {
        let (usage, finish) = (self.usage, self.finish.as_deref());
        let why = if self.refusal {
            NoReply::Refusal
        } else if finish == Some("content_filter") {
            NoReply::ContentFilter
        } else if self.tool || matches!(finish, Some("tool_calls" | "function_call")) {
            NoReply::ToolCall
        } else if self.text.trim().is_empty() {
            NoReply::Blank
        } else {
            let text = self.text.trim().to_owned();
            return Answer::Reply { text, cut: finish == Some("length"), usage, request_id };
        };
        Answer::Nothing { why, usage }
    }
}

/// A text, or the texts of a list of parts.
fn push_text(text: &mut String, content: Option<&Value>) {
    match content {
        Some(Value::String(words)) => text.push_str(words),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).for_each(|words| text.push_str(words));
        }
        _ => {}
    }
}

fn usage_of(usage: &Value) -> Usage {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let (prompt, completion) = (count("prompt_tokens"), count("completion_tokens"));
    let both = prompt.zip(completion).map(|(prompt, completion)| prompt.saturating_add(completion));
    Usage { prompt, completion, total: count("total_tokens").or(both) }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn whole(said: &Value) -> Result<Answer, ModelError> {
        read(StatusCode::OK, said.to_string().as_bytes(), None)
    }

    fn message(message: &Value) -> Result<Answer, ModelError> {
        whole(&json!({"choices": [{"message": message, "finish_reason": "stop"}]}))
    }

    #[test]
    fn thoughts_are_not_a_reply() {
        let answer = message(&json!({"content": " \n", "reasoning_content": "The customer is a fool."}));
        assert_eq!(answer, Ok(Answer::Nothing { why: NoReply::Blank, usage: Usage::default() }));
        let Ok(Answer::Reply { text, .. }) =
            message(&json!({"content": [{"type": "text", "text": "Yes"}], "reasoning_content": "No"}))
        else {
            panic!("a list of parts is a text");
        };
        assert_eq!(text, "Yes");
    }

    #[test]
    fn a_complaint_inside_of_an_answer_is_no_answer() {
        let text = || "Oh no".to_owned();
        let cases = [
            (json!({"error": "Oh no"}), ModelError::Broken(text())),
            (json!({"error": {"message": "Oh no", "type": "server_error"}}), ModelError::Broken(text())),
            (json!({"object": "error", "message": "Oh no", "code": 400}), ModelError::Refused(text())),
            (json!({"error": {"message": "Oh no", "code": "insufficient_quota"}}), ModelError::Quota(text())),
            (
                json!({"error": {"message": "Oh no", "code": 429}}),
                ModelError::RateLimited { retry_after: None, text: text() },
            ),
            (
                json!({"error": {"message": "Oh no", "code": "context_length_exceeded"}}),
                ModelError::ContextLength(text()),
            ),
            (json!({"choices": []}), ModelError::Broken("it holds no choice".into())),
            (json!([]), ModelError::Broken("it holds no choice".into())),
        ];
        for (said, expected) in cases {
            assert_eq!(whole(&said), Err(expected), "{said}");
        }
        assert!(matches!(read(StatusCode::OK, b"<html>", None), Err(ModelError::Broken(_))));
        let null = json!({"error": null, "choices": [{"message": {"content": "Yes"}}]});
        assert!(matches!(whole(&null), Ok(Answer::Reply { cut: false, .. })));
    }

    #[test]
    fn the_status_says_who_must_act() {
        let read = |status: u16| read(StatusCode::from_u16(status).unwrap(), b"{}", None).unwrap_err();
        for status in [301, 400, 401, 403, 404, 405, 422] {
            assert!(matches!(read(status), ModelError::Refused(_)), "{status}");
        }
        for status in [408, 409, 425] {
            assert!(matches!(read(status), ModelError::Broken(_)), "{status}");
        }
        assert!(matches!(read(402), ModelError::Quota(_)));
    }

    #[test]
    fn waits_are_read_in_all_forms_and_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]);
            wait(&headers, now).map(|wait| wait.as_millis())
        };
        assert_eq!(read("retry-after-ms", "19850"), Some(19_850));
        assert_eq!(read("retry-after-ms", "0.5"), Some(0));
        assert_eq!(read("retry-after", "1.5"), Some(1500));
        assert_eq!(read("retry-after", "-3"), Some(0));
        assert_eq!(read("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"), Some(60_000));
        assert_eq!(read("retry-after", "Sat, 06 Nov 2094 08:50:37 GMT"), Some(120_000));
        assert_eq!(read("retry-after", "1e300"), Some(120_000));
        for nothing in ["soon", "NaN", "inf", ""] {
            assert_eq!(read("retry-after", nothing), None, "{nothing}");
        }
    }
}
