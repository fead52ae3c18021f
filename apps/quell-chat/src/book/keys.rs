//! Conversations in keys, on Redis.
//!
//! A conversation is a hash, its entries are a list, and the ids of these entries a sorted set by number, so that nothing is
//! written twice. Two sorted sets by time find them: one of all, one of those in which a person answers. Their members are the
//! names of conversations, which are digests: a customer's name may hold anything.

use std::sync::Arc;

use async_trait::async_trait;
use quell::quell_core::error::StoreResult;
use quell::quell_core::keys::Keys;
use quell::quell_core::tables::{Cell, Row};
use sha2::{Digest, Sha256};

use super::{
    APPLICATION, Book, Conversation, ENTRIES_MAX, Entry, LISTED_MAX, Place, Voice, Wanted, cells, last_said,
    read_conversation, read_entry,
};

pub(super) const ALL: &str = "all";
pub(super) const HUMAN: &str = "human";

/// `KEYS`: conversation, entries, ids, all, human. `ARGV`: the name, 13 columns, whether it hands over (0 or 1), the time and
/// preview of what was said last (or nothing), how many entries are kept, then five columns of each entry.
const RECORD: &str = "
local c, entries, ids, all, human = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local columns = {'tenant', 'key', 'channel', 'customer', 'flow', 'name', 'address', 'state', 'reason', 'changed_at',
                 'first_at', 'last_at', 'preview'}
local name, known = ARGV[1], redis.call('EXISTS', c) == 1
local fresh = {customer = true, name = true, address = true}
local hands = ARGV[15] == '1'
if hands then
    fresh.state, fresh.reason, fresh.changed_at = true, true, true
end
for i, column in ipairs(columns) do
    local value = ARGV[i + 1]
    if not known or fresh[column] then
        if value then
            redis.call('HSET', c, column, value)
        elseif column == 'reason' then
            redis.call('HDEL', c, column)
        end
    end
end
local kept = tonumber(ARGV[18])
for i = 19, #ARGV, 5 do
    local id = ARGV[i]
    if not redis.call('ZSCORE', ids, id) then
        local n = redis.call('HINCRBY', c, 'n', 1)
        redis.call('ZADD', ids, n, id)
        redis.call('RPUSH', entries, cjson.encode({id, ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]}))
    end
end
redis.call('LTRIM', entries, -kept, -1)
redis.call('ZREMRANGEBYRANK', ids, 0, -kept - 1)
if ARGV[16] and tonumber(ARGV[16]) >= tonumber(redis.call('HGET', c, 'last_at')) then
    redis.call('HSET', c, 'last_at', ARGV[16], 'preview', ARGV[17])
end
local last = redis.call('HGET', c, 'last_at')
redis.call('ZADD', all, last, name)
if redis.call('HGET', c, 'state') == 'human' then
    redis.call('ZADD', human, last, name)
else
    redis.call('ZREM', human, name)
end
";

const CONVERSATION: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 then
    return {}
end
return redis.call('HMGET', KEYS[1], 'tenant', 'key', 'channel', 'customer', 'flow', 'name', 'address', 'state', 'reason',
                  'changed_at', 'first_at', 'last_at', 'preview')
";

/// `ARGV`: how many.
const ENTRIES: &str = "
local found = {}
for _, text in ipairs(redis.call('LRANGE', KEYS[1], -tonumber(ARGV[1]), -1)) do
    for _, cell in ipairs(cjson.decode(text)) do
        found[#found + 1] = cell
    end
end
return found
";

/// `KEYS`: the sorted set. `ARGV`: tenant or nothing, state or nothing, customer or nothing, how many, how many are looked at.
const LIST: &str = "
local found, count = {}, 0
for _, name in ipairs(redis.call('ZREVRANGE', KEYS[1], 0, tonumber(ARGV[5]) - 1)) do
    local c = key('c:' .. name)
    local row = redis.call('HMGET', c, 'tenant', 'key', 'channel', 'customer', 'flow', 'name', 'address', 'state', 'reason',
                           'changed_at', 'first_at', 'last_at', 'preview')
    local fits = row[1] and (not ARGV[1] or row[1] == ARGV[1]) and (not ARGV[2] or row[8] == ARGV[2])
        and (not ARGV[3] or row[4] == ARGV[3])
    if fits then
        for i = 1, 13 do
            found[#found + 1] = row[i]
        end
        count = count + 1
        if count >= tonumber(ARGV[4]) then
            break
        end
    end
end
return found
";

const FORGET: &str = "
local entries = redis.call('LLEN', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
return {entries}
";

/// Conversations that one listing looks at, where it wants only some of them.
const LOOKED_AT_MAX: i64 = 100_000;

pub(super) struct InKeys(Arc<dyn Keys>);

/// The names of a conversation's keys.
pub(super) struct Names {
    pub(super) name: String,
    all: [String; 5],
}

impl Names {
    pub(super) fn of(place: &Place) -> Names {
        let mut digest = Sha256::new();
        digest.update(place.tenant.as_str());
        digest.update([0]);
        digest.update(&place.key);
        let name: String = digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let all = [format!("c:{name}"), format!("e:{name}"), format!("i:{name}"), ALL.into(), HUMAN.into()];
        Names { name, all }
    }

    fn keys(&self) -> [&str; 5] {
        self.all.each_ref().map(String::as_str)
    }
}

impl InKeys {
    pub(super) fn new(keys: Arc<dyn Keys>) -> Self {
        InKeys(keys)
    }

    async fn write(&self, c: &Conversation, hands: bool, entries: &[Entry]) -> StoreResult<()> {
        let names = Names::of(&c.place());
        let said = last_said(entries).zip(entries.last());
        let (said_at, preview) = said.map(|(text, last)| (last.at.as_millis(), text)).unzip();
        let mut values = vec![Cell::from(names.name.as_str())];
        values.extend(cells(c));
        let kept = Cell::Int(i64::try_from(ENTRIES_MAX).unwrap_or(i64::MAX));
        values.extend([hands.into(), said_at.into(), preview.into(), kept]);
        for entry in entries {
            values.extend([
                entry.id.as_str().into(),
                Cell::Text(entry.at.as_millis().to_string()),
                entry.role.as_str().into(),
                entry.text.as_str().into(),
                Cell::Text(serde_json::to_string(&entry.about).unwrap_or_default()),
            ]);
        }
        self.0.run(APPLICATION, RECORD, &names.keys(), values).await.map(drop)
    }
}

#[async_trait]
impl Book for InKeys {
    async fn conversation(&self, place: &Place) -> StoreResult<Option<Conversation>> {
        let names = Names::of(place);
        let found = self.0.read(APPLICATION, CONVERSATION, &names.keys()[..1], Vec::new()).await?;
        if found.is_empty() { Ok(None) } else { read_conversation(&Row(found)).map(Some) }
    }

    async fn entries(&self, place: &Place, last: usize) -> StoreResult<Vec<Entry>> {
        if last == 0 {
            return Ok(Vec::new());
        }
        let names = Names::of(place);
        let limit = Cell::Int(i64::try_from(last.min(ENTRIES_MAX)).unwrap_or(i64::MAX));
        let found = self.0.read(APPLICATION, ENTRIES, &names.keys()[1..2], vec![limit]).await?;
        found.chunks(5).map(|cells| read_entry(&Row(cells.to_vec()))).collect()
    }

    async fn record(&self, conversation: &Conversation, entries: &[Entry]) -> StoreResult<()> {
        self.write(conversation, false, entries).await
    }

    async fn hand(&self, conversation: &Conversation, note: &Entry) -> StoreResult<()> {
        let handed = Conversation { changed_at: note.at, ..conversation.clone() };
        self.write(&handed, true, std::slice::from_ref(note)).await
    }

    async fn list(&self, wanted: &Wanted) -> StoreResult<Vec<Conversation>> {
        let set = if wanted.state == Some(Voice::Human) { HUMAN } else { ALL };
        let values = vec![
            wanted.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()).into(),
            wanted.state.map(|state| state.as_str().to_owned()).into(),
            wanted.customer.clone().into(),
            Cell::Int(i64::try_from(wanted.limit.min(LISTED_MAX)).unwrap_or(i64::MAX)),
            Cell::Int(LOOKED_AT_MAX),
        ];
        let found = self.0.read(APPLICATION, LIST, &[set], values).await?;
        found.chunks(13).map(|cells| read_conversation(&Row(cells.to_vec()))).collect()
    }

    async fn forget(&self, place: &Place) -> StoreResult<u64> {
        let names = Names::of(place);
        let answer = self.0.run(APPLICATION, FORGET, &names.keys(), vec![names.name.as_str().into()]).await?;
        let removed = Row(answer).int(0)?;
        Ok(u64::try_from(removed).unwrap_or_default())
    }
}
