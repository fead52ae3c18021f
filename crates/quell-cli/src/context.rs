//! From flags, environment and quell.toml to settings, and from settings to an open store.
//!
//! The configuration file is `--config`, else `./quell.toml` if it exists. Commands that only look never make a store:
//! an answer from a file that was empty a moment ago would look like an answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell::config::{Config, Env, Flags, Origin, Settings, SettingsInput, SourceText, StoreKind};
use quell::quell_core::audit::signed;
use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, QueueName, Tenant};
use quell::quell_core::inspect::{Page, RunDetail};
use quell::{Engine, EngineError};

use crate::args::{ByHand, Global};
use crate::failure::{self, Failure};

/// The name of the configuration file in the working folder.
pub(crate) const CONFIG_NAME: &str = "quell.toml";

/// The settings in force and what they were read from.
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    pub(crate) file: Option<PathBuf>,
    pub(crate) env: BTreeMap<String, String>,
}

/// Reads and checks everything that was written.
pub(crate) fn load(global: &Global, flags: Flags) -> Result<Loaded, Failure> {
    let file = config_file(global);
    let env = Env::from_process();
    let config = match &file {
        Some(path) => {
            let source = SourceText::read(path)?;
            Some((Config::parse(&source.text, &source.name)?, source))
        }
        None => None,
    };
    let flags = Flags { store: global.store.clone(), ..flags };
    let settings =
        Settings::resolve_with(SettingsInput { config, env: &env, flags }, &quell_chat::inbound::schemes())?;
    Ok(Loaded { settings, file, env })
}

fn config_file(global: &Global) -> Option<PathBuf> {
    global.config.clone().or_else(|| {
        let here = Path::new(CONFIG_NAME);
        here.exists().then(|| here.to_path_buf())
    })
}

impl Loaded {
    /// Where a setting came from, with the name of the file.
    pub(crate) fn told(&self, origin: &Origin) -> String {
        match (origin, &self.file) {
            (Origin::File { line }, Some(path)) => format!("{} line {line}", path.display()),
            (origin, _) => origin.to_string(),
        }
    }

    fn warn(&self) {
        for warning in &self.settings.warnings {
            tracing::warn!("{warning}");
        }
    }
}

/// For workers: a store that is away is waited for as long as the settings say.
pub(crate) async fn open_patiently(loaded: &Loaded) -> Result<Engine, Failure> {
    loaded.warn();
    Ok(Engine::open(loaded.settings.clone()).await?)
}

/// For commands: a person or a script is waiting and can ask again, so a store that is away is an answer at once.
pub(crate) async fn open_now(loaded: &Loaded) -> Result<Engine, Failure> {
    loaded.warn();
    let store = quell::open::open(&loaded.settings.store, Duration::ZERO).await?;
    Ok(Engine::with_store(store, loaded.settings.clone()))
}

/// Opens a store that is already there.
pub(crate) async fn open_existing(global: &Global) -> Result<Engine, Failure> {
    let loaded = load(global, Flags::default())?;
    must_exist(&loaded.settings)?;
    open_now(&loaded).await
}

pub(crate) fn must_exist(settings: &Settings) -> Result<(), Failure> {
    let store = &settings.store;
    match store.url.kind() {
        StoreKind::Sqlite(path) if !path.exists() => {
            let text = format!("there is no store at {} (from {})", store.url, store.origin);
            Err(Failure::new(failure::STORE, text)
                .help("`quell send` and `quell serve` make it; --store names another one"))
        }
        _ => Ok(()),
    }
}

/// Store time now, to which listings relate their times.
pub(crate) async fn now(engine: &Engine) -> Result<Timestamp, Failure> {
    Ok(engine.health().await?.now)
}

/// The name of a lane as it was typed.
pub(crate) fn lane_key(queue: &str, key: &str, tenant: Option<&str>) -> Result<LaneKey, Failure> {
    let lane = LaneKey::new(QueueName::new(queue)?, Key::new(key)?);
    Ok(lane.of(tenant_of(tenant)?.unwrap_or_else(Tenant::none)))
}

pub(crate) fn tenant_of(tenant: Option<&str>) -> Result<Option<Tenant>, Failure> {
    Ok(tenant.map(Tenant::new).transpose()?)
}

pub(crate) fn queue_of(queue: Option<&str>) -> Result<Option<QueueName>, Failure> {
    Ok(queue.map(QueueName::new).transpose()?)
}

/// Refuses a queue that the configuration does not name. Without a configuration every name exists.
pub(crate) fn configured_queue(settings: &Settings, queue: &QueueName) -> Result<(), Failure> {
    if settings.queue(queue).is_some() {
        return Ok(());
    }
    let known = settings.queues.keys().cloned().collect();
    Err(EngineError::UnknownQueue { queue: queue.clone(), known }.into())
}

/// Refuses a queue that neither the settings nor the store know: a misspelt name would be accepted in silence.
pub(crate) async fn known_queue(engine: &Engine, queue: &QueueName) -> Result<(), Failure> {
    match configured_queue(&engine.settings(), queue) {
        Err(_) if engine.stats().await?.iter().any(|stats| stats.queue == *queue) => Ok(()),
        answer => answer,
    }
}

/// A listing that came back empty because nobody knows the queue is an answer to another question.
pub(crate) async fn known_if_empty<T>(
    engine: &Engine,
    queue: Option<&QueueName>,
    page: &Page<T>,
) -> Result<(), Failure> {
    match queue {
        // Nothing has been done to a source yet.
        Some(queue) if queue.is_of_sources() => Ok(()),
        Some(queue) if page.items.is_empty() && page.next.is_none() => known_queue(engine, queue).await,
        _ => Ok(()),
    }
}

/// A run that must be there.
pub(crate) async fn found_run(engine: &Engine, run: RunId) -> Result<RunDetail, Failure> {
    engine.run(run).await?.ok_or_else(|| {
        Failure::new(failure::NOT_FOUND, format!("there is no run {run}"))
            .help("`quell runs` lists them; finished ones are removed after the retention")
    })
}

pub(crate) fn unknown_lane(lane: &LaneKey) -> Failure {
    Failure::new(failure::NOT_FOUND, format!("nothing is known of lane {lane}"))
        .help("it never had an event, or its history is older than the retention")
}

/// Who does something by hand, and why if they say so, for the audit trail.
pub(crate) fn actor(by: &ByHand) -> String {
    let who = by.actor.clone().unwrap_or_else(|| {
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        let user = user.ok().filter(|name| !name.is_empty()).unwrap_or_else(user_number);
        format!("{user}@{} (cli)", quell::clock::host_name())
    });
    signed(&who, by.reason.as_deref())
}

#[cfg(unix)]
fn user_number() -> String {
    format!("uid-{}", rustix::process::getuid().as_raw())
}

#[cfg(not(unix))]
fn user_number() -> String {
    "unknown".to_owned()
}
