//! An HTTP client that a stranger may give the URL to: guarded, bounded, and never led elsewhere.
//!
//! One [`Http`] serves a whole process. It keeps two pools: one whose names go through the guard, and one for the
//! targets that the operator's configuration names exactly. They share no connection, so what was allowed for one
//! target is never used for another.
//!
//! What it does not do: follow redirects (the new address would be chosen by the other side), read proxies from the
//! environment (a proxy connects where we must not), repeat requests (each costs a token of the source), keep cookies.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use reqwest::dns::Resolve;
use reqwest::redirect::Policy;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use crate::guard::{Forbidden, Guard, Refused};
use crate::names::{GuardedNames, SystemNames};

/// How large an answer may be unless a setting says otherwise: far above any page of an API, far below what 20 lanes at
/// once could not hold in memory.
pub const BODY_BYTES_DEFAULT: usize = 1024 * 1024;

/// The largest cap that may be set: 20 lanes at once then hold 160 MiB.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// More header fields than any honest answer has; the parser's memory is bounded by it.
const HEADER_FIELDS_MAX: usize = 100;

/// The same bound for HTTP/2, where it is counted in bytes.
const HEADER_BYTES_MAX: u32 = 64 * 1024;

/// Who we say we are.
pub const USER_AGENT: &str = concat!("quell/", env!("CARGO_PKG_VERSION"));

/// The bounds of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// For the name, the connection and TLS together; default 5 s.
    pub connect_timeout: Duration,
    /// From the first byte sent to the last byte read; default 20 s, so that it ends before its flight does.
    pub timeout: Duration,
    /// Bytes of a body after decompression; default 1 MiB, at most 8 MiB.
    pub body_bytes_max: usize,
    /// Whose certificates are believed besides the system's: the authority of one's own company. None by default, and
    /// there is no way to believe everybody.
    pub authorities: Vec<CertificateDer<'static>>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(20),
            body_bytes_max: BODY_BYTES_DEFAULT,
            authorities: Vec::new(),
        }
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is done there.
    pub method: Method,
    /// Where; the guard judges it.
    pub url: String,
    /// What goes along.
    pub headers: HeaderMap,
    /// Empty for most.
    pub body: Vec<u8>,
    /// In place of the client's own: from the first byte sent to the last byte read.
    pub timeout: Option<Duration>,
    /// What happens to an answer that is too large.
    pub excess: Excess,
}

/// What becomes of an answer that is larger than the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Excess {
    /// It is an error: half an answer is none.
    #[default]
    Refuse,
    /// The rest is not read, for those to whom the status says enough.
    Drop,
}

impl Call {
    /// A request with no headers of its own and no body.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Call {
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: Vec::new(),
            timeout: None,
            excess: Excess::Refuse,
        }
    }

    /// A GET.
    pub fn get(url: impl Into<String>) -> Self {
        Call::new(Method::GET, url)
    }

    /// With this header, beside those of the same name.
    #[must_use]
    pub fn header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Given up after this long, the answer's body included.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What happens to an answer that is too large.
    #[must_use]
    pub fn excess(mut self, excess: Excess) -> Self {
        self.excess = excess;
        self
    }
}

/// What was answered, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What the other side made of it.
    pub status: StatusCode,
    /// What came along.
    pub headers: HeaderMap,
    /// As much of it as was read.
    pub body: Vec<u8>,
}

/// An answer whose head is there and whose body is read as it comes.
#[derive(Debug)]
pub struct Opened {
    /// What the other side made of it.
    pub status: StatusCode,
    /// What came along.
    pub headers: HeaderMap,
    response: reqwest::Response,
    max: usize,
    room: usize,
    excess: Excess,
}

impl Opened {
    /// The next piece of the body; nothing at its end. The pieces are decompressed ones, so the cap holds for what a
    /// reader may keep in memory.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, CallError> {
        let refuse = self.excess == Excess::Refuse;
        if refuse && self.announced() > self.max {
            return Err(CallError::TooLarge { max: self.max });
        }
        // Whoever drops the rest does not wait for it either.
        if !refuse && self.room == 0 {
            return Ok(None);
        }
        let Some(mut chunk) = self.response.chunk().await.map_err(reason)? else { return Ok(None) };
        if chunk.len() > self.room && refuse {
            return Err(CallError::TooLarge { max: self.max });
        }
        chunk.truncate(self.room);
        self.room -= chunk.len();
        Ok(Some(chunk))
    }

    /// All that is still to come, as one answer.
    pub async fn whole(mut self) -> Result<Reply, CallError> {
        let mut body = Vec::with_capacity(self.announced().min(self.max));
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status: self.status, headers: self.headers, body })
    }

    /// The first bytes of the body, for those to whom the rest says nothing more. What breaks off ends there.
    pub(crate) async fn beginning(mut self, max: usize) -> Reply {
        let mut body = Vec::new();
        self.room = self.room.min(max);
        self.excess = Excess::Drop;
        while let Ok(Some(chunk)) = self.chunk().await {
            body.extend_from_slice(&chunk);
        }
        Reply { status: self.status, headers: self.headers, body }
    }

    fn announced(&self) -> usize {
        usize::try_from(self.response.content_length().unwrap_or(0)).unwrap_or(usize::MAX)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum CallError {
    /// The guard said no: nothing was sent.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It cannot be sent: a header or the like is wrong.
    #[error("the request cannot be sent: {0}")]
    Invalid(String),
    /// No answer, or not all of it, in time. It may have arrived.
    #[error("no answer in time: {0}")]
    TimedOut(String),
    /// No connection: nothing was sent.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection broke on the way. It may have arrived.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// The answer has more bytes than were wanted.
    #[error("the answer is larger than {max} bytes")]
    TooLarge { max: usize },
}

/// The guarded client. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Http {
    guard: Guard,
    checked: reqwest::Client,
    listed: reqwest::Client,
    body_bytes_max: usize,
}

impl Http {
    /// With the names of the operating system. An error means that TLS or a setting cannot be used.
    pub fn new(guard: Guard, settings: &HttpSettings) -> Result<Self, CallError> {
        Http::with_names(guard, settings, Arc::new(SystemNames))
    }

    /// With another resolver; its answers go through the guard all the same.
    pub fn with_names(
        guard: Guard,
        settings: &HttpSettings,
        names: Arc<dyn Resolve>,
    ) -> Result<Self, CallError> {
        if settings.body_bytes_max == 0 || settings.body_bytes_max > BODY_BYTES_MAX {
            let asked = settings.body_bytes_max;
            return Err(CallError::Invalid(format!(
                "a cap of {asked} bytes for answers: it must be between 1 and {BODY_BYTES_MAX}"
            )));
        }
        let tls = tls(&settings.authorities)?;
        let build = |names: Arc<dyn Resolve>| {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .dns_resolver(names)
                .no_proxy()
                .redirect(Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
                .user_agent(USER_AGENT)
                .connect_timeout(settings.connect_timeout)
                .timeout(settings.timeout)
                .http1_max_headers(HEADER_FIELDS_MAX)
                .http2_max_header_list_size(HEADER_BYTES_MAX)
                .build()
                .map_err(|error| CallError::Invalid(whole(&error)))
        };
        Ok(Http {
            checked: build(Arc::new(GuardedNames::new(guard.clone(), names.clone())))?,
            listed: build(names)?,
            guard,
            body_bytes_max: settings.body_bytes_max,
        })
    }

    /// Makes one request and reads its answer. Any status is an answer.
    pub async fn call(&self, call: Call) -> Result<Reply, CallError> {
        self.open(call).await?.whole().await
    }

    /// Makes one request, whose answer is read piece by piece while it comes. The time limit of the call covers all of it;
    /// dropping the answer closes the connection.
    pub async fn open(&self, call: Call) -> Result<Opened, CallError> {
        let admitted = self.guard.admit(&call.url)?;
        let client = if admitted.listed { &self.listed } else { &self.checked };
        let request = client.request(call.method, admitted.url.clone()).headers(call.headers).body(call.body);
        let request = match call.timeout {
            Some(timeout) => request.timeout(timeout),
            None => request,
        };
        let mut response = request.send().await.map_err(reason)?;
        // The resolver has vetted what was connected to; this would only see a mistake of ours.
        if let (false, Some(peer)) = (admitted.listed, response.remote_addr()) {
            let address = peer.ip();
            self.guard.address(address).map_err(|Forbidden { why }| Refused::Address { address, why })?;
        }
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let max = self.body_bytes_max;
        Ok(Opened { status, headers, response, max, room: max, excess: call.excess })
    }

    /// Judges a URL without asking anybody: what a caller checks before it spends a token.
    pub fn admit(&self, url: &str) -> Result<reqwest::Url, Refused> {
        Ok(self.guard.admit(url)?.url)
    }

    /// The same client with the same connections, for a URL that the operator wrote: see [`Guard::meaning`].
    #[must_use]
    pub fn meaning(&self, url: &str) -> Http {
        Http { guard: self.guard.meaning(url), ..self.clone() }
    }
}

/// Ring and the certificates of the system, as everywhere in Quell. Without any certificate https fails, plain http
/// works: a development machine may have none.
fn tls(authorities: &[CertificateDer<'static>]) -> Result<ClientConfig, CallError> {
    let refused = |error| CallError::Invalid(format!("TLS cannot be set up: {error}"));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for authority in authorities {
        roots.add(authority.clone()).map_err(refused)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// What an error of the client means for us. A refusal by the guard arrives as the cause of a failed connection.
fn reason(error: reqwest::Error) -> CallError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(refused) = inner.downcast_ref::<Refused>() {
            return CallError::Refused(refused.clone());
        }
        cause = inner.source();
    }
    let error = error.without_url();
    let text = whole(&error);
    if error.is_connect() {
        // Nothing was sent, whether it was refused or took too long.
        CallError::Connect(text)
    } else if error.is_timeout() {
        CallError::TimedOut(text)
    } else if error.is_builder() {
        CallError::Invalid(text)
    } else {
        CallError::Broken(text)
    }
}

/// An error with its causes, in one line. URLs are left out where they may carry keys in their query.
fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
