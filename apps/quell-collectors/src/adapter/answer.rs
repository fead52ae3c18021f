//! What an answer means before anybody looks for items in it: the body of a good one, or why there is none.
//!
//! Nothing that a source wrote goes into an error unread: of a redirect the host, of a refusal the status and what the adapter
//! has picked out of it.

use quell::fetch::{Call, FetchError, Fetched, Fetcher, HeaderValue, StatusCode, USER_AGENT};
use serde_json::value::RawValue;
use url::Url;

use crate::adapter::AdapterError;
use crate::adapter::raw::{self, NoJson};

/// Sends a request. What came with a fault goes no further than `said`, which picks out what may be told.
pub(super) async fn asked(
    fetcher: &Fetcher,
    call: Call,
    said: impl Fn(&[u8]) -> Option<String>,
) -> Result<Fetched, AdapterError> {
    fetcher.fetch(call).await.map_err(|error| match error {
        FetchError::Fault { fault, text, reply } => {
            let told = reply.and_then(|reply| said(&reply.body));
            let text = told.map_or(text.clone(), |told| format!("{text}: {told}"));
            AdapterError::Fetch(FetchError::Fault { fault, text, reply: None })
        }
        other => AdapterError::Fetch(other),
    })
}

/// The body of a good answer; nothing for one that says in its status that there is none.
pub(super) fn body(
    url: &str,
    answer: &Fetched,
    said: impl Fn(&[u8]) -> Option<String>,
) -> Result<Option<Vec<u8>>, AdapterError> {
    let status = answer.status;
    match status {
        StatusCode::NO_CONTENT => Ok(None),
        _ if status.is_success() => Ok(Some(answer.body.clone())),
        _ if status.is_redirection() => Err(AdapterError::Permanent(format!(
            "the source answered {status} and leads to {}: redirects are not followed; if that is meant, write the new \
             address into its url",
            redirected_to(url, answer)
        ))),
        // The two of the 4xx that say: again.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => {
            Err(AdapterError::Transient(format!("the source answered {status}")))
        }
        _ => Err(AdapterError::Permanent(match said(&answer.body) {
            Some(told) => format!("the source answered {status}: {told}"),
            None => format!("the source answered {status}"),
        })),
    }
}

/// The document of a body.
pub(super) fn document(body: &[u8]) -> Result<&RawValue, AdapterError> {
    raw::document(body).map_err(|why| match why {
        NoJson::NoNumber => AdapterError::Permanent(
            "the answer has NaN or Infinity in the place of a number, which is neither JSON nor a price"
                .into(),
        ),
        NoJson::Broken => AdapterError::Transient(format!(
            "the answer is no JSON, or breaks off: {} bytes that begin with {}",
            body.len(),
            beginning(body)
        )),
    })
}

/// Who asks: always us by name, and whoever runs us if they say so.
pub(super) fn user_agent(contact: Option<&str>) -> Result<HeaderValue, String> {
    let text = match contact {
        Some(contact) => format!("{USER_AGENT} ({contact})"),
        None => USER_AGENT.to_owned(),
    };
    HeaderValue::from_str(&text).map_err(|_| "the contact cannot stand in a header".to_owned())
}

fn redirected_to(url: &str, answer: &Fetched) -> String {
    let location = answer.headers.get(http::header::LOCATION).and_then(|value| value.to_str().ok());
    let target = Url::parse(url).ok().zip(location).and_then(|(url, location)| url.join(location).ok());
    let host = target.and_then(|target| target.host_str().map(str::to_owned));
    host.map_or("an unknown place".to_owned(), |host| host.chars().take(100).collect())
}

/// One word for the kind of text, so that a log shows an error page for what it is and nothing of what it says.
fn beginning(body: &[u8]) -> &'static str {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "nothing",
        Some(b'<') => "a tag",
        Some(b'{' | b'[') => "a bracket",
        Some(_) => "something else",
    }
}
