//! The raw limit: the same bytes inserted by plain SQL, in commits of 64 and of 1,000 rows.

use std::path::Path;

use rusqlite::Connection;

use crate::{Watch, key, payload, scratch};

pub(crate) struct Raw {
    pub(crate) at_64: f64,
    pub(crate) at_1000: f64,
}

pub(crate) fn measure(folder: &Path) -> anyhow::Result<Raw> {
    let folder = scratch(folder)?;
    let connection = Connection::open(folder.path().join("raw.db"))?;
    // The same page size as the store has.
    connection.execute_batch("PRAGMA page_size = 8192")?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000;
         CREATE TABLE raw (id INTEGER PRIMARY KEY, key TEXT NOT NULL, at INTEGER NOT NULL, payload TEXT NOT NULL) STRICT;",
    )?;
    insert(&connection, 64, 50)?;
    Ok(Raw { at_64: insert(&connection, 64, 300)?, at_1000: insert(&connection, 1_000, 100)? })
}

fn insert(connection: &Connection, rows: usize, commits: usize) -> anyhow::Result<f64> {
    let watch = Watch::start();
    for commit in 0..commits {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut statement =
            connection.prepare_cached("INSERT INTO raw (key, at, payload) VALUES (?1, ?2, ?3)")?;
        for row in 0..rows {
            let n = commit * rows + row;
            statement.execute((key(n), n, payload(n).as_str()))?;
        }
        drop(statement);
        connection.execute_batch("COMMIT")?;
    }
    Ok(watch.rate(rows * commits))
}
