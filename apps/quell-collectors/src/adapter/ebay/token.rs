//! The token of an application at eBay: got with its id and secret, kept in the memory of this process and nowhere else.
//!
//! One task gets a new one and the others wait for it. It is renewed before its time is over, and once more when the API refuses
//! it. Credentials that were refused are not tried again for a minute, so that a wrong secret costs a request a minute and not
//! one for every lane that waits. No error shows the token, the id or the secret, whatever the other side repeats of them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quell::clock::Stopwatch;
use quell::fetch::{Call, Fetcher, HeaderValue, Method};
use quell::webhook::Secret;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::errors_of;
use crate::adapter::AdapterError;
use crate::adapter::answer::{asked, body, document};

const PATH: &str = "/identity/v1/oauth2/token";
const FORM: &str = "grant_type=client_credentials&scope=https%3A%2F%2Fapi.ebay.com%2Foauth%2Fapi_scope";
/// A token is renewed this long before its end, or a fifth of its life if that is less.
const EARLY: Duration = Duration::from_secs(300);
/// What a token lives where the answer does not say it; those of eBay live two hours.
const LIFE_DEFAULT: Duration = Duration::from_secs(3600);
const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Refused credentials are not tried again for so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Whatever is put in the place of a secret.
const REDACTED: &str = "[redacted]";

/// One token.
#[derive(Debug, Clone)]
pub(super) struct Token {
    header: HeaderValue,
    secret: Secret,
    /// Counts the tokens of this process, so that a refusal is about one of them.
    number: u64,
}

impl Token {
    pub(super) fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

/// Where tokens come from.
#[derive(Debug)]
pub(super) struct Tokens {
    url: String,
    client_id: Secret,
    client_secret: Secret,
    user_agent: HeaderValue,
    timeout: Duration,
    /// Locked while a new one is got.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    held: Option<Held>,
    refused: Option<(Stopwatch, String)>,
    made: u64,
}

#[derive(Debug)]
struct Held {
    token: Token,
    since: Stopwatch,
    /// How long it is used.
    life: Duration,
}

impl Tokens {
    pub(super) fn new(
        url: &str,
        client_id: &str,
        client_secret: &str,
        user_agent: HeaderValue,
        timeout: Duration,
    ) -> Self {
        Tokens {
            url: format!("{url}{PATH}"),
            client_id: Secret::new(client_id),
            client_secret: Secret::new(client_secret),
            user_agent,
            timeout,
            kept: Mutex::new(Kept::default()),
        }
    }

    /// The token, an old one or a new one.
    pub(super) async fn get(&self, fetcher: &Fetcher) -> Result<Token, AdapterError> {
        self.other_than(fetcher, None).await
    }

    /// A token in the place of one that was refused: the one that another task has got meanwhile, or a new one.
    pub(super) async fn instead_of(&self, fetcher: &Fetcher, refused: &Token) -> Result<Token, AdapterError> {
        self.other_than(fetcher, Some(refused.number)).await
    }

    async fn other_than(&self, fetcher: &Fetcher, refused: Option<u64>) -> Result<Token, AdapterError> {
        let mut kept = self.kept.lock().await;
        if let Some(held) = &kept.held
            && held.since.elapsed() < held.life
            && Some(held.token.number) != refused
        {
            return Ok(held.token.clone());
        }
        if let Some((since, why)) = &kept.refused
            && since.elapsed() < REFUSED_FOR
        {
            return Err(AdapterError::Permanent(why.clone()));
        }
        kept.held = None;
        kept.made += 1;
        match self.fetch(fetcher, kept.made).await {
            Ok(held) => {
                let token = held.token.clone();
                (kept.held, kept.refused) = (Some(held), None);
                Ok(token)
            }
            Err(AdapterError::Permanent(why)) => {
                let why = format!("no token for the source: {why}");
                kept.refused = Some((Stopwatch::start(), why.clone()));
                Err(AdapterError::Permanent(why))
            }
            Err(other) => Err(other),
        }
    }

    async fn fetch(&self, fetcher: &Fetcher, number: u64) -> Result<Held, AdapterError> {
        let said = |body: &[u8]| Some(self.without_secrets(&errors_of(body)?, None));
        let pair = [self.client_id.bytes(), b":", self.client_secret.bytes()].concat();
        let unfit = || AdapterError::Permanent("the client id and secret cannot stand in a header".into());
        let mut basic =
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).map_err(|_| unfit())?;
        basic.set_sensitive(true);
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let call = Call::new(Method::POST, &self.url)
            .timeout(self.timeout)
            .header(http::header::USER_AGENT, self.user_agent.clone())
            .header(http::header::AUTHORIZATION, basic)
            .header(http::header::CONTENT_TYPE, form)
            .body(FORM);
        let since = Stopwatch::start();
        let answer = asked(fetcher, call, said).await?;
        let body = body(&self.url, &answer, said)?.unwrap_or_default();
        let unread = || AdapterError::Permanent("the answer has no access_token".into());
        let granted: Granted = serde_json::from_str(document(&body)?.get()).map_err(|_| unread())?;
        if granted.access_token.trim().is_empty() {
            return Err(unread());
        }
        let mut header =
            HeaderValue::from_str(&format!("Bearer {}", granted.access_token)).map_err(|_| unread())?;
        header.set_sensitive(true);
        let life = granted.expires_in.map_or(LIFE_DEFAULT, Duration::from_secs).min(LIFE_MAX);
        let token = Token { header, secret: Secret::new(granted.access_token), number };
        Ok(Held { token, since, life: life - EARLY.min(life / 5) })
    }

    /// Servers like to repeat what they were given.
    pub(super) fn without_secrets(&self, text: &str, token: Option<&Token>) -> String {
        let own = [&self.client_id, &self.client_secret];
        let all = own.into_iter().chain(token.map(|token| &token.secret));
        all.filter_map(|secret| std::str::from_utf8(secret.bytes()).ok())
            .filter(|secret| !secret.is_empty())
            .fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED))
    }
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Option<u64>,
}
