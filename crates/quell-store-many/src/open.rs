//! Opening a list of databases: the map is read and compared, or made if all of them are new.
//!
//! A new store is made by one process. It puts a word into each database that keeps others out for a minute, sets the range of
//! numbers, and writes the map into all of them. A process that finds the word tries again later; one that dies in between
//! leaves databases that are still empty, and the next one begins anew.

use std::sync::Arc;
use std::time::Duration;

use quell_core::copy::{Counts, Frame, Portable};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::shelf::{Shelf, ShelfAction, ShelfRequest};
use quell_core::store::Store;

use crate::ManyStore;
use crate::limits::{DATABASES_MAX, MAKING_SECS, RANGE_BITS, RANGE_FIRST, RANGES};
use crate::map::{Database, MAKING, MAP, Map, agree, documents};

/// A database that can be worked with and that can be moved: each of the stores.
pub trait Whole: Store + Portable {}

impl<S: Store + Portable> Whole for S {}

impl ManyStore {
    /// Opens the databases of a list as one store. `word` is new at every start: it names a store that is made, and this process
    /// among those that relay events.
    pub async fn open(members: Vec<Arc<dyn Whole>>, word: &str) -> StoreResult<Arc<ManyStore>> {
        check_number(members.len())?;
        let mut found = Vec::new();
        let mut new = Vec::new();
        for member in &members {
            let place = member.description().place;
            match Map::read(&**member).await? {
                Some(map) => found.push((place, map)),
                None => new.push(place),
            }
        }
        if !found.is_empty() && !new.is_empty() && !is_half_made(&members, &found).await? {
            let (known, new) = (&found[0].0, new.join(", "));
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!(
                    "{new} is none of the databases of the store that {known} belongs to; databases are added with `quell \
                     store move`"
                ),
            ));
        }
        if !new.is_empty() {
            make(&members, word).await?;
            return Box::pin(ManyStore::open(members, word)).await;
        }
        let (order, map) = agree(found)?;
        let members = order.into_iter().map(|nth| members[nth].clone() as Arc<dyn Store>).collect();
        Ok(ManyStore::over(members, map, word))
    }
}

/// Refuses a database that is only a part of a store, because it is opened alone.
pub async fn check_alone(store: &dyn Store) -> StoreResult<()> {
    match Map::read(store).await? {
        Some(map) => agree(vec![(store.description().place, map)]).map(drop),
        None => Ok(()),
    }
}

pub(crate) fn check_number(databases: usize) -> StoreResult<()> {
    if databases > DATABASES_MAX {
        let detail = format!("{databases} databases are named; a store has at most {DATABASES_MAX}");
        return Err(StoreError::new(ErrorKind::Limit, detail));
    }
    Ok(())
}

/// Whether the maps that are there are those of a store that was never finished: then nothing was ever stored in it.
async fn is_half_made(members: &[Arc<dyn Whole>], found: &[(String, Map)]) -> StoreResult<bool> {
    if found.iter().any(|(_, map)| map.version != 1 || map.databases.len() != members.len()) {
        return Ok(false);
    }
    for member in members {
        if anything(&member.frame().await?).is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the map of a new store.
async fn make(members: &[Arc<dyn Whole>], word: &str) -> StoreResult<()> {
    for member in members {
        let place = member.description().place;
        if let Some(what) = anything(&member.frame().await?) {
            return Err(StoreError::new(
                ErrorKind::Corrupt,
                format!(
                    "{place} cannot become a part of a store of several databases: {what}; move it with `quell store move`"
                ),
            ));
        }
        keep_others_out(&**member, word).await?;
    }
    // A database that is named twice has refused the second word.
    let databases = (RANGE_FIRST..)
        .zip(members)
        .map(|(range, member)| Database { place: member.description().place, range });
    let map = Map::new(word.to_owned(), 1, databases.collect());
    for (me, member) in members.iter().enumerate() {
        begin_numbers(&**member, map.databases[me].range, word).await?;
    }
    for (me, member) in members.iter().enumerate() {
        put(&**member, MAP, map.copy_for(me).body(), None, false).await?;
    }
    for member in members {
        let action = ShelfAction::Remove { name: MAKING.to_owned() };
        member.shelf(ShelfRequest { shelf: Shelf::Map, action }).await?;
    }
    Ok(())
}

async fn keep_others_out(member: &dyn Whole, word: &str) -> StoreResult<()> {
    let ttl = Duration::from_secs(MAKING_SECS);
    let answer = put(member, MAKING, serde_json::Value::from(word), Some(ttl), true).await;
    let place = member.description().place;
    answer.map_err(|error| match error.kind {
        ErrorKind::Conflict => StoreError::unavailable(format!(
            "{place} is being made a part of a store by another process, or is named twice in the list"
        )),
        _ => error,
    })
}

/// The numbers of this database begin with its range. Nothing is stored in it yet, and nobody else is making it.
async fn begin_numbers(member: &dyn Whole, range: u64, word: &str) -> StoreResult<()> {
    let first = first_number(range)?;
    let mine = documents(member).await?.iter().any(|d| d.name == MAKING && d.body == word);
    let frame = member.frame().await?;
    if !mine || anything(&frame).is_some() {
        let place = member.description().place;
        return Err(StoreError::unavailable(format!(
            "{place} was made a part of a store by another process"
        )));
    }
    member.take_frame(&Frame { last_number: frame.last_number.max(first), ..frame }).await
}

/// Where a range begins.
pub fn first_number(range: u64) -> StoreResult<u64> {
    if range >= RANGES {
        let detail = "the numbers of this store are used up: it was moved too often; start a new store and drain this one";
        return Err(StoreError::new(ErrorKind::Limit, detail));
    }
    Ok(range << RANGE_BITS)
}

async fn put(
    store: &dyn Store,
    name: &str,
    body: serde_json::Value,
    ttl: Option<Duration>,
    only_new: bool,
) -> StoreResult<()> {
    let action = ShelfAction::Put { name: name.to_owned(), body, ttl, only_new };
    store.shelf(ShelfRequest { shelf: Shelf::Map, action }).await.map(drop)
}

/// What is in a database that should be empty, but for its map.
pub fn anything(frame: &Frame) -> Option<String> {
    let Counts { lanes, events, runs, steps, aside, audit } = frame.counts;
    if lanes + events + runs + steps + aside + audit > 0 {
        return Some(format!("it has {lanes} lanes, {events} events, {runs} runs and {audit} audit records"));
    }
    let documents =
        frame.documents.iter().filter(|(shelf, d)| *shelf != Shelf::Map && d.is_live(frame.now)).count();
    let rows = frame.pauses.len() + frame.schedules.len() + frame.declarations.len() + documents;
    (rows > 0).then(|| "it has pauses, schedules, sources or documents".to_owned())
}
