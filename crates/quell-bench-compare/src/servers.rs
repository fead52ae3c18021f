//! The servers of the run, and a fresh place on them for every cell.
//!
//! One PostgreSQL as it is installed and two Redis with an append-only log, one for each way of flushing it, all with their data in
//! a folder on a disk. A cell on PostgreSQL gets a database of its own after a checkpoint, one on Redis an empty server, one on
//! SQLite or with a server of its own an empty folder, so that nobody pays for what a neighbour left.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use quell_test_servers::{Options, Postgres, Redis};
use tempfile::TempDir;

use crate::systems::Store;

pub struct Servers {
    folder: PathBuf,
    postgres: Option<Postgres>,
    always: Option<Redis>,
    everysec: Option<Redis>,
    made: usize,
}

/// Where one cell works.
pub struct Fresh {
    pub address: String,
    database: Option<String>,
    /// Deleted with the value.
    _folder: Option<TempDir>,
}

impl Servers {
    /// Those that the chosen systems need.
    ///
    /// # Errors
    ///
    /// When a server is not installed or does not start.
    pub fn start(stores: &[Store], folder: &Path) -> anyhow::Result<Self> {
        let options = || Options::default().inside(folder);
        let wanted = |store: Store| stores.contains(&store);
        let redis = |flush: &str| {
            Redis::start_with(options().setting("appendfsync", flush)).context("cannot start Redis")
        };
        Ok(Servers {
            folder: folder.to_path_buf(),
            postgres: wanted(Store::Postgres)
                .then(|| Postgres::start(options()).context("cannot start PostgreSQL"))
                .transpose()?,
            always: wanted(Store::RedisAlways).then(|| redis("always")).transpose()?,
            everysec: wanted(Store::RedisEverysec).then(|| redis("everysec")).transpose()?,
            made: 0,
        })
    }

    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn fresh(&mut self, store: Store) -> anyhow::Result<Fresh> {
        self.made += 1;
        match store {
            Store::Sqlite | Store::Own => {
                let folder = tempfile::Builder::new().prefix("cell-").tempdir_in(&self.folder)?;
                let address = folder.path().to_str().context("the folder's name is not text")?.to_owned();
                Ok(Fresh { address, database: None, _folder: Some(folder) })
            }
            Store::Postgres => {
                let postgres = self.postgres.as_ref().context("PostgreSQL was not started")?;
                let name = format!("cell_{}", self.made);
                let client = connect(postgres).await?;
                for statement in [format!("CREATE DATABASE {name}"), "CHECKPOINT".to_owned()] {
                    client.execute(&statement, &[]).await.with_context(|| statement.clone())?;
                }
                Ok(Fresh { address: postgres.url_of(&name), database: Some(name), _folder: None })
            }
            Store::RedisAlways | Store::RedisEverysec => {
                let server = if store == Store::RedisAlways { &self.always } else { &self.everysec };
                let url = server.as_ref().context("Redis was not started")?.url();
                let mut connection =
                    redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
                let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await?;
                Ok(Fresh { address: url, database: None, _folder: None })
            }
        }
    }

    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn remove(&self, fresh: Fresh) -> anyhow::Result<()> {
        if let (Some(name), Some(postgres)) = (&fresh.database, &self.postgres) {
            let statement = format!("DROP DATABASE {name} WITH (FORCE)");
            connect(postgres).await?.execute(&statement, &[]).await.with_context(|| statement.clone())?;
        }
        Ok(())
    }

    /// The versions and what they promise, read back from the servers.
    ///
    /// # Errors
    ///
    /// When a server does not answer.
    pub async fn conditions(&self) -> anyhow::Result<Vec<String>> {
        let mut urls = vec![format!("sqlite:{}", self.folder.join("x.db").display())];
        urls.extend(self.postgres.as_ref().map(Postgres::url));
        urls.extend([&self.always, &self.everysec].into_iter().flatten().map(Redis::url));
        let mut said = Vec::new();
        for url in urls {
            said.push(quell_bench::Place::of(&url)?.conditions().await?);
        }
        Ok(said)
    }
}

async fn connect(postgres: &Postgres) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
