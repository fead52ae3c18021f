//! The raw limit: the same bytes inserted without Quell, in commits of 64 and of 1,000 rows.
//!
//! SQLite: a prepared insert per row in one transaction. PostgreSQL: one prepared insert for all rows of a commit, with
//! the durability that the server is set to. Redis: an RPUSH per row in one MULTI, so that a server that syncs its log
//! always does so once per commit.

use rusqlite::Connection;

use crate::place::{Fresh, Kind};
use crate::{Sizes, Watch, key, payload};

pub(crate) struct Raw {
    pub(crate) at_64: f64,
    pub(crate) at_1000: f64,
}

const WARM_UP: usize = 50;

pub(crate) async fn measure(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Raw> {
    let (few, many) = (sizes.raw_commits, sizes.raw_commits.div_ceil(3));
    match fresh.kind {
        Kind::Sqlite => {
            let raw = Sqlite::make(fresh)?;
            raw.insert(64, WARM_UP.min(few))?;
            Ok(Raw { at_64: raw.insert(64, few)?, at_1000: raw.insert(1_000, many)? })
        }
        Kind::Postgres => {
            let raw = Postgres::make(fresh).await?;
            raw.insert(64, WARM_UP.min(few)).await?;
            Ok(Raw { at_64: raw.insert(64, few).await?, at_1000: raw.insert(1_000, many).await? })
        }
        Kind::Redis => {
            let mut raw = Redis::make(fresh).await?;
            raw.push(64, WARM_UP.min(few)).await?;
            Ok(Raw { at_64: raw.push(64, few).await?, at_1000: raw.push(1_000, many).await? })
        }
    }
}

/// One row in a commit of its own: what a single durable append costs at least.
pub(crate) enum Single {
    Sqlite(Sqlite),
    Postgres(Postgres),
    Redis(Redis),
}

impl Single {
    pub(crate) async fn make(fresh: &Fresh) -> anyhow::Result<Self> {
        Ok(match fresh.kind {
            Kind::Sqlite => Single::Sqlite(Sqlite::make(fresh)?),
            Kind::Postgres => Single::Postgres(Postgres::make(fresh).await?),
            Kind::Redis => Single::Redis(Redis::make(fresh).await?),
        })
    }

    /// How many milliseconds it took.
    pub(crate) async fn commit(self) -> anyhow::Result<(Self, f64)> {
        let (own, rate) = match self {
            // On a thread that may wait: those of the runtime measure something else meanwhile.
            Single::Sqlite(raw) => {
                let insert = move || raw.insert(1, 1).map(|rate| (Single::Sqlite(raw), rate));
                tokio::task::spawn_blocking(insert).await??
            }
            Single::Postgres(raw) => {
                let rate = raw.insert(1, 1).await?;
                (Single::Postgres(raw), rate)
            }
            Single::Redis(mut raw) => {
                let rate = raw.push(1, 1).await?;
                (Single::Redis(raw), rate)
            }
        };
        Ok((own, 1_000.0 / rate))
    }
}

pub(crate) struct Sqlite(Connection);

impl Sqlite {
    fn make(fresh: &Fresh) -> anyhow::Result<Self> {
        let connection = Connection::open(fresh.folder()?.join("raw.db"))?;
        // The same page size as the store has.
        connection.execute_batch("PRAGMA page_size = 8192")?;
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        connection.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000;
             CREATE TABLE raw (id INTEGER PRIMARY KEY, key TEXT NOT NULL, at INTEGER NOT NULL, payload TEXT NOT NULL) STRICT;",
        )?;
        Ok(Sqlite(connection))
    }

    fn insert(&self, rows: usize, commits: usize) -> anyhow::Result<f64> {
        let watch = Watch::start();
        for commit in 0..commits {
            self.0.execute_batch("BEGIN IMMEDIATE")?;
            let mut statement =
                self.0.prepare_cached("INSERT INTO raw (key, at, payload) VALUES (?1, ?2, ?3)")?;
            for row in 0..rows {
                let n = commit * rows + row;
                statement.execute((key(n), n, payload(n).as_str()))?;
            }
            drop(statement);
            self.0.execute_batch("COMMIT")?;
        }
        Ok(watch.rate(rows * commits))
    }
}

pub(crate) struct Postgres {
    client: tokio_postgres::Client,
    insert: tokio_postgres::Statement,
}

impl Postgres {
    async fn make(fresh: &Fresh) -> anyhow::Result<Self> {
        let (client, schema) = (fresh.postgres().await?, &fresh.name);
        let table = format!(
            "CREATE TABLE {schema}.raw (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, \
             at bigint NOT NULL, payload text NOT NULL)"
        );
        client.batch_execute(&table).await?;
        let insert = format!(
            "INSERT INTO {schema}.raw (key, at, payload) SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])"
        );
        let insert = client.prepare(&insert).await?;
        Ok(Postgres { client, insert })
    }

    async fn insert(&self, rows: usize, commits: usize) -> anyhow::Result<f64> {
        let watch = Watch::start();
        for commit in 0..commits {
            let numbers = commit * rows..(commit + 1) * rows;
            let keys: Vec<String> = numbers.clone().map(key).collect();
            let times: Vec<i64> = numbers.clone().map(|n| i64::try_from(n).unwrap_or_default()).collect();
            let payloads: Vec<_> = numbers.map(payload).collect();
            let payloads: Vec<&str> = payloads.iter().map(|payload| payload.as_str()).collect();
            self.client.execute(&self.insert, &[&keys, &times, &payloads]).await?;
        }
        Ok(watch.rate(rows * commits))
    }
}

pub(crate) struct Redis {
    connection: redis::aio::MultiplexedConnection,
    list: String,
}

impl Redis {
    async fn make(fresh: &Fresh) -> anyhow::Result<Self> {
        Ok(Redis { connection: fresh.redis().await?, list: format!("{}:raw", fresh.name) })
    }

    async fn push(&mut self, rows: usize, commits: usize) -> anyhow::Result<f64> {
        let watch = Watch::start();
        for commit in 0..commits {
            let mut pipe = redis::pipe();
            pipe.atomic();
            for row in 0..rows {
                let n = commit * rows + row;
                let value = format!("{}{n:016x}{}", key(n), payload(n).as_str());
                pipe.cmd("RPUSH").arg(&self.list).arg(value).ignore();
            }
            let _: () = pipe.query_async(&mut self.connection).await?;
        }
        Ok(watch.rate(rows * commits))
    }
}
