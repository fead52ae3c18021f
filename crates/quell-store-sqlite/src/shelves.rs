//! Shelves: small documents beside the lanes. The decisions are those of the working set, on the one row that it needs.

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::limits;
use quell_core::shelf::{Document, Shelf, ShelfAnswer, ShelfRequest};
use quell_core::working_set::WorkingSet;
use rusqlite::types::{FromSqlError, Value};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::not_done;
use crate::rows::{at, from_json, maybe_at, maybe_time, time, to_json};
use crate::tx::{Tx, read_now};

const DOCUMENT: &str =
    "SELECT shelf, name, put_at, expires_at, body FROM document WHERE shelf = ?1 AND name = ?2";
const DOCUMENTS: &str =
    "SELECT shelf, name, put_at, expires_at, body FROM document WHERE shelf = ?1 ORDER BY name";
const ALL: &str = "SELECT shelf, name, put_at, expires_at, body FROM document ORDER BY shelf, name";
const LIVE: &str = "SELECT (SELECT count(*) FROM document WHERE shelf = ?1)
                         - (SELECT count(*) FROM document WHERE shelf = ?1 AND expires_at <= ?2)";
const OVER: &str =
    "SELECT name FROM document WHERE shelf = ?1 AND expires_at <= ?2 ORDER BY expires_at LIMIT ?3";

/// Puts or removes the document of this name.
pub(crate) fn shelf(tx: &mut Tx<'_, '_>, request: &ShelfRequest) -> StoreResult<ShelfAnswer> {
    request.check()?;
    let Some(name) = request.action.name() else { return list(tx.connection, request) };
    let place = (request.shelf, name.to_owned());
    let (known, elsewhere) = find(tx, request.shelf, name).map_err(|e| not_done(&e))?;
    let mut part = WorkingSet::default();
    part.shelves.extend(known.clone().map(|document| (place.clone(), document)));
    let answer = part.shelf(tx.now, request, elsewhere)?;
    let written = match part.shelves.remove(&place) {
        left if left == known => Ok(()),
        Some(document) => put_document(tx, request.shelf, &document),
        None => remove(tx, request.shelf, name),
    };
    written.map_err(|e| not_done(&e))?;
    Ok(answer)
}

/// All live documents, for readers.
pub(crate) fn list(connection: &Connection, request: &ShelfRequest) -> StoreResult<ShelfAnswer> {
    let read = || -> rusqlite::Result<(Timestamp, WorkingSet)> {
        let now = read_now(connection)?;
        let mut statement = connection.prepare_cached(DOCUMENTS)?;
        let found = statement.query_map([request.shelf.as_str()], read_document)?;
        let rows = found.map(|row| row.map(|(shelf, document)| ((shelf, document.name.clone()), document)));
        let shelves = rows.collect::<rusqlite::Result<_>>()?;
        Ok((now, WorkingSet { shelves, ..WorkingSet::default() }))
    };
    let (now, mut all) = read().map_err(|e| not_done(&e))?;
    all.shelf(now, request, 0)
}

/// What stands under this name, and how many others are live: those are only counted when this one is not.
fn find(tx: &Tx<'_, '_>, shelf: Shelf, name: &str) -> rusqlite::Result<(Option<Document>, usize)> {
    let mut statement = tx.connection.prepare_cached(DOCUMENT)?;
    let known = statement.query_row([shelf.as_str(), name], read_document).optional()?;
    let known = known.map(|(_, document)| document);
    if known.as_ref().is_some_and(|document| document.is_live(tx.now)) {
        return Ok((known, 0));
    }
    let mut statement = tx.connection.prepare_cached(LIVE)?;
    let live = statement.query_row((shelf.as_str(), tx.now.as_millis()), |row| row.get(0))?;
    Ok((known, live))
}

/// Reads `shelf, name, put_at, expires_at, body`.
fn read_document(row: &Row<'_>) -> rusqlite::Result<(Shelf, Document)> {
    let shelf = Shelf::parse(row.get_ref(0)?.as_str()?).map_err(|e| FromSqlError::Other(Box::new(e)))?;
    let document = Document {
        name: row.get(1)?,
        body: from_json(row.get_ref(4)?.as_str()?)?,
        put_at: time(row, 2)?,
        expires_at: maybe_time(row, 3)?,
    };
    Ok((shelf, document))
}

/// Every document there is, also those that are over.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<(Shelf, Document)>> {
    connection.prepare_cached(ALL)?.query_map([], read_document)?.collect()
}

pub(crate) fn put_document(tx: &mut Tx<'_, '_>, shelf: Shelf, document: &Document) -> rusqlite::Result<()> {
    let values = [
        Value::Text(shelf.as_str().to_owned()),
        Value::Text(document.name.clone()),
        at(document.put_at),
        maybe_at(document.expires_at),
        to_json(&document.body),
    ];
    let sql = "INSERT INTO document (shelf, name, put_at, expires_at, body) VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT (shelf, name) DO UPDATE SET put_at = excluded.put_at, expires_at = excluded.expires_at,
                 body = excluded.body";
    tx.execute(sql, values).map(|_| ())
}

fn remove(tx: &mut Tx<'_, '_>, shelf: Shelf, name: &str) -> rusqlite::Result<()> {
    let values = [Value::Text(shelf.as_str().to_owned()), Value::Text(name.to_owned())];
    tx.execute("DELETE FROM document WHERE shelf = ?1 AND name = ?2", values).map(|_| ())
}

/// Forgets documents that are over, a bounded number. Says whether there are more.
pub(crate) fn forget_documents(tx: &mut Tx<'_, '_>) -> rusqlite::Result<bool> {
    let mut left = limits::SHELF_SWEEP_STEP;
    for shelf in Shelf::ALL {
        let page = (shelf.as_str(), tx.now.as_millis(), left + 1);
        let mut statement = tx.connection.prepare_cached(OVER)?;
        let over = statement.query_map(page, |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        for name in over.iter().take(left) {
            remove(tx, shelf, name)?;
        }
        if over.len() > left {
            return Ok(true);
        }
        left -= over.len();
    }
    Ok(false)
}
