//! From what is written to what is in force: flag > `QUELL_…` > older name > file > default.
//!
//! [`Settings::resolve`] is the one function between [`Config`](super::Config) and [`Settings`]. Every value goes
//! through [`Resolver`], which picks the winner. Here are the settings of the whole process; queues are resolved next
//! door in `queue.rs`, single values were already checked by `value.rs`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use quell_core::event::QueueName;
use quell_core::lane::DuringRun;
use quell_core::limits;
use quell_core::source::Declaration;
use quell_fetch::{Allow, Guard};
use quell_webhook::Schemes;

use crate::redact::RedactRule;

use super::chat::{CHAT, CHAT_FAILED, attach_chat, check_endpoint, resolve_chat};
use super::endpoint::{resolve_endpoint, same_path};
use super::error::{ConfigError, Place, distance};
use super::policy::{attach_notify, notify_queues};
use super::prices::{COLLECT, COLLECT_TEST, COLLECT_VALUE, resolve_prices};
use super::queue::{Applications, QueueSources, TRANSCRIPTS, resolve_queue};
use super::raw::{
    DashboardConfig, OutboundConfig, QueueConfig, ServerConfig, TranscriptsConfig, WorkerConfig,
};
use super::resolver::{Found, Resolver};
use super::schedule::{never_fires, resolve_schedule};
use super::source::resolve_source;
use super::store::{StoreChoice, StoreKind, StoreUrl};
use super::value::{OneOrMany, Written};
use super::{
    DashboardSettings, Explained, Flags, HandlerSettings, LISTEN_DEFAULT, Origin, QueueSettings,
    ServerSettings, Settings, SettingsInput, TranscriptsSettings, WorkerSettings,
};

/// The longest of the small waits of a worker; more is a mistake.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Answers to repeated settles must stay available for an hour, so nothing finished goes earlier.
const RETENTION_MIN: Duration = Duration::from_secs(3600);
const RETENTION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Queues whose defaults differ, because they stand for older systems with names of their own in the environment.
const SPECIAL_QUEUES: [&str; 2] = [COLLECT, TRANSCRIPTS];
/// Every environment variable of ours that is read here, to recognise misspelt ones.
const ENV_NAMES: [&str; 11] = [
    "QUELL_STORE",
    "QUELL_LISTEN",
    "QUELL_ADMIN_LISTEN",
    "QUELL_SERVER_CONNECTIONS",
    "QUELL_RETENTION",
    "QUELL_WORKER_ID",
    "QUELL_WORKER_CONCURRENCY",
    "QUELL_WORKER_GRACE",
    "QUELL_WORKER_SWEEP_EVERY",
    "QUELL_WORKER_ERROR_WAIT",
    "QUELL_WORKER_START_TIMEOUT",
];

impl Settings {
    /// Checks everything and fills every gap, or says what is wrong and how to mend it.
    pub fn resolve(input: SettingsInput<'_>) -> Result<Settings, ConfigError> {
        Settings::resolve_with(input, &Schemes::built_in())
    }

    /// The same for a program that knows more ways to prove a webhook.
    pub fn resolve_with(input: SettingsInput<'_>, schemes: &Schemes) -> Result<Settings, ConfigError> {
        let (config, source) = input.config.unzip();
        let has_file = config.is_some();
        let config = config.unwrap_or_default();
        let mut r = Resolver { source, env: input.env, explained: Vec::new() };
        if let Some(written) = &config.notify {
            let found = r.placed(written.clone());
            let help = "write it into a queue's section: notify = { queue = \"…\", on = [\"failed\"] }";
            return Err(r.error(&found, "notify belongs to a queue").help(help));
        }

        let store = r.store(&input.flags, config.store)?;
        let listen = r.listen(&input.flags, config.listen)?;
        let admin_listen = r.admin_listen(config.admin_listen)?;
        let server = r.server(config.server)?;
        let dashboard = r.dashboard(config.dashboard)?;
        let outbound = r.outbound(config.outbound)?;
        let retention = r.duration(
            "retention",
            None,
            &["QUELL_RETENTION"],
            config.retention,
            limits::RETENTION_DEFAULT,
            RETENTION_MIN..=RETENTION_MAX,
        )?;
        let worker = r.worker(&input.flags, config.worker)?;

        let mut declared = Vec::new();
        for (key, source) in config.sources {
            let name = r.named(key);
            declared.push(resolve_source(&mut r, &name, source)?);
        }
        let guard = Guard::new(outbound.clone());
        let mut warnings = misspelt_names(r.env);
        let chat = config
            .chat
            .map(|file| resolve_chat(&mut r, file, &declared, &guard, &mut warnings))
            .transpose()?;
        if let Some(chat) = &chat {
            declared.extend(chat.own_sources(&declared));
        }
        let prices = config
            .prices
            .map(|file| resolve_prices(&mut r, file, &declared, &guard, &mut warnings))
            .transpose()?;
        let (prices, own) = prices.unzip();
        declared.extend(own.into_iter().flatten());
        let applications = Applications { chat: chat.is_some(), prices: prices.is_some() };
        let sources =
            QueueSources::read(&r, worker.concurrency, declared.clone(), guard.clone(), applications)?;
        let transcripts = config.transcripts.map(|section| r.transcripts(section)).transpose()?;
        let (mut queues, mut wishes) = (BTreeMap::new(), Vec::new());
        for (key, queue) in config.queues {
            let span = key.span();
            let origin = r.file_origin(&span);
            let name = QueueName::new(key.get_ref())
                .map_err(|e| ConfigError::at(&origin, r.source.as_ref(), span, e.to_string()))?;
            let (settings, notify) = resolve_queue(&mut r, &sources, name.as_str(), name.clone(), queue)?;
            wishes.extend(notify.map(|wish| (name.clone(), wish)));
            queues.insert(name, Arc::new(settings));
        }
        let own = [
            transcripts.as_ref().map(|_| &[TRANSCRIPTS][..]),
            chat.as_ref().map(|_| &[CHAT, CHAT_FAILED][..]),
            prices.as_ref().map(|_| &[COLLECT, COLLECT_TEST, COLLECT_VALUE][..]),
        ];
        for name in own.into_iter().flatten().flatten().copied() {
            let own = QueueName::new(name).expect("the name is written in this program and is valid");
            if let Entry::Vacant(free) = queues.entry(own.clone()) {
                let (settings, _) = resolve_queue(&mut r, &sources, name, own, QueueConfig::default())?;
                free.insert(Arc::new(settings));
            }
        }
        notify_queues(&mut r, &sources, &mut queues, &wishes)?;
        attach_notify(&r, &mut queues, wishes)?;
        if let Some(chat) = &chat {
            attach_chat(&r, &mut queues, chat)?;
        }
        check_divided(&store, &queues, &declared)?;
        let mut schedules = Vec::new();
        for (key, schedule) in config.schedules {
            let name = r.named(key);
            schedules.push(resolve_schedule(&mut r, &name, schedule, &queues)?);
        }
        let mut endpoints = Vec::new();
        for (key, endpoint) in config.endpoints {
            let name = r.named(key);
            let endpoint = resolve_endpoint(&mut r, &name, endpoint, &queues, schemes)?;
            check_endpoint(&r, &name, &endpoint, chat.as_ref())?;
            same_path(&r, &name, &endpoint, &endpoints)?;
            endpoints.push(Arc::new(endpoint));
        }
        let (default_queue, special) = match (has_file, input.flags.handler) {
            (false, handler) => r.without_file(&sources, handler.as_deref())?,
            (true, None) => Default::default(),
            (true, Some(_)) => {
                let problem = "only for use without a configuration file";
                return Err(ConfigError::new(Place::Flag("--handler"), problem)
                    .help("write `handler` into the queue's section of the file"));
            }
        };
        warnings.extend(schedules.iter().filter_map(never_fires));
        warnings.extend(queues.values().filter_map(|queue| never_asks(queue)));
        warnings.extend(queues.values().filter_map(|queue| unsigned(queue, &guard)));
        Ok(Settings {
            store,
            listen,
            admin_listen,
            server,
            dashboard,
            outbound,
            worker,
            retention,
            queues,
            schedules: has_file.then_some(schedules),
            sources: declared,
            transcripts,
            chat,
            prices,
            endpoints,
            default_queue,
            warnings,
            special,
            explained: r.explained,
        })
    }
}

/// Limits that each database counts for itself are divided among them, so each must get at least one.
fn check_divided(
    store: &StoreChoice,
    queues: &BTreeMap<QueueName, Arc<QueueSettings>>,
    declared: &[Declaration],
) -> Result<(), ConfigError> {
    let StoreKind::Several(urls) = store.url.kind() else { return Ok(()) };
    let many = urls.len();
    let too_small = |limit: Option<u32>| limit.filter(|limit| (*limit as usize) < many);
    let queue = queues.iter().find_map(|(name, queue)| {
        too_small(queue.run.max_running).map(|n| format!("queue {name}: max_running = {n}"))
    });
    let source = declared.iter().find_map(|source| {
        let rate = too_small(source.rules.per_minute)?;
        Some(format!("source {}: {rate} requests per minute", source.name))
    });
    let Some(what) = queue.or(source) else { return Ok(()) };
    let problem = format!("{what} cannot be divided among the {many} databases of the store");
    let help =
        format!("each database counts its own part: allow at least {many}, or use a store of one database");
    Err(ConfigError::new(Place::Nowhere, problem).help(help))
}

type DefaultQueues = (Option<Arc<QueueSettings>>, BTreeMap<QueueName, Arc<QueueSettings>>);

impl Resolver<'_> {
    fn store(&mut self, flags: &Flags, file: Option<Written<OneOrMany>>) -> Result<StoreChoice, ConfigError> {
        let file = file.map(|w| Written { value: w.value.0.join(","), span: w.span });
        let flag =
            flags.store.clone().map(|value| Found { value, origin: Origin::Flag("--store"), span: 0..0 });
        let own = |name| {
            self.env(name).map(|f| Found { value: f.value.to_owned(), origin: f.origin, span: f.span })
        };
        let found = match flag.or_else(|| own("QUELL_STORE")).or_else(|| file.map(|w| self.placed(w))) {
            Some(found) => found,
            None => match (own("DATABASE_URL"), own("REDIS_URL")) {
                (Some(_), Some(_)) => {
                    let problem =
                        "DATABASE_URL and REDIS_URL are both set, so it is unclear which store is meant";
                    return Err(ConfigError::new(Place::Nowhere, problem).help(
                        "say it with --store, QUELL_STORE or `store` in quell.toml, or unset one of them",
                    ));
                }
                (Some(found), None) | (None, Some(found)) => found,
                (None, None) => {
                    Found { value: "sqlite:./quell.db".to_owned(), origin: Origin::Default, span: 0..0 }
                }
            },
        };
        let url = StoreUrl::parse(&found.value).map_err(|problem| self.error(&found, problem))?;
        self.note("store", url.to_string(), &found.origin);
        Ok(StoreChoice { url, origin: found.origin })
    }

    fn listen(&mut self, flags: &Flags, file: Option<Written<String>>) -> Result<String, ConfigError> {
        let flag =
            flags.listen.clone().map(|value| Found { value, origin: Origin::Flag("--listen"), span: 0..0 });
        let default = Found { value: LISTEN_DEFAULT.to_owned(), origin: Origin::Default, span: 0..0 };
        let owned = |f: Found<&str>| Found { value: f.value.to_owned(), origin: f.origin, span: f.span };
        let mut found = match flag.or_else(|| self.env("QUELL_LISTEN").map(owned)) {
            Some(found) => found,
            None => {
                let base = file.map(|w| self.placed(w)).unwrap_or(default);
                match self.env("PORT").map(owned) {
                    // PORT is a platform's word for the port alone; the host stays what the file or the default says.
                    Some(port) => {
                        let host = base.value.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host);
                        Found { value: format!("{host}:{}", port.value), ..port }
                    }
                    None => base,
                }
            }
        };
        found.value = found.value.trim().to_owned();
        check_address(&found.value).map_err(|problem| self.error(&found, problem))?;
        self.note("listen", &found.value, &found.origin);
        Ok(found.value)
    }

    fn admin_listen(&mut self, file: Option<Written<String>>) -> Result<Option<String>, ConfigError> {
        let Some(found) = self.given(&["QUELL_ADMIN_LISTEN"], |text| Ok(text.to_owned()), file)? else {
            self.note("admin_listen", "none", &Origin::Default);
            return Ok(None);
        };
        check_address(&found.value).map_err(|problem| self.error(&found, problem))?;
        self.note("admin_listen", &found.value, &found.origin);
        Ok(Some(found.value))
    }

    fn server(&mut self, file: ServerConfig) -> Result<ServerSettings, ConfigError> {
        let (most, usual) = (ServerSettings::CONNECTIONS_MAX, ServerSettings::CONNECTIONS_DEFAULT);
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let hosts = match file.hosts {
            Some(written) => self.placed(written),
            None => Found { value: Vec::new(), origin: Origin::Default, span: 0..0 },
        };
        let odd =
            |host: &&String| host.is_empty() || host.contains(|c: char| !c.is_ascii_graphic() || c == '/');
        if let Some(host) = hosts.value.iter().find(odd) {
            return Err(self.error(
                &hosts,
                format!("{host:?} is not the name of a host, such as \"queue.example.org\""),
            ));
        }
        self.note("server.hosts", format!("{:?}", hosts.value), &hosts.origin);
        let names = ["QUELL_SERVER_CONNECTIONS"];
        let bounds = 1..=number(most);
        let connections =
            self.integer("server.connections", None, &names, file.connections, number(usual), bounds)?;
        Ok(ServerSettings { hosts: hosts.value, connections: usize::try_from(connections).unwrap_or(usual) })
    }

    fn outbound(&mut self, file: OutboundConfig) -> Result<Allow, ConfigError> {
        let found = match file.allow {
            Some(written) => self.placed(written),
            None => Found { value: Vec::new(), origin: Origin::Default, span: 0..0 },
        };
        let allow = Allow::parse(&found.value).map_err(|bad| self.error(&found, bad.to_string()))?;
        self.note("outbound.allow", format!("{:?}", found.value), &found.origin);
        Ok(allow)
    }

    fn worker(&mut self, flags: &Flags, file: WorkerConfig) -> Result<WorkerSettings, ConfigError> {
        let default = WorkerSettings::default();
        let most = i64::try_from(limits::CONCURRENCY_MAX).unwrap_or(i64::MAX);
        let flag = flags.concurrency.map(|n| ("--concurrency", i64::try_from(n).unwrap_or(i64::MAX)));
        let usual = i64::try_from(default.concurrency).unwrap_or(i64::MAX);
        let names = ["QUELL_WORKER_CONCURRENCY"];
        let concurrency =
            self.integer("worker.concurrency", flag, &names, file.concurrency, usual, 1..=most)?;
        let grace = flags.grace.map(|value| ("--grace", value));
        let (none, tick) = (Duration::ZERO, Duration::from_millis(10));
        Ok(WorkerSettings {
            concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
            grace: self.duration(
                "worker.grace",
                grace,
                &["QUELL_WORKER_GRACE"],
                file.grace,
                default.grace,
                none..=WAIT_MAX,
            )?,
            sweep_every: self.duration(
                "worker.sweep_every",
                None,
                &["QUELL_WORKER_SWEEP_EVERY"],
                file.sweep_every,
                default.sweep_every,
                tick..=WAIT_MAX,
            )?,
            error_wait: self.duration(
                "worker.error_wait",
                None,
                &["QUELL_WORKER_ERROR_WAIT"],
                file.error_wait,
                default.error_wait,
                tick..=WAIT_MAX,
            )?,
            start_timeout: self.duration(
                "worker.start_timeout",
                None,
                &["QUELL_WORKER_START_TIMEOUT"],
                file.start_timeout,
                default.start_timeout,
                tick..=WAIT_MAX,
            )?,
            id: self.worker_id(file.id)?,
        })
    }

    fn worker_id(&mut self, file: Option<Written<String>>) -> Result<Option<String>, ConfigError> {
        let parse = |text: &str| Ok(text.to_owned());
        let Some(found) = self.given(&["QUELL_WORKER_ID", "WORKER_ID"], parse, file)? else {
            self.note("worker.id", "the host name", &Origin::Default);
            return Ok(None);
        };
        let id = &found.value;
        if id.is_empty() || id.len() > limits::TENANT_BYTES_MAX || id.chars().any(char::is_control) {
            let problem = "the name of a worker is 1 to 128 bytes without control characters";
            return Err(self.error(&found, problem));
        }
        self.note("worker.id", id, &found.origin);
        Ok(Some(found.value))
    }

    fn dashboard(&mut self, file: DashboardConfig) -> Result<DashboardSettings, ConfigError> {
        let mut settings = DashboardSettings::default();
        if let Some(written) = file.redact {
            let found = self.placed(written);
            let rules: Result<Vec<_>, String> =
                found.value.iter().map(|text| RedactRule::parse(text)).collect();
            let example = "write for example \"/card/number\" or \"*token*\"";
            settings.redact = rules.map_err(|problem| self.error(&found, problem).help(example))?;
            self.note("dashboard.redact", format!("{:?}", found.value), &found.origin);
        }
        if let Some(written) = file.trace_url {
            let found = self.placed(written);
            let is_web = ["http://", "https://"].iter().any(|start| found.value.starts_with(start));
            if !is_web || !found.value.contains("{trace_id}") {
                let problem = format!("{:?} is not an address with {{trace_id}} in it", found.value);
                let example = "write for example \"https://traces.example.org/trace/{trace_id}\"";
                return Err(self.error(&found, problem).help(example));
            }
            self.note("dashboard.trace_url", format!("{:?}", found.value), &found.origin);
            settings.trace_url = Some(found.value);
        }
        Ok(settings)
    }

    /// Without a file any name is a queue with the defaults; the special ones keep theirs.
    fn transcripts(&mut self, file: TranscriptsConfig) -> Result<TranscriptsSettings, ConfigError> {
        let listed = |found: &Option<Found<Vec<String>>>| {
            found.as_ref().map(|found| found.value.clone()).unwrap_or_default()
        };
        let roots = file.roots.map(|written| self.placed(written));
        if let Some(found) = &roots
            && let Some(bad) =
                found.value.iter().find(|root| !root.starts_with('/') && !root.starts_with("~/"))
        {
            let problem = format!("{bad:?} is neither an absolute path nor one that begins with ~/");
            return Err(self.error(found, problem).help("write for example \"~/.claude\""));
        }
        let redact = file.redact.map(|written| self.placed(written));
        let retention = match file.retention {
            Some(written) => Some(self.duration(
                "transcripts.retention",
                None,
                &[],
                Some(written),
                RETENTION_MIN,
                RETENTION_MIN..=RETENTION_MAX,
            )?),
            None => None,
        };
        for (name, found) in [("roots", &roots), ("redact", &redact)] {
            if let Some(found) = found {
                self.note(format!("transcripts.{name}"), format!("{:?}", found.value), &found.origin.clone());
            }
        }
        let roots = listed(&roots).into_iter().map(Into::into).collect();
        Ok(TranscriptsSettings { roots, redact: listed(&redact), retention })
    }

    fn without_file(
        &mut self,
        sources: &QueueSources,
        handler: Option<&str>,
    ) -> Result<DefaultQueues, ConfigError> {
        let handler = match handler {
            None => None,
            Some("log") => Some(HandlerSettings::Log),
            Some("pull") => Some(HandlerSettings::Pull),
            Some(other) => {
                let problem = format!("{other:?} is neither log nor pull");
                return Err(ConfigError::new(Place::Flag("--handler"), problem));
            }
        };
        let start = self.explained.len();
        let mut made = |shown: &str, name: &str| {
            let name = QueueName::new(name).expect("these names are written in this file and are valid");
            let (mut queue, _) = resolve_queue(self, sources, shown, name, QueueConfig::default())?;
            // `--handler log` is about queues that nobody else handles.
            if let Some(handler) = handler
                .as_ref()
                .filter(|asked| **asked == HandlerSettings::Pull || queue.handler != HandlerSettings::App)
            {
                queue.handler = handler.clone();
            }
            Ok::<_, ConfigError>(Arc::new(queue))
        };
        let default = made("*", "default")?;
        let mut special = BTreeMap::new();
        for name in SPECIAL_QUEUES {
            let queue = made(name, name)?;
            special.insert(queue.name.clone(), queue);
        }
        let mut lines = self.explained.split_off(start);
        if let Some(handler) = handler
            && let Some(line) = lines.iter_mut().find(|line| line.setting == "queues.*.handler")
        {
            line.value = if handler == HandlerSettings::Pull { "pull" } else { "log" }.to_owned();
            line.origin = Origin::Flag("--handler");
        }
        self.explained.append(&mut only_differing(lines));
        Ok((Some(default), special))
    }
}

/// Of the special queues only what differs from the default queue by a setting of its own is worth a line.
fn only_differing(lines: Vec<Explained>) -> Vec<Explained> {
    let (usual, special): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line.setting.starts_with("queues.*."));
    let own = |line: &Explained| {
        let setting = line.setting.splitn(3, '.').nth(2);
        let is_same = |other: &Explained| {
            other.setting.strip_prefix("queues.*.") == setting && other.value == line.value
        };
        setting != Some("handler") && !usual.iter().any(is_same)
    };
    let special: Vec<_> = special.into_iter().filter(own).collect();
    usual.into_iter().chain(special).collect()
}

/// `host:port`; names are looked up later, by the server.
fn check_address(text: &str) -> Result<(), String> {
    let problem = format!("{text:?} is not host:port; write for example \"127.0.0.1:7717\"");
    let (host, port) = text.rsplit_once(':').ok_or(&problem)?;
    let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || bare_v6 || host.contains(char::is_whitespace) || port.parse::<u16>().is_err() {
        return Err(problem);
    }
    Ok(())
}

/// A gate that nobody asks at would be ignored in silence.
fn never_asks(queue: &QueueSettings) -> Option<String> {
    let who = match queue.handler {
        HandlerSettings::Exec(_) => "a program cannot ask at the gate, so",
        HandlerSettings::Http(_) => "a service cannot ask at the gate, so unless it answers 409,",
        HandlerSettings::Log | HandlerSettings::Pull | HandlerSettings::App => return None,
    };
    (queue.run.rules.during_run == DuringRun::Gate).then(|| {
        format!(
            "queue {}: {who} with during_run = \"gate\" newer events wait for the next run as with \"queue\"; use \
             \"interrupt\" to start over with them",
            queue.name
        )
    })
}

/// Whoever finds the URL of a service could send it batches of their own.
fn unsigned(queue: &QueueSettings, guard: &Guard) -> Option<String> {
    let HandlerSettings::Http(push) = &queue.handler else { return None };
    let local = guard.meaning(&push.url).admit(&push.url).is_ok_and(|admitted| admitted.is_loopback());
    (push.secrets.is_empty() && !local).then(|| {
        format!(
            "queue {}: what is sent to {} is not signed, so the service cannot tell it from a forgery; give secret_file or \
             secret_env",
            queue.name,
            push.target()
        )
    })
}

/// A variable that is almost one of ours would be ignored in silence; say so.
fn misspelt_names(env: &BTreeMap<String, String>) -> Vec<String> {
    let almost = |name: &str| {
        let near = ENV_NAMES.iter().find(|known| matches!(distance(name, known), 1 | 2))?;
        (!ENV_NAMES.contains(&name))
            .then(|| format!("the environment variable {name} is no setting; did you mean {near}?"))
    };
    env.keys().filter(|name| name.starts_with("QUELL_")).filter_map(|name| almost(name)).collect()
}
