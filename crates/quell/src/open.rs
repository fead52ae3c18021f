//! A store from its URL: the only file that names concrete stores.
//!
//! Quell never falls back: a store that cannot be opened is an error, never another store and never memory. A store that
//! is there but busy is waited for, up to the start time-out.

use std::sync::Arc;
use std::time::Duration;

use quell_core::batch::base32;
use quell_core::copy::Portable;
use quell_core::error::StoreError;
use quell_core::store::Store;
use quell_store_many::ManyStore;
pub use quell_store_many::{Spread, Whole};

#[cfg(feature = "sqlite")]
pub use self::file::{BackedUp, Restored, backup, open_unflushed, restore, wake};
use crate::clock;
use crate::config::{StoreChoice, StoreKind};

/// How often a store that is not ready is tried again at start.
const OPEN_AGAIN: Duration = Duration::from_millis(250);

/// Why a store was not opened; names the setting and what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum OpenError {
    /// `sqlite::memory:` and the like.
    #[error(
        "store {0:?} would be lost with the process; Quell never keeps events in memory only, name a file: \"sqlite:quell.db\""
    )]
    Memory(String),
    /// A backup was asked of a store that is no file.
    #[error(
        "store {url}: a {kind} database is backed up and restored with its own tools; this is for \"sqlite:PATH\""
    )]
    NoBackup { kind: &'static str, url: String },
    /// Only programs that build the library with features of their own meet it: the binary has all of them.
    #[error(
        "store {url} (from {origin}): this program was built without {kind}; turn on the feature `{feature}` of the crate `quell`"
    )]
    NotBuiltIn { kind: &'static str, feature: &'static str, url: String, origin: String },
    /// Only one database can be backed up, restored or copied at a time.
    #[error(
        "store {url} is several databases: name one of them, or move all of them with `quell store move`"
    )]
    Several { url: String },
    /// It is not there, not ours, of a newer version, or not durable; the problem says what to do.
    #[error("store {url} (from {origin}): {problem}")]
    Failed { url: String, origin: String, problem: StoreError },
}

/// Opens the chosen store, waiting up to `patience` for one that is temporarily not there.
pub async fn open(choice: &StoreChoice, patience: Duration) -> Result<Arc<dyn Store>, OpenError> {
    let mut waited = Duration::ZERO;
    loop {
        match open_once(choice).await {
            Err(OpenError::Failed { problem, .. }) if problem.is_temporary() && waited < patience => {
                tracing::warn!(store = %choice.url, error = %problem, "the store is not ready, trying again");
                clock::sleep(OPEN_AGAIN).await;
                waited += OPEN_AGAIN;
            }
            answer => return answer,
        }
    }
}

/// One database alone, or several as one store. A database that belongs to others is refused when it is opened without them.
async fn open_once(choice: &StoreChoice) -> Result<Arc<dyn Store>, OpenError> {
    let StoreKind::Several(_) = choice.url.kind() else {
        let store = opened(choice).await?;
        quell_store_many::check_alone(&*store).await.map_err(|problem| failed(choice, problem))?;
        return Ok(store);
    };
    let members = open_members(choice).await?;
    let store = ManyStore::open(members, &new_word()).await.map_err(|problem| failed(choice, problem))?;
    Ok(store)
}

/// The databases of a store by themselves: those of a list, or the one that it is.
pub async fn open_members(choice: &StoreChoice) -> Result<Vec<Arc<dyn Whole>>, OpenError> {
    let StoreKind::Several(urls) = choice.url.kind() else { return Ok(vec![opened(choice).await?]) };
    let mut members = Vec::new();
    for url in urls {
        members.push(opened(&StoreChoice { url: url.clone(), origin: choice.origin.clone() }).await?);
    }
    Ok(members)
}

/// A word that no other process has.
pub fn new_word() -> String {
    base32(clock::Chance::from_system().number())
}

/// Opens the chosen store to move everything out of it or into it. A person waits, so nothing is tried twice.
pub async fn open_portable(choice: &StoreChoice) -> Result<Arc<dyn Portable>, OpenError> {
    opened(choice).await.map(|store| store as Arc<dyn Portable>)
}

async fn opened(choice: &StoreChoice) -> Result<Arc<dyn Whole>, OpenError> {
    match choice.url.kind() {
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => {
            let opened = quell_store_postgres::PostgresStore::open_url(choice.url.expose()).await;
            opened.map(|store| store as Arc<dyn Whole>).map_err(|problem| failed(choice, problem))
        }
        #[cfg(feature = "redis")]
        StoreKind::Redis => {
            let opened = quell_store_redis::RedisStore::open_url(choice.url.expose()).await;
            opened.map(|store| store as Arc<dyn Whole>).map_err(|problem| failed(choice, problem))
        }
        StoreKind::Sqlite(path) if path.as_os_str().to_string_lossy().contains(":memory:") => {
            Err(OpenError::Memory(choice.url.to_string()))
        }
        #[cfg(feature = "sqlite")]
        StoreKind::Sqlite(path) => file::open(choice, path).await,
        StoreKind::Several(_) => Err(OpenError::Several { url: choice.url.to_string() }),
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "redis")))]
        absent => Err(not_built_in(choice, absent)),
    }
}

/// What to turn on for a kind of store that this program does not have.
#[cfg(any(test, not(all(feature = "sqlite", feature = "postgres", feature = "redis"))))]
fn not_built_in(choice: &StoreChoice, kind: &StoreKind) -> OpenError {
    let (kind, feature) = match kind {
        StoreKind::Sqlite(_) => ("SQLite", "sqlite"),
        StoreKind::Postgres => ("PostgreSQL", "postgres"),
        StoreKind::Redis => ("Redis", "redis"),
        StoreKind::Several(_) => return OpenError::Several { url: choice.url.to_string() },
    };
    OpenError::NotBuiltIn { kind, feature, url: choice.url.to_string(), origin: choice.origin.to_string() }
}

fn failed(choice: &StoreChoice, problem: StoreError) -> OpenError {
    OpenError::Failed { url: choice.url.to_string(), origin: choice.origin.to_string(), problem }
}

/// The store that is a file: it is opened, backed up and restored by path.
#[cfg(feature = "sqlite")]
mod file {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use quell_core::error::{StoreError, StoreResult};
    use quell_core::store::Store;
    use quell_store_sqlite::SqliteStore;
    pub use quell_store_sqlite::{BackedUp, Restored, wake};

    use super::{OpenError, Whole, failed};
    use crate::config::{StoreChoice, StoreKind};

    pub(super) async fn open(choice: &StoreChoice, path: &Path) -> Result<Arc<dyn Whole>, OpenError> {
        let path = path.to_path_buf();
        on_file(choice, move || SqliteStore::open(&path).map(|store| store as Arc<dyn Whole>)).await
    }

    /// Copies the chosen store into a new file while others use it; `progress` is told how many bytes of how many are
    /// done. For stores that are files: the others have tools of their own.
    pub async fn backup(
        choice: &StoreChoice,
        to: &Path,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<BackedUp, OpenError> {
        let (from, to) = (file_of(choice)?, to.to_path_buf());
        on_file(choice, move || quell_store_sqlite::backup(&from, &to, progress)).await
    }

    /// Puts a backup in place as the chosen store. One that is already there is replaced only with `force`, and kept
    /// under another name.
    pub async fn restore(backup: &Path, choice: &StoreChoice, force: bool) -> Result<Restored, OpenError> {
        let (backup, to) = (backup.to_path_buf(), file_of(choice)?);
        on_file(choice, move || quell_store_sqlite::restore(&backup, &to, force)).await
    }

    /// The chosen file with `synchronous = NORMAL`, which may lose acknowledged events in a power cut: for `quell torture`, which
    /// shows by it that a loss would be noticed.
    pub async fn open_unflushed(choice: &StoreChoice) -> Result<Arc<dyn Store>, OpenError> {
        let path = file_of(choice)?;
        on_file(choice, move || SqliteStore::open_unflushed(&path).map(|store| store as Arc<dyn Store>)).await
    }

    fn file_of(choice: &StoreChoice) -> Result<PathBuf, OpenError> {
        let others = |kind| Err(OpenError::NoBackup { kind, url: choice.url.to_string() });
        match choice.url.kind() {
            StoreKind::Sqlite(path) => Ok(path.clone()),
            StoreKind::Postgres => others("PostgreSQL"),
            StoreKind::Redis => others("Redis"),
            StoreKind::Several(_) => Err(OpenError::Several { url: choice.url.to_string() }),
        }
    }

    /// Work on files takes its time: not on a thread that drives others.
    async fn on_file<T: Send + 'static>(
        choice: &StoreChoice,
        work: impl FnOnce() -> StoreResult<T> + Send + 'static,
    ) -> Result<T, OpenError> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.unwrap_or_else(|e| Err(StoreError::unavailable(e.to_string())));
        done.map_err(|problem| failed(choice, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Origin, StoreUrl};

    async fn refusal(url: &str) -> String {
        let choice = StoreChoice { url: StoreUrl::parse(url).unwrap(), origin: Origin::Default };
        open(&choice, Duration::ZERO).await.err().expect("it is refused").to_string()
    }

    #[tokio::test]
    async fn there_is_no_store_in_memory_to_fall_back_to() {
        for url in ["sqlite::memory:", "sqlite:file::memory:"] {
            let text = refusal(url).await;
            assert!(text.contains("never keeps events in memory"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_refused_with_its_place_and_without_its_password() {
        for scheme in ["postgres", "redis"] {
            let text = refusal(&format!("{scheme}://me:secret@127.0.0.1:1/0")).await;
            assert!(text.contains(&format!("{scheme}://me:***@127.0.0.1:1/0 (from default)")), "{text}");
            assert!(text.contains("unavailable"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_store_that_is_not_built_in_is_refused_with_the_feature_to_turn_on() {
        for (url, feature) in [
            ("sqlite:quell.db", "sqlite"),
            ("postgres://me:secret@db/quell", "postgres"),
            ("redis://:secret@cache/0", "redis"),
        ] {
            let choice = StoreChoice { url: StoreUrl::parse(url).unwrap(), origin: Origin::Default };
            let text = not_built_in(&choice, choice.url.kind()).to_string();
            assert!(
                text.contains(&format!("turn on the feature `{feature}` of the crate `quell`")),
                "{text}"
            );
            assert!(text.contains("(from default)") && !text.contains("secret"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_refused_with_its_place() {
        let text = refusal("sqlite:/nowhere/at/all/quell.db").await;
        assert!(text.contains("sqlite:/nowhere/at/all/quell.db (from default)"), "{text}");
    }
}
