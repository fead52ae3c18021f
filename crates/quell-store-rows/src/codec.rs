//! Rows as bytes: MessagePack by position, one byte of version in front.
//!
//! A lane under load is some 200 bytes this way, against 900 as JSON, and it is written on every append. What people and
//! indexes look for (key, due time, state) is kept beside it in columns or sets. New fields go at the end of their
//! struct with a default, so that a newer version reads what an older one wrote.

use std::collections::BTreeMap;

use quell_core::aside::Aside;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::LaneKey;
use quell_core::lane::{Finished, Lane, Paused};
use quell_core::schedule::ScheduleRow;
use quell_core::shelf::Document;
use quell_core::source::{CacheRow, Declaration, Source};
use quell_core::working_set::{FinishedRun, Trail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first byte of every row.
const VERSION: u8 = 1;

fn write(row: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    rmp_serde::encode::write(&mut bytes, row).expect("rows of the engine always have a form in bytes");
    bytes
}

fn read<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> StoreResult<T> {
    let unreadable = |why: String| {
        StoreError::new(
            ErrorKind::Corrupt,
            format!("the stored {what} cannot be read ({why}); was it written by a newer version of Quell?"),
        )
    };
    match bytes {
        [VERSION, rest @ ..] => rmp_serde::from_slice(rest).map_err(|e| unreadable(e.to_string())),
        [version, ..] => Err(unreadable(format!("format {version}"))),
        [] => Err(unreadable("it is empty".to_owned())),
    }
}

pub fn write_lane(lane: &Lane) -> Vec<u8> {
    write(lane)
}

pub fn read_lane(bytes: &[u8]) -> StoreResult<Lane> {
    read("lane", bytes)
}

/// An ended run without its key, which the lane has.
#[derive(Serialize, Deserialize)]
struct RunBytes {
    ended: Finished,
    /// As JSON text, which keeps every number as it was.
    result: Option<String>,
    usage: BTreeMap<String, f64>,
}

pub fn write_run(run: &FinishedRun) -> Vec<u8> {
    let result = run.result.as_ref().map(serde_json::Value::to_string);
    write(&RunBytes { ended: run.ended.clone(), result, usage: run.usage.clone() })
}

pub fn read_run(key: LaneKey, lane: u64, bytes: &[u8]) -> StoreResult<FinishedRun> {
    let RunBytes { ended, result, usage } = read("run", bytes)?;
    let result = result.map(|text| serde_json::from_str(&text)).transpose();
    let result = result.map_err(|e| StoreError::new(ErrorKind::Corrupt, format!("a run's result: {e}")))?;
    Ok(FinishedRun { key, lane, ended, result, usage })
}

pub fn write_aside(aside: &Aside) -> Vec<u8> {
    write(aside)
}

pub fn read_aside(bytes: &[u8]) -> StoreResult<Aside> {
    read("event aside", bytes)
}

pub fn write_schedule(row: &ScheduleRow) -> Vec<u8> {
    write(row)
}

pub fn read_schedule(bytes: &[u8]) -> StoreResult<ScheduleRow> {
    read("schedule", bytes)
}

pub fn write_source(source: &Source) -> Vec<u8> {
    write(source)
}

pub fn read_source(bytes: &[u8]) -> StoreResult<Source> {
    read("source", bytes)
}

pub fn write_declaration(declaration: &Declaration) -> Vec<u8> {
    write(declaration)
}

pub fn read_declaration(bytes: &[u8]) -> StoreResult<Declaration> {
    read("declaration of a source", bytes)
}

/// A kept answer; its value as JSON text, which keeps every number as it was.
pub fn write_answer(row: &CacheRow) -> Vec<u8> {
    let value = row.value.as_ref().map(serde_json::Value::to_string);
    write(&(value, CacheRow { value: None, ..row.clone() }))
}

pub fn read_answer(bytes: &[u8]) -> StoreResult<CacheRow> {
    let (value, row): (Option<String>, CacheRow) = read("kept answer", bytes)?;
    let value = value
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|why| StoreError::new(ErrorKind::Corrupt, format!("a kept answer is no JSON: {why}")))?;
    Ok(CacheRow { value, ..row })
}

/// A document with its name; its body as JSON text, which keeps every number as it was.
pub fn write_document(document: &Document) -> Vec<u8> {
    let Document { name, body, put_at, expires_at } = document;
    write(&(name, body.to_string(), put_at, expires_at))
}

pub fn read_document(bytes: &[u8]) -> StoreResult<Document> {
    let (name, body, put_at, expires_at): (String, String, _, _) = read("document", bytes)?;
    let body = serde_json::from_str(&body)
        .map_err(|why| StoreError::new(ErrorKind::Corrupt, format!("document {name:?} is no JSON: {why}")))?;
    Ok(Document { name, body, put_at, expires_at })
}

pub fn write_paused(paused: &Paused) -> Vec<u8> {
    write(paused)
}

pub fn read_paused(bytes: &[u8]) -> StoreResult<Paused> {
    read("pause", bytes)
}

/// A record of the trail with its lane, for stores that keep it as one value. It holds no key.
pub fn write_trail(trail: &Trail) -> Vec<u8> {
    let mut record = trail.record.clone();
    record.key = None;
    write(&(trail.lane, record))
}

pub fn read_trail(bytes: &[u8]) -> StoreResult<Trail> {
    let (lane, record) = read("audit record", bytes)?;
    Ok(Trail { lane, record })
}
