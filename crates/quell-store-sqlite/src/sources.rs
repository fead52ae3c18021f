//! Sources: what a transaction knows of outside parties, the verb of holders, the operator's hand, kept answers.
//!
//! A source is one row with its whole state. A transaction reads it when a lane asks it, lets `quell_core::source` decide,
//! and writes it at its end, so a token is taken if and only if the lane is handed out. Every change goes through
//! [`Tx::change_source`]: where it lets lanes go earlier than before, the queues in which they wait are told, and with
//! them whoever sleeps.

use std::collections::{BTreeMap, HashMap};

use quell_core::audit::AuditRecord;
use quell_core::clock::Timestamp;
use quell_core::error::{StoreError, StoreResult};
use quell_core::event::{LaneKey, NewEvent, SourceName, Tenant};
use quell_core::source::{Because, CacheRow, Declaration, Readiness, Source, SourceId, SourceRules};
use quell_core::store::{Control, ControlAction, Controlled, SourceAnswer, SourceRequest, unknown_source};
use quell_core::working_set::{Inhabited, Numbers, WorkingSet};
use quell_core::{lane, limits};
use rusqlite::types::{FromSqlError, Value};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::claim::key_of;
use crate::control::{find_lane, new_lane};
use crate::due::{first_of, waiting_queues};
use crate::error::not_done;
use crate::rows::{at, flags, from_json, maybe_text, number, time, to_json};
use crate::tx::Tx;

pub(crate) const SOURCE_BY_ID: &str = "SELECT body FROM source WHERE id = ?1";
const SOURCE_BY_NAME: &str = "SELECT body FROM source WHERE tenant = ?1 AND name = ?2";
const SOURCES_OF_NAME: &str = "SELECT body FROM source WHERE name = ?1 ORDER BY tenant";
const ANSWER: &str =
    "SELECT source, key, value, kept_at, expires_at, flight FROM answer WHERE source = ?1 AND key = ?2";
const OVER: &str = "SELECT rowid FROM answer WHERE over_at <= ?1 ORDER BY over_at LIMIT ?2";
const FIRST_TO_GO: &str =
    "SELECT rowid FROM answer WHERE source = ?1 AND key <> ?2 ORDER BY expires_at LIMIT 1";

/// What one transaction has read of sources. Nothing of it outlives the transaction: other processes change them too.
#[derive(Default)]
pub(crate) struct Sources {
    /// Each with what is in the file, if it is: only what changed is written.
    rows: HashMap<SourceId, (Source, Option<Source>)>,
    names: HashMap<(Tenant, SourceName), SourceId>,
    declared: HashMap<SourceName, Option<SourceRules>>,
}

/// A source as its row keeps it.
pub(crate) fn read_source(row: &Row<'_>) -> rusqlite::Result<Source> {
    from_json(row.get_ref(0)?.as_str()?)
}

/// The declarations, by name.
pub(crate) fn declarations(connection: &Connection) -> rusqlite::Result<Vec<Declaration>> {
    let mut statement = connection.prepare_cached("SELECT name, rules FROM declaration ORDER BY name")?;
    let read = |row: &Row<'_>| {
        let name = source_name(row.get_ref(0)?.as_str()?)?;
        Ok(Declaration { name, rules: from_json(row.get_ref(1)?.as_str()?)? })
    };
    statement.query_map([], read)?.collect()
}

pub(crate) fn source_name(text: &str) -> rusqlite::Result<SourceName> {
    SourceName::new(text).map_err(|e| FromSqlError::Other(Box::new(e)).into())
}

pub(crate) fn is_declared(connection: &Connection, name: &SourceName) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM declaration WHERE name = ?1";
    connection.prepare_cached(sql)?.exists([name.as_str()])
}

/// What sources let go as the file has it: for those who only look. Each source is read once.
pub(crate) fn looker(
    connection: &Connection,
    now: Timestamp,
) -> impl FnMut(Option<SourceId>) -> rusqlite::Result<Readiness> {
    let mut known: HashMap<SourceId, Readiness> = HashMap::new();
    move |source| {
        let Some(id) = source else { return Ok(Readiness::FREE) };
        if let Some(ready) = known.get(&id) {
            return Ok(*ready);
        }
        let found = connection.prepare_cached(SOURCE_BY_ID)?.query_row([id.0], read_source).optional()?;
        let ready = readiness(found.as_ref(), now);
        known.insert(id, ready);
        Ok(ready)
    }
}

/// Lanes of a source that is not there are left alone.
fn readiness(source: Option<&Source>, now: Timestamp) -> Readiness {
    source.map_or(Readiness::Held(Because::Removed), |source| source.readiness(now))
}

impl Tx<'_, '_> {
    /// What is declared under this name.
    fn declared(&mut self, name: &SourceName) -> rusqlite::Result<Option<SourceRules>> {
        if let Some(known) = self.sources.declared.get(name) {
            return Ok(*known);
        }
        let sql = "SELECT rules FROM declaration WHERE name = ?1";
        let read = |row: &Row<'_>| from_json(row.get_ref(0)?.as_str()?);
        let rules = self.connection.prepare_cached(sql)?.query_row([name.as_str()], read).optional()?;
        self.sources.declared.insert(name.clone(), rules);
        Ok(rules)
    }

    /// Refuses an event that names a source which nobody declares.
    pub(crate) fn check_source(&mut self, event: &NewEvent) -> StoreResult<()> {
        match event.governed_by() {
            Some(name) if self.declared(name).map_err(|e| not_done(&e))?.is_none() => {
                Err(unknown_source(&event.lane, name))
            }
            _ => Ok(()),
        }
    }

    /// The source that governs an event which enters its lane now, made when it is the tenant's first. One that is not
    /// declared (any more) holds it: an event that was accepted is not lost, and not let go without its limits either.
    pub(crate) fn governing(&mut self, event: &NewEvent) -> rusqlite::Result<Option<SourceId>> {
        let Some(name) = event.governed_by() else { return Ok(None) };
        self.source_of(&event.lane.tenant, name).map(Some)
    }

    /// The source of this name for this tenant, made when nobody has named it before.
    fn source_of(&mut self, tenant: &Tenant, name: &SourceName) -> rusqlite::Result<SourceId> {
        let declared = self.declared(name)?;
        let of_nobody = match declared {
            Some(_) => None,
            None => self.source_named(&Tenant::none(), name)?,
        };
        let remembered =
            of_nobody.map(|id| self.source(id)).transpose()?.flatten().map(|source| source.rules);
        let tenant = Source::owner(tenant, declared, remembered);
        if let Some(known) = self.source_named(&tenant, name)? {
            return Ok(known);
        }
        let (id, now) = (SourceId(self.fresh()), self.now);
        self.know(Source::first(id, tenant, name.clone(), declared, now), false);
        Ok(id)
    }

    fn source_named(&mut self, tenant: &Tenant, name: &SourceName) -> rusqlite::Result<Option<SourceId>> {
        let place = (tenant.clone(), name.clone());
        if let Some(id) = self.sources.names.get(&place) {
            return Ok(Some(*id));
        }
        let mut statement = self.connection.prepare_cached(SOURCE_BY_NAME)?;
        let found = statement.query_row([tenant.as_str(), name.as_str()], read_source).optional()?;
        let id = found.as_ref().map(|source| source.id);
        if let Some(source) = found {
            self.know(source, true);
        }
        Ok(id)
    }

    /// Keeps a source for the rest of the transaction, unless it is known: what is known may be newer than the file.
    fn know(&mut self, source: Source, in_file: bool) {
        let place = (source.tenant.clone(), source.name.clone());
        self.sources.names.insert(place, source.id);
        let read = in_file.then(|| source.clone());
        self.sources.rows.entry(source.id).or_insert((source, read));
    }

    pub(crate) fn source(&mut self, id: SourceId) -> rusqlite::Result<Option<&Source>> {
        if !self.sources.rows.contains_key(&id) {
            let mut statement = self.connection.prepare_cached(SOURCE_BY_ID)?;
            if let Some(source) = statement.query_row([id.0], read_source).optional()? {
                self.know(source, true);
            }
        }
        Ok(self.sources.rows.get(&id).map(|(source, _)| source))
    }

    /// What a source lets go now; without a source, everything.
    pub(crate) fn readiness(&mut self, source: Option<SourceId>) -> rusqlite::Result<Readiness> {
        let Some(id) = source else { return Ok(Readiness::FREE) };
        let now = self.now;
        Ok(readiness(self.source(id)?, now))
    }

    /// Changes a source. If its lanes can go earlier than before, their queues want attention earlier.
    pub(crate) fn change_source(
        &mut self,
        id: SourceId,
        change: impl FnOnce(&mut Source),
    ) -> rusqlite::Result<()> {
        if self.source(id)?.is_none() {
            return Ok(());
        }
        let now = self.now;
        let (source, _) = self.sources.rows.get_mut(&id).expect("it was read above");
        let before = source.clone();
        change(source);
        if source.goes_earlier(Some(&before), now).is_none() {
            return Ok(());
        }
        for queue in waiting_queues(self.connection, id)? {
            let row = self.queue(queue)?.clone();
            let due = first_of(self.connection, &row, id)?;
            self.lane_due(queue, Some(id), due)?;
        }
        Ok(())
    }

    pub(crate) fn write_sources(&mut self) -> rusqlite::Result<()> {
        let rows = &self.sources.rows;
        let changed: Vec<Source> = rows
            .values()
            .filter(|(source, read)| read.as_ref() != Some(source))
            .map(|(source, _)| source.clone())
            .collect();
        for source in changed {
            self.put_source_row(&source)?;
            self.sources.rows.insert(source.id, (source.clone(), Some(source)));
        }
        Ok(())
    }

    pub(crate) fn put_source_row(&mut self, source: &Source) -> rusqlite::Result<()> {
        let sql = "INSERT INTO source (id, tenant, name, body) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (id) DO UPDATE SET body = excluded.body";
        let text = |s: &str| Value::Text(s.to_owned());
        let names = [text(source.tenant.as_str()), text(source.name.as_str())];
        let [tenant, name] = names;
        self.execute(sql, [number(source.id.0), tenant, name, to_json(source)]).map(|_| ())
    }

    pub(crate) fn put_declaration(&mut self, declaration: &Declaration) -> rusqlite::Result<()> {
        let values = [Value::Text(declaration.name.as_str().to_owned()), to_json(&declaration.rules)];
        self.execute("INSERT OR REPLACE INTO declaration (name, rules) VALUES (?1, ?2)", values).map(|_| ())
    }

    /// Forgets what was read of sources: the rows have been replaced, or perhaps changed behind this transaction's back.
    pub(crate) fn forget_sources(&mut self) {
        self.sources = Sources::default();
    }

    /// After a restore nobody has the right to probe: those who had it hold leases that are void.
    pub(crate) fn void_probes(&mut self) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare("SELECT body FROM source")?;
        let all: Vec<Source> = statement.query_map([], read_source)?.collect::<rusqlite::Result<_>>()?;
        for source in all.into_iter().filter(|source| source.probe.is_some()) {
            self.change_source(source.id, |source| source.probe = None)?;
        }
        Ok(())
    }
}

/// What a holder asks of its run's source, or of another: the decisions are those of the working set, on the rows that
/// it needs.
pub(crate) fn source(tx: &mut Tx<'_, '_>, request: &SourceRequest) -> StoreResult<SourceAnswer> {
    request.check()?;
    let (run, token) = (request.run_id, request.token);
    let lost = || StoreError::lost_lease(run, token);
    if !run.is_plausible() || token >= limits::NUMBER_MAX {
        return Err(lost());
    }
    let row = tx.lane(run.lane).map_err(|e| not_done(&e))?.ok_or_else(lost)?;
    let own = row.lane.holder(run.number, token).ok_or_else(lost)?.source;
    let place = own.and_then(|id| Some((id, request.action.key()?.to_owned())));
    let mut part = WorkingSet::default();
    let mut read = || -> rusqlite::Result<Option<CacheRow>> {
        let queue = tx.queue(row.queue_id)?.clone();
        let mut id = own;
        if let Some(name) = &request.source {
            let rules = tx.declared(name)?;
            part.declarations.extend(rules.map(|rules| (name.clone(), rules)));
            // Without a declaration the request is refused, and nothing is made for it.
            id = rules.map(|_| tx.source_of(&queue.tenant, name)).transpose()?;
        }
        let key = LaneKey { tenant: queue.tenant, queue: queue.name, key: key_of(&row.key)? };
        let (events, ids) = (BTreeMap::new(), BTreeMap::new());
        part.lanes.insert(key, Inhabited { lane: Box::new(row.lane.clone()), events, ids });
        if let Some(source) = id.map(|id| tx.source(id)).transpose()?.flatten() {
            part.sources.insert(source.id, source.clone());
        }
        let Some((id, key)) = &place else { return Ok(None) };
        let known = tx.connection.prepare_cached(ANSWER)?.query_row((id.0, key), read_answer).optional()?;
        part.cache.extend(known.clone().map(|row| ((*id, key.clone()), row)));
        Ok(known)
    };
    let known = read().map_err(|e| not_done(&e))?;
    let answer = part.source(tx.now, request.clone())?;
    let write = || -> rusqlite::Result<()> {
        let lane = part.lane_of(run.lane).map(|(_, l)| &*l.lane).filter(|lane| **lane != row.lane);
        if let Some(current) = lane.and_then(|lane| lane.current.as_ref()) {
            // Of the lane only that it has passed its probe can have changed.
            let values = [number(run.lane), flags(current)];
            tx.change_lane("UPDATE lane SET r_flags = ?2 WHERE id = ?1", values)?;
        }
        for (id, decided) in std::mem::take(&mut part.sources) {
            tx.change_source(id, |source| *source = decided)?;
        }
        let Some(place) = place else { return Ok(()) };
        match part.cache.remove(&place) {
            left if left == known => Ok(()),
            Some(left) => keep(tx, &left, known.is_none()),
            None => {
                let values = [number(place.0.0), Value::Text(place.1)];
                tx.execute("DELETE FROM answer WHERE source = ?1 AND key = ?2", values).map(|_| ())
            }
        }
    };
    write().map_err(|e| not_done(&e))?;
    Ok(answer)
}

/// Reads `source, key, value, kept_at, expires_at, flight`.
pub(crate) fn read_answer(row: &Row<'_>) -> rusqlite::Result<CacheRow> {
    let text = |column| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
    Ok(CacheRow {
        source: SourceId(row.get(0)?),
        key: row.get(1)?,
        value: text(2)?.map(from_json).transpose()?,
        kept_at: time(row, 3)?,
        expires_at: time(row, 4)?,
        flight: text(5)?.map(from_json).transpose()?,
    })
}

pub(crate) fn put_answer(tx: &mut Tx<'_, '_>, row: &CacheRow) -> rusqlite::Result<()> {
    let sql = "INSERT INTO answer (source, key, value, kept_at, expires_at, flight, over_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
               ON CONFLICT (source, key) DO UPDATE SET value = excluded.value, kept_at = excluded.kept_at,
                 expires_at = excluded.expires_at, flight = excluded.flight, over_at = excluded.over_at";
    let values = [
        number(row.source.0),
        Value::Text(row.key.clone()),
        maybe_text(row.value.as_ref().map(ToString::to_string)),
        at(row.kept_at),
        at(row.expires_at),
        row.flight.as_ref().map_or(Value::Null, to_json),
        at(row.over_at()),
    ];
    tx.execute(sql, values).map(|_| ())
}

/// Keeps an answer, or that it is being fetched. A source that has as many as it may forgets the one that expires first.
fn keep(tx: &mut Tx<'_, '_>, row: &CacheRow, new: bool) -> rusqlite::Result<()> {
    put_answer(tx, row)?;
    if !new {
        return Ok(());
    }
    let sql = "SELECT count(*) FROM answer WHERE source = ?1";
    let count: usize = tx.connection.prepare_cached(sql)?.query_row([row.source.0], |found| found.get(0))?;
    if count > limits::CACHE_ROWS_MAX {
        let mut statement = tx.connection.prepare_cached(FIRST_TO_GO)?;
        let first: Option<i64> =
            statement.query_row((row.source.0, &row.key), |found| found.get(0)).optional()?;
        let first = first.map_or(Value::Null, Value::Integer);
        tx.execute("DELETE FROM answer WHERE rowid = ?1", [first])?;
    }
    Ok(())
}

/// Forgets answers that are over, a bounded number. Says whether there are more.
pub(crate) fn forget_answers(tx: &mut Tx<'_, '_>) -> rusqlite::Result<bool> {
    let page = (tx.now.as_millis(), limits::CACHE_SWEEP_STEP + 1);
    let mut statement = tx.connection.prepare_cached(OVER)?;
    let over: Vec<i64> = statement.query_map(page, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for row in over.iter().take(limits::CACHE_SWEEP_STEP) {
        tx.execute("DELETE FROM answer WHERE rowid = ?1", [Value::Integer(*row)])?;
    }
    Ok(over.len() > limits::CACHE_SWEEP_STEP)
}

/// An operator's hand on a declaration, or on one source: decided by the working set on the rows that it needs.
pub(crate) fn control(tx: &mut Tx<'_, '_>, request: &Control) -> StoreResult<Controlled> {
    let mut part = part_of(tx, &request.action).map_err(|e| not_done(&e))?;
    let before = (part.declarations.clone(), part.sources.clone());
    let done = part.control(tx.now, &request.actor, request.action.clone())?;
    let mut write = || -> rusqlite::Result<()> {
        if let Numbers::Last(last) = part.numbers {
            tx.reach(last);
        }
        for (name, rules) in
            part.declarations.iter().filter(|(name, rules)| before.0.get(name) != Some(rules))
        {
            tx.put_declaration(&Declaration { name: name.clone(), rules: *rules })?;
        }
        for name in before.0.keys().filter(|name| !part.declarations.contains_key(*name)) {
            let values = [Value::Text(name.as_str().to_owned())];
            tx.execute("DELETE FROM declaration WHERE name = ?1", values)?;
        }
        tx.sources.declared.clear();
        for (id, decided) in std::mem::take(&mut part.sources) {
            if !before.1.contains_key(&id) {
                tx.know(decided.clone(), false);
            }
            if matches!(request.action, ControlAction::ResetSource(_)) {
                tx.execute("DELETE FROM answer WHERE source = ?1", [number(id.0)])?;
            }
            tx.change_source(id, |source| *source = decided)?;
        }
        for trail in std::mem::take(&mut part.audit) {
            record(tx, &trail.record, &request.actor)?;
        }
        Ok(())
    };
    write().map_err(|e| not_done(&e))?;
    Ok(done)
}

/// Writes what the working set has recorded, under the lane that the source has in the trail.
fn record(tx: &mut Tx<'_, '_>, record: &AuditRecord, actor: &str) -> rusqlite::Result<()> {
    let Some(key) = record.key.clone() else { return Ok(()) };
    let place = LaneKey { tenant: record.tenant.clone(), queue: record.queue.clone(), key };
    let row = match find_lane(tx, &place)? {
        Some(row) => row,
        None => new_lane(tx, &place)?,
    };
    tx.audit(row.queue_id, Some(row.lane.id), &lane::plain(record.change), Some(actor))
}

/// The rows that a hand on sources needs: all declarations, because they are counted, and the sources that it concerns.
fn part_of(tx: &mut Tx<'_, '_>, action: &ControlAction) -> rusqlite::Result<WorkingSet> {
    // What this transaction has decided so far has to be in the file to be found there.
    tx.write_sources()?;
    let connection = tx.connection;
    let of_name = |name: &SourceName| -> rusqlite::Result<Vec<Source>> {
        connection.prepare_cached(SOURCES_OF_NAME)?.query_map([name.as_str()], read_source)?.collect()
    };
    let sources = match action {
        ControlAction::PutSource { name, .. } | ControlAction::RemoveSource { name } => of_name(name)?,
        ControlAction::EnableSource(scope)
        | ControlAction::DisableSource(scope)
        | ControlAction::ResetSource(scope)
        | ControlAction::ReleaseSource(scope) => {
            let place = [scope.tenant.as_str(), scope.name.as_str()];
            let mut statement = connection.prepare_cached(SOURCE_BY_NAME)?;
            statement.query_row(place, read_source).optional()?.into_iter().collect()
        }
        _ => Vec::new(),
    };
    let declarations = declarations(connection)?.into_iter().map(|d| (d.name, d.rules)).collect();
    let sources = sources.into_iter().map(|source| (source.id, source)).collect();
    let numbers = Numbers::Last(tx.last_number());
    Ok(WorkingSet { numbers, declarations, sources, ..WorkingSet::default() })
}
