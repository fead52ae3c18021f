//! The map: which databases make up a store, which partitions each of them has, and from which ranges it takes its numbers.
//!
//! It is a document on the shelf [`Shelf::Map`] of every database, the same in all of them but for the line that says which one
//! this is. It has a version, which every move raises. A process that has not got all databases of the map, or others, or
//! databases whose maps differ, refuses to start: one that works with half a store would give the same key to two workers.

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::LaneKey;
use quell_core::shelf::{Document, Shelf, ShelfAction, ShelfAnswer, ShelfRequest};
use quell_core::store::Store;
use serde::{Deserialize, Serialize};

use crate::limits::{PARTITIONS, RANGE_BITS};
use crate::partition::partition_of;

/// The name of the map on its shelf.
pub(crate) const MAP: &str = "map";
/// The name of the document by which one process keeps others from making the map as well.
pub(crate) const MAKING: &str = "making";
/// The way in which a map is written down.
const FORM: u32 = 1;

/// Which database has what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    form: u32,
    /// Tells this store from others.
    pub store: String,
    /// Raised by every move.
    pub version: u64,
    /// For each partition the number of its database in `databases`.
    pub partitions: Vec<u8>,
    /// In their order.
    pub databases: Vec<Database>,
    /// Which of them has this copy of the map.
    pub me: usize,
}

/// One database of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Database {
    /// Where it was when the map was made, without secrets: for people.
    pub place: String,
    /// The range from which it takes its numbers.
    pub range: u64,
}

impl Map {
    /// The first map of a store, or that of a move: partitions are dealt out in turn.
    pub fn new(store: String, version: u64, databases: Vec<Database>) -> Self {
        let deal = |n: usize| u8::try_from(n % databases.len()).expect("there are at most 32 databases");
        let partitions = (0..PARTITIONS).map(deal).collect();
        Map { form: FORM, store, version, partitions, databases, me: 0 }
    }

    /// The copy for one database.
    #[must_use]
    pub fn copy_for(&self, me: usize) -> Self {
        Map { me, ..self.clone() }
    }

    /// The number of the database that has a lane.
    pub fn home(&self, lane: &LaneKey) -> usize {
        usize::from(self.partitions[partition_of(lane)])
    }

    /// The database in which a lane of this number was made, unless that was before a move.
    pub fn birth(&self, lane: u64) -> Option<usize> {
        self.databases.iter().position(|database| database.range == lane >> RANGE_BITS)
    }

    /// Reads the map of a database; nothing when it belongs to no store of several.
    pub async fn read(store: &dyn Store) -> StoreResult<Option<Map>> {
        let documents = documents(store).await?;
        let Some(document) = documents.into_iter().find(|document| document.name == MAP) else {
            return Ok(None);
        };
        let place = store.description().place;
        let map: Map = serde_json::from_value(document.body).map_err(|_| unreadable(&place))?;
        let whole = map.form == FORM
            && map.partitions.len() == PARTITIONS
            && map.me < map.databases.len()
            && map.partitions.iter().all(|n| usize::from(*n) < map.databases.len());
        if whole { Ok(Some(map)) } else { Err(unreadable(&place)) }
    }

    /// The document of this copy.
    pub fn body(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a map is plain data")
    }
}

/// What is on the shelf of maps.
pub(crate) async fn documents(store: &dyn Store) -> StoreResult<Vec<Document>> {
    let request = ShelfRequest { shelf: Shelf::Map, action: ShelfAction::List };
    match store.shelf(request).await? {
        ShelfAnswer::Documents(documents) => Ok(documents),
        _ => Ok(Vec::new()),
    }
}

fn unreadable(place: &str) -> StoreError {
    let detail = format!("the map in {place} is not one that this Quell can read; start a newer Quell");
    StoreError::new(ErrorKind::Corrupt, detail)
}

/// The databases of a list in the order of their map, and the map; or why the list is not the store.
pub(crate) fn agree(found: Vec<(String, Map)>) -> StoreResult<(Vec<usize>, Map)> {
    let refuse = |detail: String| Err(StoreError::new(ErrorKind::Corrupt, detail));
    let Some((first_place, first)) = found.first() else {
        return refuse("the list of databases is empty".to_owned());
    };
    for (place, map) in &found {
        if map.store != first.store {
            return refuse(format!(
                "{place} and {first_place} belong to two different stores; name the databases of one store"
            ));
        }
        if map.version != first.version {
            return refuse(format!(
                "the map in {place} has version {} and that in {first_place} version {}: a move was cut short, or one of \
                 them is from a backup; finish the move with `quell store move`",
                map.version, first.version
            ));
        }
        if map.copy_for(0) != first.copy_for(0) {
            return refuse(format!(
                "the maps in {place} and {first_place} differ though their version is the same"
            ));
        }
    }
    let mut order = vec![None; first.databases.len()];
    for (nth, (place, map)) in found.iter().enumerate() {
        if let Some(other) = order[map.me].replace(nth) {
            let (other, _) = &found[other];
            return refuse(format!("{place} and {other} are the same database, named twice"));
        }
    }
    let missing: Vec<&str> = (order.iter().zip(&first.databases))
        .filter(|(found, _)| found.is_none())
        .map(|(_, database)| database.place.as_str())
        .collect();
    if !missing.is_empty() {
        let (named, all) = (found.len(), first.databases.len());
        return refuse(format!(
            "the list names {named} of the {all} databases of this store; missing: {}; name all of them, in any order, as \
             store = [\"…\", \"…\"]",
            missing.join(", ")
        ));
    }
    Ok((order.into_iter().flatten().collect(), first.copy_for(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(store: &str, version: u64, me: usize) -> Map {
        let database = |n: u64| Database { place: format!("db{n}"), range: n + 1 };
        Map::new(store.to_owned(), version, vec![database(0), database(1)]).copy_for(me)
    }

    fn refusal(found: Vec<(&str, Map)>) -> String {
        agree(found.into_iter().map(|(place, map)| (place.to_owned(), map)).collect()).unwrap_err().detail
    }

    #[test]
    fn a_list_in_any_order_is_the_store_and_no_other_list_is() {
        let found = vec![("b".to_owned(), map("s", 1, 1)), ("a".to_owned(), map("s", 1, 0))];
        let (order, agreed) = agree(found).unwrap();
        assert_eq!((order, agreed.databases.len()), (vec![1, 0], 2));
        assert!(
            refusal(vec![("a", map("s", 1, 0))])
                .contains("names 1 of the 2 databases of this store; missing: db1")
        );
        assert!(refusal(vec![("a", map("s", 1, 0)), ("b", map("t", 1, 1))]).contains("two different stores"));
        assert!(refusal(vec![("a", map("s", 2, 0)), ("b", map("s", 1, 1))]).contains("a move was cut short"));
        assert!(refusal(vec![("a", map("s", 1, 0)), ("b", map("s", 1, 0))]).contains("named twice"));
        assert!(refusal(vec![]).contains("empty"));
    }

    #[test]
    fn a_map_survives_being_written_down_and_fits_its_shelf() {
        let databases = (0..32)
            .map(|n| Database { place: "postgres://user@host.example:5432/quell?schema=x".into(), range: n });
        let map = Map::new("s".into(), 7, databases.collect());
        assert!(map.body().to_string().len() < Shelf::Map.body_bytes_max());
        assert_eq!(serde_json::from_value::<Map>(map.body()).unwrap(), map);
        assert_eq!((map.birth(3 << RANGE_BITS), map.birth(32 << RANGE_BITS)), (Some(3), None));
    }
}
