//! The book goes along when a store is copied: from tables into tables, and from and into keys as the same rows.

use std::sync::Arc;

use async_trait::async_trait;
use quell::copy::{Application, Rows, Table};
use quell::quell_core::error::StoreResult;
use quell::quell_core::event::Tenant;
use quell::quell_core::keys::Keys;
use quell::quell_core::tables::{Cell, Dialect, Row};

use super::keys::{ALL, HUMAN, Names};
use super::{APPLICATION, Place, strange, tables};

/// What the application keeps.
pub struct Belongs;

static TABLES: [Table; 2] = [
    Table {
        name: "chat_conversation",
        columns: &[
            "tenant",
            "key",
            "channel",
            "customer",
            "flow",
            "name",
            "address",
            "state",
            "reason",
            "changed_at",
            "first_at",
            "last_at",
            "preview",
        ],
        key: 2,
        numbered: false,
    },
    Table {
        name: "chat_entry",
        columns: &["tenant", "key", "n", "id", "at", "role", "text", "about"],
        key: 3,
        numbered: false,
    },
];

impl Application for Belongs {
    fn name(&self) -> &'static str {
        APPLICATION
    }

    fn tables(&self) -> &'static [Table] {
        &TABLES
    }

    fn migrations(&self, _: Dialect) -> &'static [&'static str] {
        &tables::MIGRATIONS
    }

    fn in_keys(&self, keys: Arc<dyn Keys>) -> Option<Arc<dyn Rows>> {
        Some(Arc::new(InKeys(keys)))
    }
}

/// `KEYS`: all. `ARGV`: the name of the last conversation or nothing, how many.
const CONVERSATIONS: &str = "
local first = 0
if ARGV[1] then
    first = (redis.call('ZRANK', KEYS[1], ARGV[1]) or -1) + 1
end
local found = {}
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[2]) - 1)) do
    local row = redis.call('HMGET', key('c:' .. name), 'tenant', 'key', 'channel', 'customer', 'flow', 'name', 'address',
                           'state', 'reason', 'changed_at', 'first_at', 'last_at', 'preview')
    for i = 1, 13 do
        found[#found + 1] = row[i]
    end
end
return found
";

/// `KEYS`: all. `ARGV`: the name of the last conversation and the number of its last entry or nothing, how many. The list of
/// entries and the sorted set of their ids are of one length and in one order.
const ENTRIES: &str = "
local most, found, rank, after = tonumber(ARGV[3]), {}, 0, nil
if ARGV[1] then
    rank, after = redis.call('ZRANK', KEYS[1], ARGV[1]) or 0, ARGV[2]
end
while #found < most * 8 do
    local name = redis.call('ZRANGE', KEYS[1], rank, rank)[1]
    if not name then
        break
    end
    local of = redis.call('HMGET', key('c:' .. name), 'tenant', 'key')
    local skipped = after and redis.call('ZCOUNT', key('i:' .. name), '-inf', after) or 0
    local last = skipped + most - #found / 8 - 1
    local numbers = redis.call('ZRANGE', key('i:' .. name), skipped, last, 'WITHSCORES')
    for i, text in ipairs(redis.call('LRANGE', key('e:' .. name), skipped, last)) do
        found[#found + 1], found[#found + 2], found[#found + 3] = of[1], of[2], numbers[2 * i]
        for _, cell in ipairs(cjson.decode(text)) do
            found[#found + 1] = cell
        end
    end
    rank, after = rank + 1, nil
end
return found
";

/// `KEYS`: all, human. `ARGV`: the name and 13 columns of each.
const PUT_CONVERSATIONS: &str = "
local columns = {'tenant', 'key', 'channel', 'customer', 'flow', 'name', 'address', 'state', 'reason', 'changed_at',
                 'first_at', 'last_at', 'preview'}
for first = 1, #ARGV, 14 do
    local name, row = ARGV[first], {}
    local c = key('c:' .. name)
    if redis.call('EXISTS', c) == 0 then
        for i, column in ipairs(columns) do
            row[column] = ARGV[first + i]
            if row[column] then
                redis.call('HSET', c, column, row[column])
            end
        end
        redis.call('ZADD', KEYS[1], row.last_at, name)
        if row.state == 'human' then
            redis.call('ZADD', KEYS[2], row.last_at, name)
        end
    end
end
";

/// `ARGV`: of each entry the name of its conversation, its number and five columns.
const PUT_ENTRIES: &str = "
for i = 1, #ARGV, 7 do
    local name, n, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    if not redis.call('ZSCORE', key('i:' .. name), id) then
        redis.call('ZADD', key('i:' .. name), n, id)
        redis.call('RPUSH', key('e:' .. name), cjson.encode({id, ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6]}))
        redis.call('HSET', key('c:' .. name), 'n', n)
    end
end
";

struct InKeys(Arc<dyn Keys>);

/// The name of a conversation by its row or that of an entry.
fn name_of(cells: &[Cell]) -> StoreResult<String> {
    let [Cell::Text(tenant), Cell::Text(key), ..] = cells else { return Err(strange("a key")) };
    let tenant = Tenant::new(tenant.as_str()).map_err(|_| strange("a tenant's name"))?;
    Ok(Names::of(&Place { tenant, key: key.clone() }).name)
}

/// Keys give everything back as text, tables give numbers as numbers.
fn row(table: &Table, cells: &[Cell]) -> StoreResult<Row> {
    let numbers = ["n", "at", "changed_at", "first_at", "last_at"];
    let cell = |(column, cell): (&&str, &Cell)| match cell {
        Cell::Text(text) if numbers.contains(column) => {
            text.parse().map(Cell::Int).map_err(|_| strange("a number"))
        }
        cell => Ok(cell.clone()),
    };
    table.columns.iter().zip(cells).map(cell).collect::<StoreResult<_>>().map(Row)
}

#[async_trait]
impl Rows for InKeys {
    async fn page(
        &self,
        table: &'static Table,
        after: Option<&[Cell]>,
        most: usize,
    ) -> StoreResult<Vec<Row>> {
        let mut values = vec![after.map(name_of).transpose()?.into()];
        let script = if table.key == 2 {
            CONVERSATIONS
        } else {
            values.push(after.and_then(|after| after.get(2)).cloned().unwrap_or(Cell::Null));
            ENTRIES
        };
        values.push(Cell::Int(i64::try_from(most).unwrap_or(i64::MAX)));
        let found = self.0.read(APPLICATION, script, &[ALL], values).await?;
        found.chunks(table.columns.len()).map(|cells| row(table, cells)).collect()
    }

    async fn put(&self, table: &'static Table, rows: Vec<Row>) -> StoreResult<()> {
        let mut values = Vec::new();
        for Row(cells) in rows {
            values.push(Cell::Text(name_of(&cells)?));
            // The name says whose entry it is.
            values.extend(cells.into_iter().skip(if table.key == 2 { 0 } else { 2 }));
        }
        let script = if table.key == 2 { PUT_CONVERSATIONS } else { PUT_ENTRIES };
        self.0.run(APPLICATION, script, &[ALL, HUMAN], values).await.map(drop)
    }
}
