//! Where a campaign takes place: the store of each round, and what of the machine can be hurt.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use quell_test_servers::{Options, Postgres, Redis};
use serde::Serialize;
use tempfile::TempDir;
use url::Url;

use crate::disk::{self, Disk};
use crate::fault::Fault;
use crate::judge::Broken;
use crate::proxy::Proxy;

/// Connections of each process to a PostgreSQL of our own, which has room for a hundred.
const POOL: &str = "4";

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Sqlite,
    Postgres,
    Redis,
}

impl Kind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "SQLite",
            Kind::Postgres => "PostgreSQL",
            Kind::Redis => "Redis",
        }
    }
}

/// What is to be tortured.
#[derive(Debug, Clone)]
pub enum Place {
    /// A file that is new or empty.
    File(PathBuf),
    /// A server that is there, by its URL, whose schema or prefix is new or empty.
    Server(Kind, String),
    /// A server that torture starts, hurts, and removes.
    Own(Kind),
}

impl Place {
    /// Which kind of store it is.
    pub fn kind(&self) -> Kind {
        match self {
            Place::File(_) => Kind::Sqlite,
            Place::Server(kind, _) | Place::Own(kind) => *kind,
        }
    }

    /// Which of these faults can be done here, and why the others cannot.
    pub fn possible(&self, faults: &[Fault]) -> (Vec<Fault>, Vec<(Fault, String)>) {
        let (mut possible, mut skipped) = (Vec::new(), Vec::new());
        for &fault in faults {
            match self.impossible(fault) {
                None => possible.push(fault),
                Some(reason) => skipped.push((fault, reason)),
            }
        }
        (possible, skipped)
    }

    fn impossible(&self, fault: Fault) -> Option<String> {
        let sqlite = self.kind() == Kind::Sqlite;
        let server = |what: &str| Some(format!("{what} is the server's"));
        match fault {
            Fault::Kill | Fault::Zombie => None,
            Fault::Restart if sqlite => Some("SQLite has no server".to_owned()),
            Fault::Restart if matches!(self, Place::Server(..)) => {
                Some("the server is not ours; postgres:local and redis:local start one".to_owned())
            }
            Fault::Restart => None,
            Fault::Tcp if sqlite => Some("SQLite has no connections".to_owned()),
            Fault::Tcp => match self {
                Place::Server(_, url) if through("127.0.0.1", 1, url).is_none() => {
                    Some("TLS that checks the server's name cannot go through a proxy".to_owned())
                }
                _ => None,
            },
            Fault::FullDisk if !sqlite => server("the disk"),
            Fault::FullDisk => disk::unavailable(),
            Fault::PowerCut if !sqlite => server("the disk"),
            Fault::PowerCut => disk::unavailable().or_else(disk::uncuttable),
            Fault::Fsync if !sqlite => server("the disk"),
            Fault::Fsync if !disk::has("strace") => Some("the program strace is not installed".to_owned()),
            Fault::Fsync if !rustix::process::geteuid().is_root() => {
                Some("strace of another process takes root".to_owned())
            }
            Fault::Fsync => None,
            Fault::Clock if !sqlite => server("the clock"),
            Fault::Clock => {
                let tried = Command::new("unshare").args(["--time", "--boottime", "1", "true"]).output();
                match tried {
                    Ok(output) if output.status.success() => None,
                    Ok(output) => {
                        Some(format!("time namespaces: {}", String::from_utf8_lossy(&output.stderr).trim()))
                    }
                    Err(error) => Some(format!("the program unshare: {error}")),
                }
            }
        }
    }
}

enum Server {
    Postgres(Postgres),
    Redis(Redis),
}

/// The place, with what was set up for it.
pub(crate) struct Ground {
    kind: Kind,
    /// The file, or the URL of the server.
    path: PathBuf,
    url: String,
    /// In this order: what is mounted or runs goes before the folder.
    pub(crate) disk: Option<Disk>,
    server: Option<Server>,
    pub(crate) proxy: Option<Proxy>,
    folder: Option<TempDir>,
}

impl Ground {
    pub(crate) async fn prepare(place: &Place, faults: &[Fault]) -> Result<Ground, Broken> {
        let folder = match place {
            Place::File(path) => scratch(path.parent().filter(|folder| !folder.as_os_str().is_empty())),
            _ => scratch(None),
        };
        let folder = folder.map_err(|error| Broken::Tool(format!("no folder can be made: {error}")))?;
        let mut ground = Ground {
            kind: place.kind(),
            path: PathBuf::new(),
            url: String::new(),
            disk: None,
            server: None,
            proxy: None,
            folder: Some(folder),
        };
        match place {
            Place::File(path) => ground.path = path.clone(),
            Place::Server(_, url) => ground.url = url.clone(),
            Place::Own(kind) => ground.start(*kind)?,
        }
        if ground.kind == Kind::Sqlite
            && faults.iter().any(|f| matches!(f, Fault::FullDisk | Fault::PowerCut))
        {
            ground.new_disk()?;
        }
        if faults.contains(&Fault::Tcp) {
            let address =
                address_of(&ground.url).ok_or_else(|| Broken::Tool("the URL names no host".to_owned()))?;
            let proxy = Proxy::to(address).await;
            ground.proxy = Some(proxy.map_err(|error| Broken::Tool(format!("no proxy: {error}")))?);
        }
        Ok(ground)
    }

    fn start(&mut self, kind: Kind) -> Result<(), Broken> {
        let started = match kind {
            Kind::Redis => Redis::start().map(|server| (server.url(), Server::Redis(server))),
            _ => Postgres::start(Options::default())
                .map(|server| (format!("{}?pool={POOL}", server.url()), Server::Postgres(server))),
        };
        let (url, server) = started.map_err(|error| {
            Broken::Tool(format!("a {} of our own cannot be started: {error}", kind.name()))
        })?;
        self.url = url;
        self.server = Some(server);
        Ok(())
    }

    /// For the logs of the processes.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new("."), TempDir::path)
    }

    /// Keeps everything that is there for somebody to look at, and says where.
    pub(crate) fn keep(&mut self) -> Option<PathBuf> {
        if let Some(disk) = &self.disk {
            // The image goes with its mount; a copy stays.
            for entry in std::fs::read_dir(disk.point()).into_iter().flatten().flatten() {
                let _ = std::fs::copy(entry.path(), self.folder().join(entry.file_name()));
            }
        }
        // A server's files go with it.
        let server = match &self.server {
            Some(Server::Postgres(server)) => Some(server.folder()),
            Some(Server::Redis(server)) => Some(server.folder()),
            None => None,
        };
        if let Some(folder) = server {
            let _ = Command::new("cp").arg("-a").arg(folder).arg(self.folder().join("server")).output();
        }
        self.folder.take().map(TempDir::keep)
    }

    /// A fresh file system in place of the one that is there.
    pub(crate) fn new_disk(&mut self) -> Result<(), Broken> {
        self.disk = None;
        self.disk = Some(Disk::make(self.folder()).map_err(Broken::Tool)?);
        Ok(())
    }

    /// The store of a round: the named one first, others beside it later.
    pub(crate) fn store(&self, round: u64) -> String {
        match self.kind {
            Kind::Sqlite => format!("sqlite:{}", self.file().display()),
            Kind::Postgres => numbered(&self.url, "schema", "quell", '_', round),
            Kind::Redis => numbered(&self.url, "prefix", "quell", '-', round),
        }
    }

    fn file(&self) -> PathBuf {
        match &self.disk {
            Some(disk) => disk.point().join("q.db"),
            None => self.path.clone(),
        }
    }

    /// The same, as the processes under test reach it.
    pub(crate) fn store_of_children(&self, round: u64) -> String {
        let direct = self.store(round);
        match &self.proxy {
            Some(proxy) => through("127.0.0.1", proxy.port(), &direct).unwrap_or(direct),
            None => direct,
        }
    }

    /// Removes the store of a round, which was new. Schemas and prefixes of a server that is not ours stay.
    pub(crate) fn clear(&mut self) -> Result<(), Broken> {
        if self.disk.is_some() {
            return self.new_disk();
        }
        if self.kind == Kind::Sqlite {
            for suffix in ["", "-wal", "-shm", "-lock"] {
                let mut name = self.path.as_os_str().to_owned();
                name.push(suffix);
                let _ = std::fs::remove_file(name);
            }
            let mut bells = self.path.as_os_str().to_owned();
            bells.push("-wake");
            let _ = std::fs::remove_dir_all(bells);
        }
        Ok(())
    }

    /// Kills the server as a power cut would kill its processes, and starts it again.
    pub(crate) fn restart(&mut self) -> Result<(), Broken> {
        let done = match &mut self.server {
            Some(Server::Postgres(server)) => server.kill().and_then(|()| server.start_again()),
            Some(Server::Redis(server)) => server.kill().and_then(|()| server.start_again()),
            None => Ok(()),
        };
        done.map_err(|error| Broken::Tool(format!("the server does not come back: {error}")))
    }
}

fn scratch(parent: Option<&Path>) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("quell-torture-");
    parent.map_or_else(|| builder.tempdir(), |parent| builder.tempdir_in(parent))
}

/// `host:port` of a server's URL.
fn address_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let port = url.port().unwrap_or(if url.scheme().starts_with("redis") { 6379 } else { 5432 });
    Some(format!("{}:{port}", url.host_str()?))
}

/// The same store by another address; nothing where the name of the server is part of the promise.
fn through(host: &str, port: u16, url: &str) -> Option<String> {
    let mut parsed = Url::parse(url).ok()?;
    let checked = parsed.scheme() == "rediss"
        || parsed.query_pairs().any(|(name, value)| name == "sslmode" && value == "verify-full");
    if checked || parsed.host_str().is_none() {
        return None;
    }
    parsed.set_host(Some(host)).ok()?;
    parsed.set_port(Some(port)).ok()?;
    Some(parsed.into())
}

/// The URL with a number behind its schema or prefix, from the second round on.
fn numbered(url: &str, parameter: &str, default: &str, between: char, round: u64) -> String {
    if round <= 1 {
        return url.to_owned();
    }
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let mut name = default.to_owned();
    let mut others = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((word, value)) if word == parameter => name = value.to_owned(),
            _ => others.push(pair.to_owned()),
        }
    }
    others.push(format!("{parameter}={name}{between}{round}"));
    format!("{address}?{}", others.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_rounds_have_a_schema_or_prefix_of_their_own() {
        let of = |url, round| numbered(url, "schema", "quell", '_', round);
        assert_eq!(of("postgres://u@h/d?pool=4", 1), "postgres://u@h/d?pool=4");
        assert_eq!(of("postgres://u@h/d?pool=4", 2), "postgres://u@h/d?pool=4&schema=quell_2");
        assert_eq!(of("postgres://u@h/d?schema=mine&pool=4", 3), "postgres://u@h/d?pool=4&schema=mine_3");
    }

    #[test]
    fn a_proxy_takes_the_place_of_the_server_and_nothing_else() {
        let of = |url| through("127.0.0.1", 9, url);
        assert_eq!(
            of("postgres://me:secret@db:5433/d?pool=4").unwrap(),
            "postgres://me:secret@127.0.0.1:9/d?pool=4"
        );
        assert_eq!(of("redis://h/0?prefix=a").unwrap(), "redis://127.0.0.1:9/0?prefix=a");
        assert_eq!(of("rediss://h/0"), None, "its certificate names the host");
        assert_eq!(of("postgres://h/d?sslmode=verify-full"), None);
        assert_eq!(address_of("redis://h/0").as_deref(), Some("h:6379"));
    }

    #[test]
    fn what_cannot_be_done_has_a_reason() {
        let (possible, skipped) = Place::Own(Kind::Redis).possible(&Fault::ALL);
        assert_eq!(possible, [Fault::Kill, Fault::Zombie, Fault::Restart, Fault::Tcp]);
        assert_eq!(skipped.len(), 4);
        assert!(skipped.iter().all(|(_, reason)| !reason.is_empty()), "{skipped:?}");
        let there = Place::Server(Kind::Postgres, "postgres://h/d".to_owned());
        assert!(!there.possible(&Fault::ALL).0.contains(&Fault::Restart), "it is not ours");
    }
}
