//! Where the database is and how to talk to it: a URL with a few words of ours among its parameters.
//!
//! `postgres://user:password@host:port/database?sslmode=verify-full&schema=quell&statement_mode=named&pool=8`

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Connections of one process unless the URL says otherwise; one more listens for wake-ups.
const POOL_DEFAULT: usize = 8;
const POOL_MAX: usize = 256;
const SCHEMA_DEFAULT: &str = "quell";
/// PostgreSQL cuts longer names off.
const SCHEMA_BYTES_MAX: usize = 63;

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementMode {
    /// Prepared once per connection: the fastest, and what a direct connection should use.
    Named,
    /// Sent whole every time, with nothing kept in the session: works behind every pooler.
    Unnamed,
}

impl StatementMode {
    /// The word in the URL.
    pub fn as_str(self) -> &'static str {
        match self {
            StatementMode::Named => "named",
            StatementMode::Unnamed => "unnamed",
        }
    }
}

/// How sure the connection must be of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Never encrypted.
    Disable,
    /// Encrypted if the server offers it.
    Prefer,
    /// Encrypted or not at all; whoever answers is believed.
    Require,
    /// Encrypted, and the certificate must be the host's.
    VerifyFull,
}

/// What [`crate::PostgresStore::open`] needs to know.
#[derive(Clone)]
pub struct Options {
    pub(crate) config: Config,
    pub(crate) listen: Option<Config>,
    /// The schema that holds Quell's tables; made if it does not exist.
    pub schema: String,
    /// Whether statements are kept in the session: not behind a transaction pooler.
    pub statement_mode: StatementMode,
    /// How much of an encryption is demanded.
    pub tls: Tls,
    /// Certificates to trust in place of the system's, as a PEM file.
    pub root_certificates: Option<PathBuf>,
    /// Connections at the most, without the one that listens.
    pub pool: usize,
}

impl Options {
    /// Reads a URL (or a `key=value` text without words of ours).
    pub fn parse(url: &str) -> StoreResult<Self> {
        let (address, parameters) = match url.split_once('?') {
            Some((address, parameters)) => (address, parameters),
            None => (url, ""),
        };
        let mut options = Options {
            config: Config::new(),
            listen: None,
            schema: SCHEMA_DEFAULT.to_owned(),
            statement_mode: StatementMode::Named,
            tls: Tls::Prefer,
            root_certificates: None,
            pool: POOL_DEFAULT,
        };
        let mut theirs = Vec::new();
        for parameter in parameters.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if !options.take(name, &decoded(value)?)? {
                theirs.push(parameter);
            }
        }
        let rest =
            if theirs.is_empty() { address.to_owned() } else { format!("{address}?{}", theirs.join("&")) };
        options.config = Config::from_str(&rest).map_err(|error| {
            let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            invalid(format!(
                "the PostgreSQL URL cannot be read ({why}); it looks like postgres://user:password@host:5432/database"
            ))
        })?;
        options.complete()
    }

    /// Takes a parameter that is ours. Says whether it was.
    fn take(&mut self, name: &str, value: &str) -> StoreResult<bool> {
        match name {
            "schema" => self.schema = check_schema(value)?,
            "statement_mode" => {
                self.statement_mode = match value {
                    "named" => StatementMode::Named,
                    "unnamed" => StatementMode::Unnamed,
                    _ => return Err(unknown(name, value, "named and unnamed")),
                }
            }
            "sslmode" => {
                self.tls = match value {
                    "disable" => Tls::Disable,
                    "prefer" => Tls::Prefer,
                    "require" => Tls::Require,
                    "verify-full" => Tls::VerifyFull,
                    _ => return Err(unknown(name, value, "disable, prefer, require and verify-full")),
                }
            }
            "sslrootcert" => self.root_certificates = Some(PathBuf::from(value)),
            "pool" => {
                self.pool = value.parse().ok().filter(|n| (2..=POOL_MAX).contains(n)).ok_or_else(|| {
                    invalid(format!("pool={value} in the PostgreSQL URL is not between 2 and {POOL_MAX}"))
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn complete(mut self) -> StoreResult<Self> {
        if self.config.get_hosts().is_empty() {
            return Err(invalid("the PostgreSQL URL names no host".to_owned()));
        }
        if self.config.get_user().is_none() {
            return Err(invalid("the PostgreSQL URL names no user".to_owned()));
        }
        prepare(&mut self.config, self.tls);
        Ok(self)
    }

    /// Another way to the same database for the connection that listens for wake-ups: past a pooler, which cannot pass
    /// them on.
    pub fn listening_at(mut self, url: &str) -> StoreResult<Self> {
        let other = Options::parse(url)?;
        self.listen = Some(other.config);
        Ok(self)
    }

    /// Where the store is, without the password.
    pub fn place(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "?".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let database = self.database();
        format!("postgres://{host}:{port}/{database}?schema={}", self.schema)
    }

    pub(crate) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("?")
    }

    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_else(|| self.user())
    }
}

/// Never shows the password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, mode, tls, pool) = (self.place(), self.statement_mode, self.tls, self.pool);
        write!(f, "Options({place}, {mode:?}, {tls:?}, {pool} connections)")
    }
}

/// What every connection has, whatever the URL says.
fn prepare(config: &mut Config, tls: Tls) {
    config.ssl_mode(match tls {
        Tls::Disable => SslMode::Disable,
        Tls::Prefer => SslMode::Prefer,
        Tls::Require | Tls::VerifyFull => SslMode::Require,
    });
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(crate::connection::CONNECT);
    }
    // A server that has vanished without a word is noticed while a call still waits for it.
    config.keepalives_idle(std::time::Duration::from_secs(15));
    config.tcp_user_timeout(std::time::Duration::from_secs(15));
    if config.get_application_name().is_none() {
        config.application_name("quell");
    }
    if config.get_password().is_none()
        && let Ok(password) = std::env::var("PGPASSWORD")
    {
        config.password(password);
    }
}

/// A name that means the same with and without quotes.
fn check_schema(name: &str) -> StoreResult<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if begins && name.len() <= SCHEMA_BYTES_MAX && name.chars().all(allowed) && !name.starts_with("pg_") {
        return Ok(name.to_owned());
    }
    Err(invalid(format!(
        "schema={name:?} in the PostgreSQL URL is not 1 to {SCHEMA_BYTES_MAX} characters of a-z, 0-9 and '_' that begin with \
         a letter"
    )))
}

fn unknown(name: &str, value: &str, known: &str) -> StoreError {
    invalid(format!("{name}={value} in the PostgreSQL URL is unknown; there are {known}"))
}

fn invalid(detail: String) -> StoreError {
    StoreError::new(ErrorKind::Invalid, detail)
}

fn decoded(text: &str) -> StoreResult<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.ok_or_else(|| {
            invalid("a % in the PostgreSQL URL is not followed by two hexadecimal digits".into())
        })?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| invalid("a parameter of the PostgreSQL URL is not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_ours_are_taken_and_others_go_to_the_driver() {
        let url = "postgres://ada:s%20ecret@db.example:6432/app?schema=jobs&statement_mode=unnamed&pool=3&sslmode=verify-full&connect_timeout=2";
        let options = Options::parse(url).unwrap();
        assert_eq!((options.schema.as_str(), options.pool), ("jobs", 3));
        assert_eq!((options.statement_mode, options.tls), (StatementMode::Unnamed, Tls::VerifyFull));
        assert_eq!(options.config.get_connect_timeout(), Some(&std::time::Duration::from_secs(2)));
        assert_eq!(options.config.get_password(), Some(&b"s ecret"[..]));
        assert_eq!(options.place(), "postgres://db.example:6432/app?schema=jobs");
        assert!(!format!("{options:?}").contains("ecret"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        let url = |rest: &str| format!("postgres://ada:secret@h/db?{rest}");
        for (rest, says) in [
            ("schema=Jobs", "a-z, 0-9"),
            ("schema=pg_x", "a-z, 0-9"),
            ("statement_mode=x", "named and unnamed"),
            ("sslmode=maybe", "verify-full"),
            ("pool=1", "between 2 and 256"),
            ("nonsense=1", "postgres://user:password@host"),
            ("schema=%zz", "hexadecimal"),
        ] {
            let error = Options::parse(&url(rest)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid, "{rest}");
            assert!(error.detail.contains(says), "{rest}: {error}");
            assert!(!error.detail.contains("secret"), "{error}");
        }
        assert!(Options::parse("postgres:///db").unwrap_err().detail.contains("no host"));
        assert!(Options::parse("postgres://h/db").unwrap_err().detail.contains("no user"));
    }
}
