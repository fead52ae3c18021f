//! Where sessions of coding agents are kept, for `hook`, `sessions`, `session` and `search`: never the working folder.
//!
//! A hook runs in whatever folder the agent is in, so these commands know only `--store`, `QUELL_STORE` and the data folder
//! of the user (`$XDG_DATA_HOME/quell/quell.db`), and as configuration `--config` or `$XDG_CONFIG_HOME/quell/quell.toml`.
//!
//! Hooks always append to a file of this host. It is the store itself when that is SQLite; for PostgreSQL and for a server
//! it is a file of its own, from which a worker of this host, the only one that can read the transcripts, brings them there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use quell::Engine;
use quell::config::{
    Config, Env, Flags, Origin, Settings, SettingsInput, SourceText, StoreKind, TranscriptsSettings,
};
use quell::quell_core::event::QueueName;
use quell_transcripts::archive::Archive;
use quell_transcripts::handle::QUEUE;
use quell_transcripts::lazily::Wishes;

use crate::args::Global;
use crate::context::{self, Loaded};
use crate::failure::{self, Failure};

/// Where what was captured is brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// It is in the right place already.
    Here,
    /// The store of the settings, on another machine.
    Store,
    /// A server, with the file of a token.
    Server { url: String, token_file: Option<PathBuf> },
}

/// What a hook and its worker have in common.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The file on this host that hooks append to.
    pub(crate) database: PathBuf,
    pub(crate) target: Target,
}

impl Place {
    /// `server` is that of `hook --server`.
    pub(crate) fn of(
        settings: &Settings,
        server: Option<(String, Option<PathBuf>)>,
        env: &BTreeMap<String, String>,
    ) -> Result<Place, Failure> {
        if let Some((url, token_file)) = server {
            let database = outbox(&url, env)?;
            return Ok(Place { database, target: Target::Server { url, token_file } });
        }
        match settings.store.url.kind() {
            StoreKind::Sqlite(path) => Ok(Place { database: absolute(path), target: Target::Here }),
            StoreKind::Postgres | StoreKind::Several(_) => {
                let database = outbox(settings.store.url.expose(), env)?;
                Ok(Place { database, target: Target::Store })
            }
            StoreKind::Redis => Err(no_tables()),
        }
    }

    /// Beside the file; what went wrong in hooks.
    pub(crate) fn journal(&self) -> PathBuf {
        let mut name = self.database.as_os_str().to_owned();
        name.push("-hook.log");
        PathBuf::from(name)
    }
}

fn no_tables() -> Failure {
    Failure::new(failure::USAGE, "transcripts need tables, and a Redis store has none")
        .help("use --store sqlite:PATH, or postgres://… for a team")
}

/// The file in which a host keeps what goes elsewhere.
fn outbox(url: &str, env: &BTreeMap<String, String>) -> Result<PathBuf, Failure> {
    Ok(data_folder(env)?.join(format!("outbox-{}.db", quell_transcripts::forward::digest(url))))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

fn folder(env: &BTreeMap<String, String>, name: &str, below_home: &str) -> Result<PathBuf, Failure> {
    // As the XDG base directory specification has it: a relative path is to be ignored.
    let given = env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env.get("HOME").map(|home| Path::new(home).join(below_home));
    let base = given.or_else(home).ok_or_else(|| {
        let text = format!("neither {name} nor HOME is set, so there is no folder for this user's sessions");
        Failure::new(failure::USAGE, text).help("name one: --store sqlite:/path/to/quell.db")
    })?;
    Ok(base.join("quell"))
}

pub(crate) fn data_folder(env: &BTreeMap<String, String>) -> Result<PathBuf, Failure> {
    folder(env, "XDG_DATA_HOME", ".local/share")
}

/// The settings of these commands.
pub(crate) fn load(global: &Global) -> Result<Loaded, Failure> {
    load_with(global, Env::from_process())
}

/// The same with an environment that may have been mended.
pub(crate) fn load_with(global: &Global, env: BTreeMap<String, String>) -> Result<Loaded, Failure> {
    let file = global.config.clone().or_else(|| {
        let usual = folder(&env, "XDG_CONFIG_HOME", ".config").ok()?.join(context::CONFIG_NAME);
        usual.exists().then_some(usual)
    });
    let config = match &file {
        Some(path) => {
            let source = SourceText::read(path)?;
            let mut config = Config::parse(&source.text, &source.name)?;
            // A file that is about other queues does not take this one away.
            config.transcripts.get_or_insert_default();
            Some((config, source))
        }
        None => None,
    };
    let named =
        global.store.clone().or_else(|| env.get("QUELL_STORE").cloned().filter(|url| !url.is_empty()));
    let usual = named.is_none();
    let store = match named {
        Some(url) => url,
        None => format!("sqlite:{}", data_folder(&env)?.join("quell.db").display()),
    };
    let flags = Flags { store: Some(store), ..Flags::default() };
    let mut settings =
        Settings::resolve_with(SettingsInput { config, env: &env, flags }, &quell_chat::inbound::schemes())?;
    if usual {
        settings.store.origin = Origin::Default;
    }
    if *settings.store.url.kind() == StoreKind::Redis {
        return Err(no_tables());
    }
    Ok(Loaded { settings, file, env })
}

/// What the usual settings need of the environment.
const ESSENTIAL: [&str; 5] = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "QUELL_STORE"];

/// The same for a hook and its worker, whom nobody watches: of what cannot be understood as little as possible is left
/// out, and it is told what was wrong.
pub(crate) fn load_or_usual(
    global: &Global,
    env: &BTreeMap<String, String>,
) -> Result<(Loaded, Option<Failure>), Failure> {
    let failure = match load_with(global, env.clone()) {
        Ok(loaded) => return Ok((loaded, None)),
        Err(failure) => failure,
    };
    let mut mended = env.clone();
    mended.remove("DEBOUNCE_SECONDS");
    let mut essential = env.clone();
    essential.retain(|name, _| ESSENTIAL.contains(&name.as_str()));
    let unread = Global { config: Some("/dev/null".into()), ..global.clone() };
    for (global, env) in [(global, mended), (global, essential.clone()), (&unread, env.clone())] {
        if let Ok(loaded) = load_with(global, env) {
            return Ok((loaded, Some(failure)));
        }
    }
    Ok((load_with(&unread, essential)?, Some(failure)))
}

/// How transcripts are read by this process.
pub(crate) fn wishes(loaded: &Loaded) -> Result<Wishes, Failure> {
    let usual = TranscriptsSettings::default();
    let settings = loaded.settings.transcripts.as_ref().unwrap_or(&usual);
    let env = |name: &str| loaded.env.get(name).map(OsString::from);
    Wishes::new(settings, env).map_err(|error| Failure::new(failure::USAGE, error.detail))
}

/// Makes a folder that only this user can read, if it is not there.
pub(crate) fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

pub(crate) fn queue() -> QueueName {
    QueueName::new(QUEUE).expect("the name of the queue is a valid one")
}

/// What was captured, for commands that read. A store that nobody has made yet is an answer of its own.
pub(crate) async fn open(global: &Global) -> Result<(Loaded, Engine, Archive), Failure> {
    let loaded = load(global)?;
    if let StoreKind::Sqlite(path) = loaded.settings.store.url.kind()
        && !path.exists()
    {
        let text = format!("no session has been captured in {} yet", path.display());
        return Err(Failure::new(failure::NOT_FOUND, text).help(
            "`quell hook install` captures from now on, `quell sessions import DIR` takes in what is there already",
        ));
    }
    let engine = context::open_now(&loaded).await?;
    let archive = Archive::open(engine.store().clone()).await?;
    Ok((loaded, engine, archive))
}
