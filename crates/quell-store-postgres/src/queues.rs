//! The queues that this process knows: their numbers, names and priorities, and the sources that their lanes have waited
//! for. A queue never goes, so nothing here is wrong for long: at most a priority or a source that another process has added
//! is missing. After a restore or failover all of it is forgotten.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::RwLock;

use quell_core::error::StoreResult;
use quell_core::event::{QueueName, Tenant};
use quell_core::source::SourceId;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use crate::connection::{Connection, Sql};
use crate::rows::{get, lost_queue, queue_name, tenant};

pub(crate) type Names = (Tenant, QueueName);

static BY_ID: Sql = Sql {
    text: "SELECT id, tenant, name, priorities FROM quell.queue WHERE id = ANY($1)",
    types: &[Type::INT4_ARRAY],
};
static BY_NAME: Sql = Sql {
    text: "SELECT q.id, q.tenant, q.name, q.priorities FROM unnest($1::text[], $2::text[]) AS w(tenant, name)
           JOIN quell.queue q ON q.tenant = w.tenant AND q.name = w.name",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};
/// The same names may be made by others at this moment: then their row is waited for and taken.
static MAKE: Sql = Sql {
    text: "INSERT INTO quell.queue (tenant, name) SELECT * FROM unnest($1::text[], $2::text[])
           ON CONFLICT (tenant, name) DO NOTHING RETURNING id",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};

/// What goes wrong while names are looked up: the connection, or a row.
pub(crate) enum Fault {
    Connection(Error),
    Store(quell_core::error::StoreError),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Connection(error)
    }
}

impl From<quell_core::error::StoreError> for Fault {
    fn from(error: quell_core::error::StoreError) -> Self {
        Fault::Store(error)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) id: i32,
    pub(crate) priorities: i32,
}

#[derive(Default)]
pub(crate) struct Queues {
    known: RwLock<Both>,
}

#[derive(Default)]
struct Both {
    /// In which history of the database they were read: see `origin.rs`.
    origin: Option<String>,
    by_name: HashMap<Names, Known>,
    by_id: HashMap<i32, Names>,
    /// Queues with the sources under which a look for due lanes asks for theirs.
    pairs: HashSet<(i32, SourceId)>,
}

impl Queues {
    /// Forgets everything when the database has another past than the one in which it was read: a restore or a failover
    /// may have taken queues and priorities back. Says whether it has: what was asked by the numbers of before is void.
    pub(crate) fn are_of(&self, origin: Option<&str>) -> bool {
        if self.known.read().expect("no panic happens while it is locked").origin.as_deref() == origin {
            return false;
        }
        let mut both = self.known.write().expect("no panic happens while it is locked");
        let forgotten = both.origin.is_some();
        if forgotten {
            both.by_name.clear();
            both.by_id.clear();
            both.pairs.clear();
        }
        both.origin = origin.map(str::to_owned);
        forgotten
    }

    pub(crate) fn get(&self, names: &Names) -> Option<Known> {
        self.known.read().expect("no panic happens while it is locked").by_name.get(names).copied()
    }

    pub(crate) fn names(&self, id: i32) -> Option<Names> {
        self.known.read().expect("no panic happens while it is locked").by_id.get(&id).cloned()
    }

    pub(crate) fn put(&self, names: Names, known: Known) {
        let mut both = self.known.write().expect("no panic happens while it is locked");
        both.by_id.insert(known.id, names.clone());
        let place = both.by_name.entry(names).or_insert(known);
        place.priorities |= known.priorities;
    }

    /// Whether looks ask this queue for lanes of this source.
    pub(crate) fn has_pair(&self, queue: i32, source: SourceId) -> bool {
        self.known.read().expect("no panic happens while it is locked").pairs.contains(&(queue, source))
    }

    /// Takes pairs in that were seen in the database.
    pub(crate) fn put_pairs(&self, pairs: impl Iterator<Item = (i32, SourceId)>) {
        let new: Vec<(i32, SourceId)> =
            pairs.filter(|(queue, source)| !self.has_pair(*queue, *source)).collect();
        if !new.is_empty() {
            self.known.write().expect("no panic happens while it is locked").pairs.extend(new);
        }
    }

    /// Takes rows of (id, tenant, name, priorities) in.
    pub(crate) fn take_in(&self, rows: &[Row]) -> StoreResult<()> {
        for row in rows {
            let names = (tenant(get(row, 1)?)?, queue_name(get(row, 2)?)?);
            let known = Known { id: get(row, 0)?, priorities: get(row, 3)? };
            if self.get(&names).is_none_or(|old| old.priorities != known.priorities) {
                self.put(names, known);
            }
        }
        Ok(())
    }

    /// Asks for the names of queues that are not known here yet.
    pub(crate) async fn learn_ids(
        &self,
        connection: &Connection,
        ids: impl Iterator<Item = i32>,
    ) -> Result<(), Fault> {
        let unknown: Vec<i32> = ids.filter(|id| self.names(*id).is_none()).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let rows = connection.query(&BY_ID, &[&unknown]).await?;
        self.take_in(&rows)?;
        match unknown.into_iter().find(|id| self.names(*id).is_none()) {
            Some(id) => Err(lost_queue(id).into()),
            None => Ok(()),
        }
    }

    /// Asks for the numbers of queues that are not known here yet. Those that do not exist stay unknown.
    pub(crate) async fn learn_names<'n>(
        &self,
        connection: &Connection,
        names: impl Iterator<Item = &'n Names>,
    ) -> Result<(), Fault> {
        let unknown: Vec<&Names> = names.filter(|names| self.get(names).is_none()).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let (tenants, names) = columns(unknown.into_iter());
        let rows = connection.query(&BY_NAME, &[&tenants, &names]).await?;
        Ok(self.take_in(&rows)?)
    }

    /// Makes the queues that do not exist, in the transaction of this connection. They are not known here before it has
    /// committed, because it may not. Says, too, whether others have made some of them meanwhile.
    pub(crate) async fn make(
        &self,
        connection: &Connection,
        unknown: &[&Names],
    ) -> Result<(BTreeMap<Names, Known>, bool), Fault> {
        let (tenants, names) = columns(unknown.iter().copied());
        let own = connection.query(&MAKE, &[&tenants, &names]).await?.len();
        let rows = connection.query(&BY_NAME, &[&tenants, &names]).await?;
        let mut made = BTreeMap::new();
        for row in &rows {
            let names = (tenant(get(row, 1)?)?, queue_name(get(row, 2)?)?);
            made.insert(names, Known { id: get(row, 0)?, priorities: get(row, 3)? });
        }
        Ok((made, own < unknown.len()))
    }
}

fn columns<'n>(names: impl Iterator<Item = &'n Names>) -> (Vec<&'n str>, Vec<&'n str>) {
    names.map(|(tenant, name)| (tenant.as_str(), name.as_str())).unzip()
}
