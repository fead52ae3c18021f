//! Shelves: small documents beside the lanes. Whoever changes a shelf holds its lock, so that its bound is exact and the
//! first of a name is the only one.

use quell_core::clock::Timestamp;
use quell_core::error::StoreResult;
use quell_core::limits;
use quell_core::shelf::{Document, Shelf};
use quell_store_rows::changes::Changes;
use quell_store_rows::codec;
use quell_store_rows::rows::RowsResult;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::Shared;
use crate::connection::{Connection, Request, Sql, Value};
use crate::error::{not_done, trouble};
use crate::health::MOMENT;
use crate::rows::{count, get, number};
use crate::tx::{Tx, store_time};

static LOCK: Sql =
    Sql { text: "SELECT pg_advisory_xact_lock(hashtext('quell.shelf'), hashtext($1))", types: &[Type::TEXT] };
static DOCUMENT: Sql = Sql {
    text: "SELECT shelf, body FROM quell.document WHERE shelf = $1 AND name = $2",
    types: &[Type::TEXT, Type::TEXT],
};
/// How many there are matters only to one that would be added: whoever is there already does not count the others.
static LIVE: Sql = Sql {
    text: "SELECT CASE WHEN EXISTS (SELECT 1 FROM quell.document
                                    WHERE shelf = $1 AND name = $2 AND coalesce(expires_at > $3, true)) THEN 0
                  ELSE (SELECT count(*) FROM quell.document WHERE shelf = $1)
                     - (SELECT count(*) FROM quell.document WHERE shelf = $1 AND expires_at <= $3) END",
    types: &[Type::TEXT, Type::TEXT, Type::INT8],
};
static DOCUMENTS: Sql = Sql {
    text: "SELECT shelf, body FROM quell.document WHERE shelf = $1 ORDER BY name",
    types: &[Type::TEXT],
};
static ALL: Sql = Sql { text: "SELECT shelf, body FROM quell.document ORDER BY shelf, name", types: &[] };
static PUT: Sql = Sql {
    text: "INSERT INTO quell.document (shelf, name, expires_at, body)
           SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[])
           ON CONFLICT (shelf, name) DO UPDATE SET expires_at = excluded.expires_at, body = excluded.body",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BYTEA_ARRAY],
};
static GONE: Sql = Sql {
    text: "DELETE FROM quell.document d USING unnest($1::text[], $2::text[]) AS w(shelf, name)
           WHERE d.shelf = w.shelf AND d.name = w.name",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};
/// One that somebody puts at this moment is live again when he is done, and is left alone.
static FORGET: Sql = Sql {
    text: "WITH gone AS (
             DELETE FROM quell.document WHERE ctid = ANY(ARRAY(
               SELECT ctid FROM quell.document WHERE shelf = ANY($1) AND expires_at <= $2
               LIMIT $3 FOR UPDATE SKIP LOCKED)))
           SELECT EXISTS (SELECT 1 FROM quell.document WHERE shelf = ANY($1) AND expires_at <= $2 OFFSET $3)",
    types: &[Type::TEXT_ARRAY, Type::INT8, Type::INT8],
};
/// Nothing is left of what was there before a copy.
pub(crate) static NO_DOCUMENTS: Sql = Sql { text: "DELETE FROM quell.document", types: &[] };

fn read_document(row: &Row) -> StoreResult<(Shelf, Document)> {
    Ok((Shelf::parse(get(row, 0)?)?, codec::read_document(get(row, 1)?)?))
}

impl Tx {
    /// Locks the shelf, then reads: what whoever had the lock before has written is seen.
    pub(crate) async fn place_on(
        &mut self,
        shelf: Shelf,
        name: &str,
    ) -> RowsResult<(Option<Document>, usize)> {
        let shelf = || -> Value { Box::new(shelf.as_str()) };
        let name = || -> Value { Box::new(name.to_owned()) };
        let now: Value = Box::new(self.now.as_millis());
        let requests: [Request; 3] =
            [(&LOCK, vec![shelf()]), (&DOCUMENT, vec![shelf(), name()]), (&LIVE, vec![shelf(), name(), now])];
        let answers = self.connection()?.read(&requests).await.map_err(|e| trouble(&e))?;
        let row = |at: usize| answers.get(at).and_then(|rows| rows.first());
        let known = row(1).map(read_document).transpose()?;
        let live = row(2).map_or(Ok(0), |row| count(row, 0))?;
        Ok((known.map(|(_, document)| document), usize::try_from(live).unwrap_or(usize::MAX)))
    }
}

pub(crate) async fn documents(shared: &Shared, shelf: Shelf) -> StoreResult<(Timestamp, Vec<Document>)> {
    let connection = shared.connections.get().await?;
    let moment = connection.query(&MOMENT, &[]).await.map_err(|e| not_done(&e))?;
    let now = moment.first().map_or(Ok(Timestamp::default()), store_time)?;
    let rows = connection.query(&DOCUMENTS, &[&shelf.as_str()]).await.map_err(|e| not_done(&e))?;
    let documents = rows.iter().map(|row| read_document(row).map(|(_, document)| document));
    Ok((now, documents.collect::<StoreResult<_>>()?))
}

/// Every document there is, also those that are over.
pub(crate) async fn all(connection: &Connection) -> StoreResult<Vec<(Shelf, Document)>> {
    let rows = connection.query(&ALL, &[]).await.map_err(|e| not_done(&e))?;
    rows.iter().map(read_document).collect()
}

pub(crate) fn write(changes: &Changes, requests: &mut Vec<Request>) {
    if !changes.gone_documents.is_empty() {
        let gone = changes.gone_documents.iter();
        let (shelves, names): (Vec<&str>, Vec<String>) =
            gone.map(|(shelf, name)| (shelf.as_str(), name.clone())).unzip();
        requests.push((&GONE, vec![Box::new(shelves), Box::new(names)]));
    }
    let rows = &changes.documents;
    if !rows.is_empty() {
        let expires = |(_, document): &(Shelf, Document)| document.expires_at.map(Timestamp::as_millis);
        let values: Vec<Value> = vec![
            Box::new(rows.iter().map(|(shelf, _)| shelf.as_str()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|(_, document)| document.name.clone()).collect::<Vec<_>>()),
            Box::new(rows.iter().map(expires).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|(_, document)| codec::write_document(document)).collect::<Vec<_>>()),
        ];
        requests.push((&PUT, values));
    }
}

/// Forgets documents that are over, a bounded number. Says whether there are more.
pub(crate) async fn forget(connection: &Connection, now: Timestamp) -> StoreResult<bool> {
    let (shelves, step) = (Shelf::ALL.map(Shelf::as_str), number(limits::SHELF_SWEEP_STEP as u64));
    let rows = connection.query(&FORGET, &[&&shelves[..], &now.as_millis(), &step]).await;
    rows.map_err(|e| not_done(&e))?.first().map_or(Ok(false), |row| get(row, 0))
}
