//! Conversations in tables, on SQLite and PostgreSQL.
//!
//! Everything that is written to one conversation begins with its row, whose lock makes those who write at once take turns.

use std::sync::Arc;

use async_trait::async_trait;
use quell::quell_core::error::StoreResult;
use quell::quell_core::tables::{Cell, Statement, Tables};

use super::{
    APPLICATION, Book, Conversation, ENTRIES_MAX, Entry, LISTED_MAX, Place, Wanted, cells, last_said,
    read_conversation, read_entry,
};

pub(super) static MIGRATIONS: [&str; 1] = [include_str!("../../migrations/001_conversations.sql")];

const COLUMNS: &str = "tenant, key, channel, customer, flow, name, address, state, reason, changed_at, first_at, last_at, preview";

/// A conversation that is there keeps who answers in it, and what is not told anew.
const UPSERT: &str = "INSERT INTO quell.chat_conversation AS known
    (tenant, key, channel, customer, flow, name, address, state, reason, changed_at, first_at, last_at, preview)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
    ON CONFLICT (tenant, key) DO UPDATE SET
        name = coalesce(excluded.name, known.name),
        address = coalesce(excluded.address, known.address),
        customer = excluded.customer";

const SAID: &str = "UPDATE quell.chat_conversation SET last_at = $3, preview = $4
    WHERE tenant = $1 AND key = $2 AND last_at <= $3";

const HAND: &str = "UPDATE quell.chat_conversation SET state = $3, reason = $4, changed_at = $5
    WHERE tenant = $1 AND key = $2";

const ENTER: &str = "INSERT INTO quell.chat_entry (tenant, key, n, id, at, role, text, about)
    VALUES ($1, $2,
        (SELECT coalesce(max(n), 0) + 1 FROM quell.chat_entry WHERE tenant = $1 AND key = $2),
        $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, key, id) DO NOTHING";

const TRIM: &str = "DELETE FROM quell.chat_entry WHERE tenant = $1 AND key = $2
    AND n <= (SELECT max(n) - $3 FROM quell.chat_entry WHERE tenant = $1 AND key = $2)";

pub(super) struct InTables(Arc<dyn Tables>);

impl InTables {
    pub(super) async fn open(tables: Arc<dyn Tables>) -> StoreResult<Self> {
        tables.migrate(APPLICATION, &MIGRATIONS).await?;
        Ok(InTables(tables))
    }
}

fn at(place: &Place) -> [Cell; 2] {
    [place.tenant.as_str().into(), place.key.as_str().into()]
}

fn upsert(conversation: &Conversation) -> Statement {
    Statement::new(UPSERT, cells(conversation))
}

fn enter(place: &Place, entries: &[Entry]) -> Statement {
    let row = |entry: &Entry| {
        let about = serde_json::to_string(&entry.about).unwrap_or_default();
        let mut cells: Vec<Cell> = at(place).into();
        cells.extend([
            entry.id.as_str().into(),
            entry.at.as_millis().into(),
            entry.role.as_str().into(),
            entry.text.as_str().into(),
            Cell::Text(about),
        ]);
        cells
    };
    Statement::many(ENTER, entries.iter().map(row).collect())
}

fn with(place: &Place, more: impl IntoIterator<Item = Cell>) -> Vec<Cell> {
    at(place).into_iter().chain(more).collect()
}

fn most() -> Cell {
    Cell::Int(i64::try_from(ENTRIES_MAX).unwrap_or(i64::MAX))
}

#[async_trait]
impl Book for InTables {
    async fn conversation(&self, place: &Place) -> StoreResult<Option<Conversation>> {
        let sql = format!("SELECT {COLUMNS} FROM quell.chat_conversation WHERE tenant = $1 AND key = $2");
        let rows = self.0.read(Statement::new(sql, at(place))).await?;
        rows.first().map(read_conversation).transpose()
    }

    async fn entries(&self, place: &Place, last: usize) -> StoreResult<Vec<Entry>> {
        let sql = "SELECT id, at, role, text, about FROM quell.chat_entry WHERE tenant = $1 AND key = $2
            ORDER BY n DESC LIMIT $3";
        let limit = Cell::Int(i64::try_from(last.min(ENTRIES_MAX)).unwrap_or(i64::MAX));
        let mut rows = self.0.read(Statement::new(sql, with(place, [limit]))).await?;
        rows.reverse();
        rows.iter().map(read_entry).collect()
    }

    async fn record(&self, conversation: &Conversation, entries: &[Entry]) -> StoreResult<()> {
        let place = conversation.place();
        let mut statements = vec![upsert(conversation), enter(&place, entries)];
        if let (Some(said), Some(last)) = (last_said(entries), entries.last()) {
            let cells = with(&place, [last.at.as_millis().into(), Cell::Text(said)]);
            statements.push(Statement::new(SAID, cells));
        }
        statements.push(Statement::new(TRIM, with(&place, [most()])));
        self.0.write(statements).await.map(drop)
    }

    async fn hand(&self, conversation: &Conversation, note: &Entry) -> StoreResult<()> {
        let place = conversation.place();
        let hand = [
            conversation.state.as_str().into(),
            conversation.reason.as_deref().into(),
            note.at.as_millis().into(),
        ];
        let statements = vec![
            upsert(conversation),
            Statement::new(HAND, with(&place, hand)),
            enter(&place, std::slice::from_ref(note)),
        ];
        self.0.write(statements).await.map(drop)
    }

    async fn list(&self, wanted: &Wanted) -> StoreResult<Vec<Conversation>> {
        let mut sql = format!("SELECT {COLUMNS} FROM quell.chat_conversation WHERE 1 = 1");
        let mut cells: Vec<Cell> = Vec::new();
        let mut only = |column: &str, value: Option<Cell>| {
            if let Some(value) = value {
                cells.push(value);
                sql.push_str(&format!(" AND {column} = ${}", cells.len()));
            }
        };
        only("tenant", wanted.tenant.as_ref().map(|tenant| tenant.as_str().into()));
        only("state", wanted.state.map(|state| state.as_str().into()));
        only("customer", wanted.customer.as_deref().map(Cell::from));
        cells.push(Cell::Int(i64::try_from(wanted.limit.min(LISTED_MAX)).unwrap_or(i64::MAX)));
        sql.push_str(&format!(" ORDER BY last_at DESC, tenant, key LIMIT ${}", cells.len()));
        let rows = self.0.read(Statement::new(sql, cells)).await?;
        rows.iter().map(read_conversation).collect()
    }

    async fn forget(&self, place: &Place) -> StoreResult<u64> {
        let statements = vec![
            Statement::new("DELETE FROM quell.chat_entry WHERE tenant = $1 AND key = $2", at(place)),
            Statement::new("DELETE FROM quell.chat_conversation WHERE tenant = $1 AND key = $2", at(place)),
        ];
        Ok(self.0.write(statements).await?.first().copied().unwrap_or_default())
    }
}
