//! What the operator has written, and what is in force.
//!
//! Two types and one function between them: [`Config`] is `quell.toml` as written (every field optional, unknown fields
//! refused), [`Settings`] is checked and has no gaps, [`Settings::resolve`] leads from one to the other. Flags and the
//! environment are passed in, so nothing here reads the process; [`Env::from_process`] is for the edge that does.
//!
//! The promise: a setting is either understood and in force, or refused with its place and the fix. Nothing is ignored
//! in silence, and every setting remembers where it came from ([`Settings::explain`]).
//!
//! ```
//! use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
//! use std::collections::BTreeMap;
//!
//! let resolved = |text: &str| {
//!     let config = Config::parse(text, "quell.toml")?;
//!     let config = Some((config, SourceText::new("quell.toml", text)));
//!     Settings::resolve(SettingsInput { config, env: &BTreeMap::new(), flags: Flags::default() })
//! };
//! let settings = resolved("[queues.chat]\nwindow = { quiet = \"2s\" }\n")?;
//! assert_eq!(settings.queues.len(), 1);
//! let mistake = resolved("[queues.chat]\nwindwo = \"none\"\n").unwrap_err().to_string();
//! assert!(mistake.contains("quell.toml:2:1") && mistake.contains("windwo"), "{mistake}");
//! # Ok::<(), quell::config::ConfigError>(())
//! ```
//!
//! Not on the path of an event: read once at start. The engine takes a queue's [`QueueSettings`] from here, the worker
//! its [`WorkerSettings`]; opening the store is left to others.

#[expect(missing_docs, reason = "each field is the setting of the same name, described in `raw_chat.rs`")]
mod chat;
mod endpoint;
mod error;
mod fingerprint;
mod handler;
mod policy;
#[expect(missing_docs, reason = "each field is the setting of the same name, described in `raw_prices.rs`")]
mod prices;
mod prices_ebay;
mod prices_json;
mod prices_source;
mod queue;
mod raw;
mod raw_chat;
mod raw_prices;
mod resolve;
mod resolver;
mod schedule;
mod schema;
mod secret;
mod source;
mod store;
mod tenants;
mod value;

#[cfg(test)]
mod chat_tests;
#[cfg(test)]
mod endpoint_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod prices_tests;
#[cfg(test)]
mod push_tests;
#[cfg(test)]
mod source_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quell_core::cron::{Cron, Zone};
use quell_core::event::{AppendPolicy, Key, Payload, QueueName, Tenant};
use quell_core::limits;
use quell_core::retry::RetryPolicy;
use quell_core::source::Declaration;
use quell_core::store::RunPolicy;
use quell_fetch::Allow;
use quell_webhook::{Rules, Scheme};

use crate::redact::RedactRule;

pub use chat::{
    Aggregation, CHAT, CHAT_FAILED, ChatModelSettings, ChatSettings, ChatTenant, MetaSettings, PromptSource,
    TwilioSettings, WatiSettings,
};
pub use endpoint::SERVER_PATHS;
pub use error::{ConfigError, Place, SourceText};
pub use prices::{
    AdapterSettings, COLLECT, COLLECT_TEST, COLLECT_VALUE, EbaySettings, JsonSourceSettings, MatchSettings,
    Paging, PriceFields, PriceSourceSettings, PriceType, PriceValueSettings, PricesSettings,
};
pub use raw::{
    BreakerConfig, Config, DashboardConfig, EndpointConfig, HandlerConfig, HandlerParts, NotifyConfig,
    OutboundConfig, QueueConfig, RetryConfig, ScheduleConfig, ServerConfig, SourceConfig, TranscriptsConfig,
    WindowConfig, WindowParts, WorkerConfig,
};
pub use raw_chat::{ChatConfig, ChatModelConfig, ChatTenantConfig, MetaConfig, TwilioConfig, WatiConfig};
pub use raw_prices::{
    MatchConfig, PagingConfig, PriceFieldsConfig, PriceSourceConfig, PriceValueConfig, PricesConfig,
};
pub use schema::{json_schema, reference, template};
pub use secret::SecretSource;
pub use store::{StoreChoice, StoreKind, StoreUrl};
pub use tenants::{ByTenant, TenantPolicy};
pub use value::{DurationText, OneOrMany, SizeText, WordOr, Written};

/// Where HTTP is served when nobody says otherwise.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7717";

/// The settings in force: checked, complete.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where events are kept, and who said so.
    pub store: StoreChoice,
    /// `host:port`, checked.
    pub listen: String,
    /// A second `host:port` for everything but events in and work out.
    pub admin_listen: Option<String>,
    /// `[server]`.
    pub server: ServerSettings,
    /// `[dashboard]`.
    pub dashboard: DashboardSettings,
    /// What `http` handlers may connect to besides the public internet.
    pub outbound: Allow,
    /// `[worker]`.
    pub worker: WorkerSettings,
    /// Finished runs, their events, ids and audit are kept this long.
    pub retention: Duration,
    /// The queues of the configuration file; empty without one.
    pub queues: BTreeMap<QueueName, Arc<QueueSettings>>,
    /// The schedules of the configuration file, which a worker puts into the store; nothing without a file, and then the
    /// store's schedules are left as they are.
    pub schedules: Option<Vec<ScheduleSettings>>,
    /// The sources of the configuration file or the program, which are put into the store; empty means that the store's
    /// are left as they are.
    pub sources: Vec<Declaration>,
    /// Where providers send their webhooks; what the server takes is in `crate::endpoints`.
    pub endpoints: Vec<Arc<EndpointSettings>>,
    /// What `[transcripts]` says; nothing when the file has no such section.
    pub transcripts: Option<TranscriptsSettings>,
    /// What `[chat]` says; nothing when the file has no such section.
    pub chat: Option<ChatSettings>,
    /// What `[prices]` says; nothing when the file has no such section.
    pub prices: Option<PricesSettings>,
    /// How a queue of any name behaves. Only without a configuration file; with one, unknown queues do not exist.
    pub default_queue: Option<Arc<QueueSettings>>,
    /// What is suspicious and yet no error, in full sentences, for the start of a program.
    pub warnings: Vec<String>,
    /// Queues with defaults of their own while any name is allowed (`collect`, `transcripts`).
    special: BTreeMap<QueueName, Arc<QueueSettings>>,
    explained: Vec<Explained>,
}

impl Settings {
    /// The settings of a queue, or nothing when a configuration file exists and does not name it.
    pub fn queue(&self, name: &QueueName) -> Option<Arc<QueueSettings>> {
        if let Some(known) = self.queues.get(name).or_else(|| self.special.get(name)) {
            return Some(Arc::clone(known));
        }
        let default = self.default_queue.as_deref()?;
        Some(Arc::new(QueueSettings { name: name.clone(), ..default.clone() }))
    }

    /// Every setting in force with its origin, in the order of a configuration file. Secrets are not in it.
    pub fn explain(&self) -> Vec<Explained> {
        self.explained.clone()
    }

    /// The names of settings that are not what they were before, also of those that only one of the two has.
    pub fn changed_since(&self, before: &Settings) -> Vec<String> {
        let values = |settings: &Settings| -> BTreeMap<String, String> {
            let one = |line: &Explained| (line.setting.clone(), line.value.clone());
            settings.explained.iter().map(one).collect()
        };
        let (old, new) = (values(before), values(self));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        names.into_iter().filter(|name| old.get(*name) != new.get(*name)).cloned().collect()
    }
}

/// One line of `quell check`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Explained {
    /// The path as in the file: `queues.chat.lease`.
    pub setting: String,
    /// As it would be written, passwords replaced.
    pub value: String,
    /// Who said so.
    pub origin: Origin,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum Origin {
    /// A command line flag, as typed: `--store`.
    Flag(&'static str),
    /// An environment variable.
    Env(&'static str),
    /// A line of the configuration file, counted from 1.
    File { line: usize },
    /// Nobody: it is the built-in value.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(name) => write!(f, "{name}"),
            Origin::Env(name) => write!(f, "environment {name}"),
            Origin::File { line } => write!(f, "file line {line}"),
            Origin::Default => write!(f, "default"),
        }
    }
}

/// How the HTTP server behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Names under which it may be asked for, besides loopback's own.
    pub hosts: Vec<String>,
    /// Connections at once.
    pub connections: usize,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings { hosts: Vec::new(), connections: ServerSettings::CONNECTIONS_DEFAULT }
    }
}

impl ServerSettings {
    /// A thousand pull workers that wait still leave room.
    pub const CONNECTIONS_DEFAULT: usize = 4_096;
    /// Descriptors of a process are few.
    pub const CONNECTIONS_MAX: usize = 65_536;
}

/// What the dashboard shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DashboardSettings {
    /// What it does not show of payloads.
    pub redact: Vec<RedactRule>,
    /// Where a trace is looked at, with `{trace_id}` in it.
    pub trace_url: Option<String>,
}

/// How transcripts of coding agents are read; the application checks the patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptsSettings {
    /// Empty means the agent's own folder.
    pub roots: Vec<std::path::PathBuf>,
    /// Patterns of secrets beside the built-in ones.
    pub redact: Vec<String>,
    /// How long sessions are kept; for ever without.
    pub retention: Option<Duration>,
}

/// How a worker process behaves, whatever its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The name shown to people; nothing means the host name, which the edge finds out.
    pub id: Option<String>,
    /// Lanes at once in this process.
    pub concurrency: usize,
    /// Time for running handlers to finish after a signal, before they are handed back.
    pub grace: Duration,
    /// How often expired leases are looked for and old records removed.
    pub sweep_every: Duration,
    /// The pause after an unexpected error.
    pub error_wait: Duration,
    /// A store unreachable for this long at start ends the process.
    pub start_timeout: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings {
            id: None,
            concurrency: limits::CONCURRENCY_DEFAULT,
            grace: Duration::from_secs(25),
            sweep_every: Duration::from_secs(60),
            error_wait: Duration::from_secs(5),
            start_timeout: Duration::from_secs(10),
        }
    }
}

/// Everything about one queue. Appends and claims carry the two policies; they are shared, so a copy is cheap.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSettings {
    /// Its name, by which events name it.
    pub name: QueueName,
    /// What is decided when an event arrives: its window and its bounds.
    pub append: Arc<AppendPolicy>,
    /// What is decided when a lane is claimed and when its run ends.
    pub run: Arc<RunPolicy>,
    /// When a run that did not succeed is tried again, and how often.
    pub retry: RetryPolicy,
    /// What an unclassified error of a handler means.
    pub on_error: OnError,
    /// Lanes of this queue at once in one process.
    pub concurrency: usize,
    /// Events of one tenant that may wait here before a server refuses more.
    pub max_waiting: Option<u64>,
    /// Who handles its batches.
    pub handler: HandlerSettings,
    /// Policies of single tenants.
    pub tenants: ByTenant,
}

impl QueueSettings {
    /// How an event of this tenant is taken in.
    pub fn append_policy(&self, tenant: &Tenant) -> Arc<AppendPolicy> {
        self.tenants.append_policy(tenant).unwrap_or_else(|| self.append.clone())
    }

    /// The built-in defaults: quiet 1 s, cap 10 s, lease 60 s, ten attempts, handler `log`.
    pub fn defaults(name: QueueName) -> Self {
        let retry = RetryPolicy::default();
        QueueSettings {
            name,
            append: Arc::new(AppendPolicy::default()),
            run: Arc::new(RunPolicy { max_attempts: retry.attempts, ..RunPolicy::default() }),
            retry,
            on_error: OnError::Failed,
            concurrency: limits::CONCURRENCY_DEFAULT,
            max_waiting: None,
            handler: HandlerSettings::Log,
            tenants: ByTenant::default(),
        }
    }
}

/// One schedule: what fires when.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSettings {
    /// Whose schedule it is; its events belong to the same tenant.
    pub tenant: Tenant,
    /// Unique within its tenant.
    pub name: QueueName,
    /// When it fires.
    pub cron: Cron,
    /// The time zone whose clock `cron` means.
    pub zone: Zone,
    /// Where its events go.
    pub queue: QueueName,
    /// Whose events they are.
    pub key: Key,
    /// What they say.
    pub payload: Payload,
}

/// One endpoint for webhooks. Its secrets are named, not known.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// The last part of its address, `/hooks/NAME`.
    pub name: String,
    /// How a delivery proves itself and is read.
    pub scheme: Arc<dyn Scheme>,
    /// Where the secrets are; any of them proves a delivery.
    pub secrets: Vec<SecretSource>,
    /// Where the words are that prove a question before the first delivery.
    pub verify: Vec<SecretSource>,
    /// Where it is found besides `/hooks/NAME`.
    pub path: Option<String>,
    /// How far the time in a signature may be from ours.
    pub tolerance: Duration,
    /// The address that the provider knows, for schemes that sign it.
    pub public_url: Option<String>,
    /// Where key, id and payload stand in a delivery.
    pub rules: Rules,
    /// Where its events go.
    pub queue: QueueName,
    /// Whose events they are.
    pub tenant: Tenant,
    /// What happens to a proven delivery in which no key is found.
    pub unkeyed: Unkeyed,
    /// Anybody may send, from anywhere.
    pub allow_unsigned: bool,
}

/// What happens to a proven delivery in which no key is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unkeyed {
    /// The sender is told, and sends it again when the rule is mended.
    Refuse,
    /// The sender is told that all is well; the delivery is only recorded.
    Ignore,
}

/// What an unclassified error of a Rust handler (an `Err`, a panic) becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The run has failed: it is in the dead letter.
    Failed,
    /// The run is tried again, as often as the queue allows.
    Retry,
}

/// Who handles the batches of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerSettings {
    /// One line in the log, then succeeded.
    Log,
    /// Nobody in this process: workers elsewhere claim over HTTP.
    Pull,
    /// A program started for each batch.
    Exec(ExecSettings),
    /// A service that each batch is sent to.
    Http(PushSettings),
    /// The application whose queue this is, which the program brings along ([`crate::worker::OwnHandler`]); nobody in a
    /// program that has it not.
    App,
}

/// How a program is started and what its exit codes mean. 0 is always succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSettings {
    /// The program and its arguments, exactly these; never empty.
    pub argv: Vec<String>,
    /// After this long the program and its whole process group are ended and the run is retried.
    pub timeout: Duration,
    /// Exit codes that mean failed.
    pub fail_exit: Vec<i32>,
    /// When given, only these codes are retried and every other one fails; when not, all but `fail_exit` are.
    pub retry_exit: Option<Vec<i32>>,
    /// Names of environment variables handed on besides the built-in list.
    pub env: Vec<String>,
}

impl ExecSettings {
    /// How long a program may run when nobody says otherwise.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
    /// `EX_DATAERR` of sysexits: the input was wrong, trying again cannot help.
    pub const FAIL_EXIT_DEFAULT: i32 = 65;

    /// A program with the default time limit and exit codes.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        ExecSettings {
            argv: argv.into_iter().map(Into::into).collect(),
            timeout: Self::TIMEOUT_DEFAULT,
            fail_exit: vec![Self::FAIL_EXIT_DEFAULT],
            retry_exit: None,
            env: Vec::new(),
        }
    }
}

/// Where batches are sent, and how they are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSettings {
    /// Judged when the settings are resolved, when the handler is made and at each connection.
    pub url: String,
    /// From the name to the last byte of the answer; then the run is tried again.
    pub timeout: Duration,
    /// Each of them signs; with none, batches go out unsigned.
    pub secrets: Vec<SecretSource>,
}

impl PushSettings {
    /// How long a service may take when nobody says otherwise.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

    /// Unsigned and with the default time limit.
    pub fn new(url: impl Into<String>) -> Self {
        PushSettings { url: url.into(), timeout: Self::TIMEOUT_DEFAULT, secrets: Vec::new() }
    }

    /// The URL for people, without its query: keys of services often stand there.
    pub fn target(&self) -> String {
        match self.url.split_once(['?', '#']) {
            Some((target, _)) => format!("{target}?…"),
            None => self.url.clone(),
        }
    }
}

/// What the command line says; a flag wins over everything else.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--store`
    pub store: Option<String>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--concurrency`
    pub concurrency: Option<usize>,
    /// `--grace`
    pub grace: Option<Duration>,
    /// `--handler log` or `--handler pull`: for all queues, only without a configuration file.
    pub handler: Option<String>,
}

/// Everything that [`Settings::resolve`] looks at.
#[derive(Debug)]
pub struct SettingsInput<'a> {
    /// The file, as it was read.
    pub config: Option<(Config, SourceText)>,
    /// The environment of the process.
    pub env: &'a BTreeMap<String, String>,
    /// What the command line said, which counts more than all others.
    pub flags: Flags,
}

/// The process environment, read once at the edge.
#[derive(Debug)]
pub struct Env;

impl Env {
    /// All variables. What is not UTF-8 is kept with replacement characters, so that a broken `QUELL_STORE` is refused
    /// by name and never taken for a missing one.
    pub fn from_process() -> BTreeMap<String, String> {
        std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect()
    }
}
