//! Where a workload works: a place of its own that did not exist before and does not exist afterwards.
//!
//! In SQLite it is a scratch folder, in PostgreSQL a schema, in Redis a prefix. The names are drawn at random, and a
//! schema that exists already is refused, so a benchmark never touches data that somebody keeps. Workloads only ask to
//! open it ([`Fresh::open`]); those that look into the server itself get a connection of their own ([`Fresh::postgres`],
//! [`Fresh::redis`]), on the server that the store uses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use quell::clock::Chance;
use quell::config::{StoreKind, StoreUrl};
use quell::{Engine, Queue, WorkerOptions};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use tempfile::TempDir;
use tokio_postgres::NoTls;

/// Longer than anything a benchmark asks of Redis.
const ANSWER: Duration = Duration::from_secs(60);
/// Keys that are looked at, and deleted, in one request.
const AT_ONCE: usize = 1_000;
/// How often a folder is deleted before it counts as one that cannot be, and the time in between.
const DELETE_TRIES: usize = 100;
const DELETE_PAUSE: Duration = Duration::from_millis(50);
/// Parameters that the stores read from their URLs and that no driver knows.
const OURS: [&str; 8] =
    ["schema", "statement_mode", "sslmode", "sslrootcert", "pool", "prefix", "durability", "listen"];

/// The store that is measured.
#[derive(Debug, Clone)]
pub enum Place {
    /// SQLite on the disk of this folder.
    Folder(PathBuf),
    /// The server that this URL names; schema and prefix of the URL are replaced by fresh ones.
    Server(StoreUrl),
}

/// The kind of store, for targets and for workloads that suit only some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Sqlite,
    Postgres,
    Redis,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "SQLite",
            Kind::Postgres => "PostgreSQL",
            Kind::Redis => "Redis",
        }
    }
}

impl Place {
    /// A server by its URL; for `sqlite:PATH`, a scratch folder beside that file.
    pub fn of(url: &str) -> anyhow::Result<Place> {
        let url = StoreUrl::parse(url).map_err(|problem| anyhow::anyhow!("store: {problem}"))?;
        Ok(match url.kind() {
            StoreKind::Sqlite(path) => match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                Some(folder) => Place::Folder(folder.to_path_buf()),
                None => Place::Folder(PathBuf::from(".")),
            },
            StoreKind::Postgres | StoreKind::Redis => Place::Server(url),
            StoreKind::Several(_) => {
                anyhow::bail!("store: one database at a time is measured; name one of {url}")
            }
        })
    }

    pub fn kind(&self) -> Kind {
        match self {
            Place::Folder(_) => Kind::Sqlite,
            Place::Server(url) if *url.kind() == StoreKind::Postgres => Kind::Postgres,
            Place::Server(_) => Kind::Redis,
        }
    }

    /// Makes a place for one workload; [`Fresh::remove`] is its end.
    pub(crate) async fn fresh(&self) -> anyhow::Result<Fresh> {
        let drawn = Chance::from_system().number();
        match self {
            Place::Folder(folder) => {
                let folder = scratch(folder)?;
                let url = format!("sqlite:{}", folder.path().join("b.db").display());
                Ok(Fresh { kind: Kind::Sqlite, url, name: String::new(), folder: Some(folder) })
            }
            Place::Server(url) => {
                let (kind, parameter) = match self.kind() {
                    Kind::Postgres => (Kind::Postgres, "schema"),
                    _ => (Kind::Redis, "prefix"),
                };
                let name = match kind {
                    Kind::Postgres => format!("quell_bench_{drawn:016x}"),
                    _ => format!("quell-bench-{drawn:016x}"),
                };
                let url = with_parameter(url.expose(), parameter, &name);
                let fresh = Fresh { kind, url, name, folder: None };
                if kind == Kind::Postgres {
                    // Without IF NOT EXISTS: what exists is not ours.
                    let made = format!("CREATE SCHEMA {}", fresh.name);
                    fresh.postgres().await?.batch_execute(&made).await.context("cannot make a schema")?;
                }
                Ok(fresh)
            }
        }
    }

    /// The server's version and what it promises, read back from it: the conditions of a figure.
    pub async fn conditions(&self) -> anyhow::Result<String> {
        let Place::Server(url) = self else {
            return Ok(format!("SQLite {}, synchronous = FULL", rusqlite::version()));
        };
        if self.kind() == Kind::Postgres {
            let client = connect_postgres(url.expose()).await?;
            let mut said = Vec::new();
            for setting in
                ["server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers"]
            {
                let row = client.query_one("SELECT current_setting($1)", &[&setting]).await?;
                said.push(format!("{setting} = {}", row.get::<_, &str>(0)));
            }
            return Ok(format!("PostgreSQL, {}", said.join(", ")));
        }
        let mut connection = connect_redis(url.expose()).await?;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("?");
        let mut said = vec![format!("Redis {}", version.trim())];
        for setting in ["appendonly", "appendfsync"] {
            // Not every account may ask.
            let answer: redis::RedisResult<Vec<String>> =
                redis::cmd("CONFIG").arg("GET").arg(setting).query_async(&mut connection).await;
            let value = answer.ok().and_then(|pair| pair.into_iter().nth(1));
            said.push(format!("{setting} = {}", value.as_deref().unwrap_or("unknown")));
        }
        Ok(said.join(", "))
    }
}

/// A place for one workload.
pub(crate) struct Fresh {
    pub(crate) kind: Kind,
    /// Opens a store here; may hold a password.
    pub(crate) url: String,
    /// The schema or the prefix.
    pub(crate) name: String,
    folder: Option<TempDir>,
}

impl Fresh {
    /// One queue named `bench`, and a worker for this many lanes at once.
    pub(crate) async fn open(&self, queue: Queue, lanes: usize) -> anyhow::Result<(Engine, WorkerOptions)> {
        crate::open(&self.url, queue, lanes).await
    }

    /// The scratch folder of SQLite.
    pub(crate) fn folder(&self) -> anyhow::Result<&Path> {
        Ok(self.folder.as_ref().context("only SQLite has a folder")?.path())
    }

    /// A connection beside those of the store.
    pub(crate) async fn postgres(&self) -> anyhow::Result<tokio_postgres::Client> {
        connect_postgres(&self.url).await
    }

    pub(crate) async fn redis(&self) -> anyhow::Result<MultiplexedConnection> {
        connect_redis(&self.url).await
    }

    /// What the store keeps for this place: the file, relations, or the memory of the server.
    pub(crate) async fn bytes(&self) -> anyhow::Result<u64> {
        match self.kind {
            Kind::Sqlite => {
                let file = self.folder()?.join("b.db");
                // What is still in the log goes to the file first, if nobody is in the way.
                let connection = rusqlite::Connection::open(&file)?;
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                Ok(std::fs::metadata(&file)?.len())
            }
            Kind::Postgres => {
                let sizes = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
                             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";
                let row = self.postgres().await?.query_one(sizes, &[&self.name]).await?;
                Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default())
            }
            Kind::Redis => {
                let info: String =
                    redis::cmd("INFO").arg("memory").query_async(&mut self.redis().await?).await?;
                let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
                used.context("Redis does not tell its memory")?
                    .trim()
                    .parse()
                    .context("its memory is a number")
            }
        }
    }

    /// Deletes everything that the workload made. Nobody may be using the place any more.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Sqlite => match self.folder {
                Some(folder) => delete_folder(folder).await.context("cannot delete the folder"),
                None => Ok(()),
            },
            Kind::Postgres => {
                let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
                let dropped = self.postgres().await?.batch_execute(&drop).await;
                dropped.with_context(|| format!("cannot drop the schema {}", self.name))
            }
            Kind::Redis => {
                let deleted = delete_keys(&mut self.redis().await?, &self.name).await;
                deleted.with_context(|| format!("cannot delete the keys {}*", self.name))
            }
        }
    }
}

/// Again for a while: after a workload that was stopped, the thread that opens or closes its file may put one more beside those
/// that have just been deleted.
async fn delete_folder(folder: TempDir) -> std::io::Result<()> {
    for _ in 0..DELETE_TRIES {
        if std::fs::remove_dir_all(folder.path()).is_ok() {
            // Nothing is left for its own end to delete.
            let _gone = folder.keep();
            return Ok(());
        }
        quell::clock::sleep(DELETE_PAUSE).await;
    }
    folder.close()
}

/// Until a whole pass finds nothing: after a workload that was stopped, its last request may still be on its way.
async fn delete_keys(connection: &mut MultiplexedConnection, prefix: &str) -> redis::RedisResult<()> {
    let mut cursor = 0_u64;
    let mut found = false;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{prefix}*")).arg("COUNT").arg(AT_ONCE);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(connection).await?;
        if !keys.is_empty() {
            found = true;
            let _: () = redis::cmd("UNLINK").arg(keys).query_async(connection).await?;
        }
        cursor = next;
        if cursor == 0 && !std::mem::take(&mut found) {
            return Ok(());
        }
    }
}

async fn connect_postgres(url: &str) -> anyhow::Result<tokio_postgres::Client> {
    let connected = tokio_postgres::connect(&for_driver(url), NoTls).await;
    let (client, connection) = connected.map_err(|error| {
        // The error's own text is a kind; its source says why. Neither holds the password.
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        anyhow::anyhow!("cannot connect to PostgreSQL: {why}")
    })?;
    tokio::spawn(connection);
    Ok(client)
}

async fn connect_redis(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER));
    let client = redis::Client::open(for_driver(url))?;
    client.get_multiplexed_async_connection_with_config(&config).await.context("cannot connect to Redis")
}

/// The URL with this parameter, in place of one that it may have.
fn with_parameter(url: &str, name: &str, value: &str) -> String {
    let (address, mut parameters) = parameters(url, |other| other != name);
    let ours = format!("{name}={value}");
    parameters.push(&ours);
    format!("{address}?{}", parameters.join("&"))
}

/// The URL without what only our stores understand.
fn for_driver(url: &str) -> String {
    let (address, theirs) = parameters(url, |name| !OURS.contains(&name));
    if theirs.is_empty() { address.to_owned() } else { format!("{address}?{}", theirs.join("&")) }
}

fn parameters(url: &str, keep: impl Fn(&str) -> bool) -> (&str, Vec<&str>) {
    let (address, all) = url.split_once('?').unwrap_or((url, ""));
    let kept = all.split('&').filter(|p| !p.is_empty() && keep(p.split('=').next().unwrap_or_default()));
    (address, kept.collect())
}

/// A folder of its own in this one, removed at the end.
fn scratch(folder: &Path) -> anyhow::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("quell-bench-")
        .tempdir_in(folder)
        .with_context(|| format!("cannot make a folder in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_the_url_is_replaced_and_the_driver_sees_none() {
        let url = "postgres://me:secret@h/db?schema=mine&connect_timeout=2&pool=3";
        let fresh = with_parameter(url, "schema", "quell_bench_1");
        assert_eq!(fresh, "postgres://me:secret@h/db?connect_timeout=2&pool=3&schema=quell_bench_1");
        assert_eq!(for_driver(&fresh), "postgres://me:secret@h/db?connect_timeout=2");
        assert_eq!(with_parameter("redis://h", "prefix", "b"), "redis://h?prefix=b");
        assert_eq!(for_driver("redis://h?prefix=b"), "redis://h");
    }

    #[test]
    fn a_sqlite_file_names_the_folder_beside_it_and_a_password_is_not_shown() {
        let folder = |url: &str| match Place::of(url).unwrap() {
            Place::Folder(folder) => folder,
            Place::Server(_) => panic!("{url} is a server"),
        };
        assert_eq!(folder("sqlite:/data/quell.db"), PathBuf::from("/data"));
        assert_eq!(folder("sqlite:quell.db"), PathBuf::from("."));
        let server = Place::of("postgres://me:secret@h/db").unwrap();
        assert_eq!(server.kind(), Kind::Postgres);
        assert!(!format!("{server:?}").contains("secret"), "{server:?}");
        assert_eq!(Place::of("rediss://h").unwrap().kind(), Kind::Redis);
        assert!(Place::of("mysql://h").is_err());
    }
}
