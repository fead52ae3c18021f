//! `quell.toml` as written. The doc comment of each field is its entry in the reference manual.
//!
//! Every field is optional and unknown ones are refused. Single values are checked here as far as one value can be
//! (a duration, a size, a type); what needs more than one is checked by `resolve.rs` and `queue.rs`. Settings that
//! later versions will know are named here too, so that they are refused by name and not as a misspelling.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::{ConfigError, SourceText};
use super::raw_chat::ChatConfig;
use super::raw_prices::PricesConfig;
use super::value::{DurationText, OneOrMany, SizeText, WordOr, Written};

/// A setting of a later version: read over, then refused with its place.
pub(super) type Later = Option<Written<IgnoredAny>>;

/// The configuration of Quell, `quell.toml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where events are kept: `"sqlite:PATH"`, `"postgres://…"` or `"redis://…"`. Environment `QUELL_STORE`, flag
    /// `--store`; `DATABASE_URL` or `REDIS_URL` are used when none of these is given. Default `"sqlite:./quell.db"`.
    /// A list, `["postgres://…", "postgres://…"]`, is several databases as one store, each of which has a part of the keys: all
    /// processes name the same databases, and databases are added with `quell store move`. In the flag and in the environment
    /// the URLs have commas between them.
    pub store: Option<Written<OneOrMany>>,
    /// The address of the HTTP server, `"host:port"`. Environment `QUELL_LISTEN`; `PORT` replaces only the port; flag
    /// `--listen`. Default `"127.0.0.1:7717"`.
    pub listen: Option<Written<String>>,
    /// A second address, `"host:port"`: then the dashboard, the metrics and everything that looks or steers are only there,
    /// and `listen` takes events in and hands work out. Environment `QUELL_ADMIN_LISTEN`. Default: none.
    pub admin_listen: Option<Written<String>>,
    /// How long finished runs, their events, ids and audit records are kept, `"1h"` at the least: within it a repeated
    /// event id is a duplicate. Environment `QUELL_RETENTION`. Default `"7d"`.
    pub retention: Option<Written<DurationText>>,
    /// How the HTTP server behaves.
    pub server: ServerConfig,
    /// What the dashboard shows.
    pub dashboard: DashboardConfig,
    /// What `http` handlers and the URLs of `notify` may connect to besides the public internet.
    pub outbound: OutboundConfig,
    /// How a worker process behaves, whatever its queues.
    pub worker: WorkerConfig,
    /// The queues by name (`a-z`, `0-9`, `.`, `_`, `-`, at most 64 characters). With a configuration file only these
    /// exist; without one any name is a queue with the defaults.
    #[schemars(with = "BTreeMap<String, QueueConfig>")]
    pub queues: BTreeMap<toml::Spanned<String>, QueueConfig>,

    /// Events by the calendar: each schedule fires once, whatever the number of processes. See `[schedules.NAME]`.
    #[schemars(with = "BTreeMap<String, ScheduleConfig>")]
    pub schedules: BTreeMap<toml::Spanned<String>, ScheduleConfig>,

    /// Outside parties with limits of their own, shared by all workers of the store. See `[sources.NAME]`. A worker with
    /// such sections puts them into the store when it starts, where they are in force for every process at once, and
    /// takes those away that are not in its file; a file without any leaves the store's sources as they are.
    #[schemars(with = "BTreeMap<String, SourceConfig>")]
    pub sources: BTreeMap<toml::Spanned<String>, SourceConfig>,

    /// Where providers send their webhooks: `POST /hooks/NAME`. See `[endpoints.NAME]`.
    #[schemars(with = "BTreeMap<String, EndpointConfig>")]
    pub endpoints: BTreeMap<toml::Spanned<String>, EndpointConfig>,

    /// Transcripts of coding agents: this process reads them. See `[transcripts]`.
    pub transcripts: Option<TranscriptsConfig>,

    /// Chat: one answer per burst of messages, per customer. See `[chat.tenants.NAME]`.
    pub chat: Option<ChatConfig>,

    /// Prices of things, gathered from governed sources, and one value made of them. See `[prices.sources.NAME]`.
    pub prices: Option<PricesConfig>,

    #[schemars(skip)]
    pub(super) notify: Later,
}

impl Config {
    /// Reads the text of a file; `file_name` is only for messages.
    pub fn parse(text: &str, file_name: &str) -> Result<Config, ConfigError> {
        toml::from_str(text).map_err(|e| ConfigError::from_toml(&e, &SourceText::new(file_name, text)))
    }
}

/// `[server]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Names under which the server may be asked for, besides `localhost` and its addresses: `["queue.example.org"]`. On
    /// loopback every other name is refused, so that a web page cannot reach the server by a name of its own; on another
    /// address none means any. Default `[]`.
    pub hosts: Option<Written<Vec<String>>>,
    /// Connections at once, 1 to 65536; one more is told to try again later. Environment `QUELL_SERVER_CONNECTIONS`.
    /// Default `4096`.
    #[schemars(range(min = 1, max = 65536))]
    pub connections: Option<Written<i64>>,
}

/// `[dashboard]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DashboardConfig {
    /// What is not shown of payloads, results, steps and headers: places (`"/card/number"`, `"/items/*/price"`) and names of
    /// members wherever they stand, in any case of letters (`"*token*"`). Stores, handlers and the API have everything.
    /// Default `[]`.
    pub redact: Option<Written<Vec<String>>>,
    /// Where a trace is looked at: an address with `{trace_id}` in it, for events whose sender sent a `traceparent`. Default:
    /// none.
    pub trace_url: Option<Written<String>>,
}

/// `[outbound]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutboundConfig {
    /// Targets (`"app.internal:8080"`) and ranges of addresses (`"10.0.0.0/8"`) that batches may be sent to although they are
    /// private. An address or `localhost` that is written in a URL of this file needs no entry; a name that resolves to a
    /// private address does. Default `[]`.
    pub allow: Option<Written<Vec<String>>>,
}

/// `[transcripts]`: with this section the queue `transcripts` exists, and workers of this file read the transcripts that
/// hooks tell of. Needs SQLite or PostgreSQL.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TranscriptsConfig {
    /// Folders below which transcripts are read; files elsewhere are refused, whatever a hook says. Default: the agent's
    /// own folder, `$CLAUDE_CONFIG_DIR` or `~/.claude`.
    pub roots: Option<Written<Vec<String>>>,
    /// Regular expressions of what must not be stored, besides the built-in ones for common secrets: what they match is
    /// replaced by `[redacted:custom]`. Default `[]`.
    pub redact: Option<Written<Vec<String>>>,
    /// Sessions without any activity for this long are forgotten, `"1h"` at the least. Default: never.
    pub retention: Option<Written<DurationText>>,
}

/// `[worker]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerConfig {
    /// Lanes that this process runs at once, 1 to 4096. Environment `QUELL_WORKER_CONCURRENCY`, flag `--concurrency`.
    /// Default `20`.
    #[schemars(range(min = 1, max = 4096))]
    pub concurrency: Option<Written<i64>>,
    /// After SIGTERM or SIGINT, the time for running handlers to finish before they are handed back. Environment
    /// `QUELL_WORKER_GRACE`, flag `--grace`. Default `"25s"`.
    pub grace: Option<Written<DurationText>>,
    /// How often expired leases are looked for and old records removed (each claim also takes back what it meets).
    /// Environment `QUELL_WORKER_SWEEP_EVERY`. Default `"60s"`.
    pub sweep_every: Option<Written<DurationText>>,
    /// The pause after an unexpected error of the store; one that is merely away is asked again after a second. Environment `QUELL_WORKER_ERROR_WAIT`. Default `"5s"`.
    pub error_wait: Option<Written<DurationText>>,
    /// A store that cannot be reached for this long at start ends the process. Environment
    /// `QUELL_WORKER_START_TIMEOUT`. Default `"10s"`.
    pub start_timeout: Option<Written<DurationText>>,
    /// The name of this worker in listings and logs. Environment `QUELL_WORKER_ID` or `WORKER_ID`. Default: the host
    /// name. Two workers may share a name: leases belong to name, process id and a number drawn at start.
    pub id: Option<Written<String>>,
}

/// `[queues.NAME]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// When the waiting events of a key are handed over: `"none"` (at once), `{ fixed = "65s" }` (after the first
    /// event), or `{ quiet = "2s", max_wait = "20s" }` (when no event came for `quiet`, at the latest `max_wait` after
    /// the first; default 10 × `quiet`). Default `{ quiet = "1s", max_wait = "10s" }`; for the queue `transcripts`
    /// `{ fixed = "2s" }` or environment `DEBOUNCE_SECONDS` (0 = none); with `[prices]` `"none"` for `collect` and
    /// `collect.test`, `{ quiet = "2s", max_wait = "20s" }` for `collect.value`.
    pub window: Option<Written<WindowConfig>>,
    /// A batch has at most this many events, 1 to 10000; that many close a window early. Default `1000`; always 1 for
    /// `collect` and `collect.test` with `[prices]`.
    #[schemars(range(min = 1, max = 10000))]
    pub max_events: Option<Written<i64>>,
    /// A batch has at most this many bytes of payload, up to `"32MiB"`; that many close a window early. A single larger
    /// event goes alone. Default `"4MiB"`.
    pub max_bytes: Option<Written<SizeText>>,
    /// Larger payloads are refused, up to `"4MiB"`. Default `"256KiB"`.
    pub max_payload: Option<Written<SizeText>>,
    /// Events that may wait for one key, 1 to 1000000; further ones are refused. Default `10000`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_lane_events: Option<Written<i64>>,
    /// Events of one tenant that may wait in the queue, over all its keys; at about this depth a server answers further ones
    /// with 429 until there is room. Counted once a second, so a burst may pass it. Default: no bound.
    #[schemars(range(min = 1))]
    pub max_waiting: Option<Written<i64>>,
    /// What happens to an event for a key that has `max_lane_events`: `"reject"` (the sender is told) or
    /// `"drop_oldest"` (the oldest events that wait are discarded, never those of a run). Default `"reject"`.
    pub overflow: Option<Written<String>>,
    /// An event without an id whose payload equals one that still waits is that event again: it is answered with the
    /// first one's receipt and does not move the window. Default `false`.
    pub content_dedupe: Option<Written<bool>>,
    /// What happens to events that arrive while a run of their key is going on: `"queue"` (they wait for the next run),
    /// `"interrupt"` (the handler is stopped, its batch and the newer events become one, no attempt is lost) or
    /// `"gate"` (the handler goes on and asks before its effect whether it is still up to date). Default `"queue"`.
    pub during_run: Option<Written<String>>,
    /// How often one run may give way to newer events, 1 to 100; then they wait for the next run. Default `3`.
    #[schemars(range(min = 1, max = 100))]
    pub max_interrupts: Option<Written<i64>>,
    /// When and how often a run is tried again.
    pub retry: RetryConfig,
    /// What the key does after a failed run: `"continue"` with the next one, `"block"` (wait until an operator redrives
    /// the run or resumes the key) or `"bisect"` (halve the batch until the guilty event is alone). Default
    /// `"continue"`.
    pub on_failed: Option<Written<String>>,
    /// What an unclassified error of a Rust handler (an `Err`, a panic) becomes: `"failed"` or `"retry"`. Default
    /// `"failed"`.
    pub on_error: Option<Written<String>>,
    /// How long a worker owns a run without a sign of life, `"100ms"` to `"24h"`; a crashed worker's run is taken over
    /// after it. Running handlers are renewed, so this does not limit them. Default `"60s"`; for `collect` `"5m"` or
    /// environment `JOB_LOCK_TIMEOUT_SECONDS`; for `transcripts` 30 × its fixed window.
    pub lease: Option<Written<DurationText>>,
    /// Lanes of this queue that one process runs at once, 1 to 4096. Default: `worker.concurrency`.
    #[schemars(range(min = 1, max = 4096))]
    pub concurrency: Option<Written<i64>>,
    /// Runs of this queue, per tenant, that may be going on over all processes together. Default: no bound.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_running: Option<Written<i64>>,
    /// Who handles the batches: `"log"` (writes a line and succeeds), `"pull"` (nobody here; workers elsewhere claim),
    /// `{ exec = ["./handle", "--fast"] }` (a program) or `{ http = "https://…" }` (a service, see below). Default `"log"`.
    pub handler: Option<Written<HandlerConfig>>,

    /// Who is told how a run ended: `{ queue = "…", on = ["succeeded", "failed"] }` puts an event with the outcome into
    /// another queue, in the transaction that ends the run; `{ url = "https://…" }` does so with a queue of its own, whose
    /// events are sent there. Default: nobody.
    pub notify: Option<Written<NotifyConfig>>,

    /// The source that governs the runs of this queue: a run waits, without a worker, a lease or an attempt, until the
    /// source lets it go. It must be in this file. An event may name another one. Default: none.
    pub source: Option<Written<String>>,
}

/// `[sources.NAME]`: the name has at most 64 characters of `a-z`, `0-9`, `.`, `_` and `-`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// Requests per minute in the long run, 1 to 6000000. The claim of a run takes one token, every further request of the
    /// governed client its own. Default: no limit.
    #[schemars(range(min = 1, max = 6_000_000))]
    pub rate_limit_per_minute: Option<Written<i64>>,
    /// Requests at once after a rest, 1 to 10000. Default `1`.
    #[schemars(range(min = 1, max = 10_000))]
    pub burst: Option<Written<i64>>,
    /// When the source is left alone because it does not work.
    pub breaker: BreakerConfig,
    /// Answers that the governed client fetched are kept this long; what the answer itself says may shorten it. Environment
    /// `CACHE_TTL_SECONDS` for all sources. Default `"1h"`.
    pub cache_ttl: Option<Written<DurationText>>,
    /// Whether answers are kept at all. Environment `CACHE_ENABLED` (`true` or `false`) for all sources. Default `true`.
    pub cache: Option<Written<bool>>,
    /// One source for all tenants together; otherwise each tenant has a bucket, a breaker and answers of its own. Default
    /// `false`.
    pub shared: Option<Written<bool>>,
}

/// `breaker = { … }`: after so many faults in a row nobody is let go for the cooldown, then one run probes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Faults in a row that open it, 1 to 1000. Default `5`.
    #[schemars(range(min = 1, max = 1000))]
    pub failures: Option<Written<i64>>,
    /// How long nobody is let go, `"24h"` at the most. Default `"5m"`.
    pub cooldown: Option<Written<DurationText>>,
}

/// `notify = { … }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyConfig {
    /// The queue that is told. It must be in this file, and cannot have a `notify` of its own: notices are never told
    /// of themselves.
    pub queue: Option<Written<String>>,
    /// The service that is told, in place of a queue: notices wait in the queue `notify.NAME`, which this makes, and are sent
    /// from there as by the handler `http`, with the default retries. The name of this queue has at most 57 characters then.
    pub url: Option<Written<String>>,
    /// Which ends are told: `"succeeded"`, `"failed"`, `"cancelled"`. Default `["succeeded", "failed"]`.
    pub on: Option<Written<Vec<String>>>,
    /// With `url`: after this long a notice is tried again, `"24h"` at the most. Default `"30s"`.
    pub timeout: Option<Written<DurationText>>,
    /// With `url`: files with the secrets that sign the notices, as for `handler`.
    pub secret_file: Option<Written<OneOrMany>>,
    /// With `url`: environment variables with the secrets that sign the notices, as for `handler`.
    pub secret_env: Option<Written<OneOrMany>>,
}

/// `[schedules.NAME]`: the name has at most 57 characters of `a-z`, `0-9`, `.`, `_` and `-`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleConfig {
    /// When it fires: five fields, `minute hour day-of-month month day-of-week`, or `@hourly`, `@daily`, `@weekly`,
    /// `@monthly`, `@yearly`. After downtime only the latest missed fire runs. Required.
    pub cron: Option<Written<String>>,
    /// The time zone of the expression, such as `"Europe/Berlin"`. Default `"UTC"`.
    pub zone: Option<Written<String>>,
    /// The queue of the event; it must be in this file. Required.
    pub queue: Option<Written<String>>,
    /// The key of the event. Required.
    pub key: Option<Written<String>>,
    /// The payload of the event, any value; a date becomes a text. Default `{}`.
    #[schemars(with = "Option<serde_json::Value>")]
    pub payload: Option<Written<toml::Value>>,
    /// The tenant of the event. Default: none.
    pub tenant: Option<Written<String>>,
}

/// `[endpoints.NAME]`: `POST /hooks/NAME` of the server, and of its `path` where it has one. The name has at most 64 characters of `a-z`, `0-9`, `.`, `_` and
/// `-`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EndpointConfig {
    /// How the sender proves itself: `"standard"` (Standard Webhooks), `"github"`, `"stripe"`, `"slack"`, `"hmac"` (another
    /// HMAC-SHA256 over the body), `"bearer"` (a token), `"none"`; of the chat `"wati"`, `"twilio"` and `"meta"`. Required.
    pub scheme: Option<Written<String>>,
    /// A file with the secret and nothing else, or a list of them: any of them will do, so a secret is changed by naming
    /// both for a while.
    pub secret_file: Option<Written<OneOrMany>>,
    /// An environment variable with the secret, or a list of them.
    pub secret_env: Option<Written<OneOrMany>>,
    /// For `meta`: a file with the word that Meta is told beside the address, and asks with before its first delivery; or a
    /// list of them. Default: none, and such a question is refused.
    pub verify_token_file: Option<Written<OneOrMany>>,
    /// The same from an environment variable, or a list of them.
    pub verify_token_env: Option<Written<OneOrMany>>,
    /// A second address of the endpoint, such as `"/webhook"`, besides `/hooks/NAME`; for senders whose address cannot be
    /// changed. It must be no path of the server or of another endpoint. Default: none.
    pub path: Option<Written<String>>,
    /// The queue of the events; it must be in this file. Default `"chat"` for `wati`, `twilio` and `meta`, else required.
    pub queue: Option<Written<String>>,
    /// Where the key stands: a JSON pointer (`"/repository/full_name"`), a header (`"header:X-Shop"`) or a fixed text
    /// (`"text:everyone"`); of a list the first that finds something. Required, but for `wati`, `twilio` and `meta`, which
    /// know their customers and have none of `key`, `id`, `payload`, `headers` and `unkeyed`.
    pub key: Option<Written<OneOrMany>>,
    /// Where the id of the event stands, in the same way; `"none"` for no id. A known id is not stored twice. Default: that of
    /// the scheme (`header:webhook-id`, `header:x-github-delivery`, `/id` of Stripe, `/event_id` of Slack), else none.
    pub id: Option<Written<String>>,
    /// For `wati`, `twilio` and `meta`: the name of a conversation, so that the same customer has one for each flow.
    /// Default: none.
    pub flow: Option<Written<String>>,
    /// Which part of the body is the payload, as a JSON pointer. Default: all of it.
    pub payload: Option<Written<String>>,
    /// The tenant of the events. Default: none.
    pub tenant: Option<Written<String>>,
    /// Headers that travel with the event. Default: `["x-github-event"]` for `github`, else `[]`.
    pub headers: Option<Written<Vec<String>>>,
    /// How far the time in a signature may be from ours, `"1s"` to `"1h"`, where there is one. Default `"5m"`.
    pub tolerance: Option<Written<DurationText>>,
    /// What happens to a proven delivery without a key: `"refuse"` (422; most providers send it again, and show it) or
    /// `"ignore"` (200, recorded). Default `"refuse"`.
    pub unkeyed: Option<Written<String>>,
    /// For `hmac` and `bearer`: the header with the signature or the token. Default `"x-signature"` and `"authorization"`
    /// (there after the word `Bearer`).
    pub header: Option<Written<String>>,
    /// For `hmac`: what stands before the signature, such as `"sha256="`. Default `""`.
    pub prefix: Option<Written<String>>,
    /// For `hmac`: `"hex"` or `"base64"`. Default `"hex"`.
    pub encoding: Option<Written<String>>,
    /// For `hmac`: a header with the time in seconds; then `TIME.BODY` is what is signed. Default: none, and the body alone is
    /// signed.
    pub timestamp_header: Option<Written<String>>,
    /// The address under which the provider knows this endpoint, for schemes that sign it. Required for `twilio`.
    pub public_url: Option<Written<String>>,
    /// For `"none"`: take what anybody sends on an address that other machines can reach. Default `false`.
    pub allow_unsigned: Option<Written<bool>>,
}

/// `window`: the word `none`, or a table.
pub type WindowConfig = WordOr<WindowParts>;

/// `window = { … }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WindowParts {
    /// Hand over when no event came for this long.
    pub quiet: Option<Written<DurationText>>,
    /// With `quiet`: hand over this long after the first event at the latest. Default 10 × `quiet`.
    pub max_wait: Option<Written<DurationText>>,
    /// Hand over this long after the first event.
    pub fixed: Option<Written<DurationText>>,
}

/// `retry = { … }`: the n-th retry waits `base` × `factor`^(n-1), at most `cap`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// The wait before the first retry. Default `"1m"`.
    pub base: Option<Written<DurationText>>,
    /// By how much each further wait grows, 1 to 100. Default `2`.
    #[schemars(range(min = 1, max = 100))]
    pub factor: Option<Written<f64>>,
    /// The longest wait. Default `"24h"`.
    pub cap: Option<Written<DurationText>>,
    /// Tries of a run, the first one and crashes included, 1 to 1000; then it has failed. Default `10`; `1` for
    /// `collect.test` with `[prices]`.
    #[schemars(range(min = 1, max = 1000))]
    pub attempts: Option<Written<i64>>,
    /// The share by which chance may shorten a wait, 0 to 1. Default `0.1`.
    #[schemars(range(min = 0, max = 1))]
    pub jitter: Option<Written<f64>>,
    /// What is tried again: `"same"` (exactly the events of the first try) or `"newer"` (together with what arrived since,
    /// except in the last attempt). Default `"same"`; with `during_run = "interrupt"` or `"gate"` always `"newer"`.
    #[serde(rename = "with")]
    pub with: Option<Written<String>>,
}

/// `handler`: the word `log` or `pull`, or a table.
pub type HandlerConfig = WordOr<HandlerParts>;

/// `handler = { exec = […] }` or `handler = { http = "…" }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HandlerParts {
    /// The program and its arguments, started without a shell for each batch, which it reads as JSON from its standard
    /// input. Exit code 0 = succeeded, 65 = failed, anything else, a signal or the time limit = tried again.
    pub exec: Option<Written<Vec<String>>>,
    /// The URL of a service that each batch is sent to as JSON, `POST`. 2xx = succeeded, 409 = gives way to newer events,
    /// 408, 425, 429, 5xx and no answer = tried again, every other status, redirects among them, = failed.
    pub http: Option<Written<String>>,
    /// After this long the run is tried again, and the program with everything in its process group is ended or the
    /// connection closed, `"24h"` at the most. Default `"30s"`.
    pub timeout: Option<Written<DurationText>>,
    /// With `exec`: exit codes that mean failed. Default `[65]`.
    pub fail_exit: Option<Written<Vec<i64>>>,
    /// With `exec`: when given, only these exit codes are tried again (as are signals and the time limit) and every other
    /// one means failed. Default: all that are not in `fail_exit`.
    pub retry_exit: Option<Written<Vec<i64>>>,
    /// With `exec`: names of environment variables that the program receives besides `PATH`, `HOME`, `LANG`, `LC_*`, `TZ`,
    /// `TMPDIR` and the `QUELL_…` ones of its run. Default `[]`.
    pub env: Option<Written<Vec<String>>>,
    /// With `http`: the file with the secret that signs each batch as Standard Webhooks says (`whsec_` and base64 of 24 to
    /// 64 bytes), or a list of such files: each signs, for the time of a change. Default: nothing is signed.
    pub secret_file: Option<Written<OneOrMany>>,
    /// With `http`: the environment variable with such a secret, or a list of names.
    pub secret_env: Option<Written<OneOrMany>>,
}
