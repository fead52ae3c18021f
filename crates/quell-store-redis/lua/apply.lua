-- Ends a transaction: everything it has seen is looked at again, and only when all of it still holds is anything written.
-- What it may do is bounded by the limits of the contract: 10,000 events of one request or 2,000 of a group, 512 lanes of
-- a claim, 1,000 runs or events of a purge.
--
-- ARGV: the epoch under which numbers were given; n, then the keys of n lanes and sources and n versions (8 bytes each)
-- that were seen; n, then n keys that had no lane; n, then n looks (command, key, argument, what was seen); what is to be written;
-- what undoes reservations, done instead when something does not hold; and how many arguments that undoing has.
-- Commands are written as: how many words, then the words.
local meta = KEYS[1]
local i = 1

local function next_argument()
  i = i + 1
  return ARGV[i - 1]
end

local function said(first)
  -- What a holder said: lane, number of the record, its name by token and its name by number. What it said first is found
  -- by its token.
  local set = base .. 'trail:' .. ARGV[first]
  if redis.call('ZADD', set, 'NX', ARGV[first + 1], ARGV[first + 2]) == 0 then
    -- A record that a copy puts in its place once more is there under its token.
    if tonumber(redis.call('ZSCORE', set, ARGV[first + 2])) == tonumber(ARGV[first + 1]) then return end
    redis.call('ZADD', set, ARGV[first + 1], ARGV[first + 3])
  end
end

local function ended(first, last)
  -- (dead or ended, lane:number) of each run that ended, in the order in which they did.
  local number = redis.call('HINCRBY', meta, 'ended', (last - first + 1) / 2) - (last - first + 1) / 2
  local sets = {}
  for k = first, last, 2 do
    number = number + 1
    local members = sets[ARGV[k]] or {}
    sets[ARGV[k]] = members
    members[#members + 1] = string.format('%.0f', number)
    members[#members + 1] = ARGV[k + 1]
  end
  for name, members in pairs(sets) do
    redis.call('ZADD', base .. name, unpack(members))
  end
end

local function undead(first)
  -- A run leaves the dead letter: purged (ARGV[first + 1] = '1', kept for the retention from now on), or because its
  -- events went elsewhere.
  local number = redis.call('ZSCORE', base .. 'dead', ARGV[first])
  if not number then return end
  redis.call('ZREM', base .. 'dead', ARGV[first])
  if ARGV[first + 1] == '1' then number = redis.call('HINCRBY', meta, 'ended', 1) end
  redis.call('ZADD', base .. 'ended', number, ARGV[first])
end

local function remove(first, last)
  -- A lane: the text of its key, the queue, its number, then its runs that have not ended. Events aside and the trail
  -- stay.
  local key, lane = ARGV[first], ARGV[first + 2]
  for k = first + 3, last do
    redis.call('DEL', base .. 'step:' .. lane .. ':' .. ARGV[k])
  end
  local ended = redis.call('HKEYS', base .. 'run:' .. lane)
  for number in pairs(pocket_of(lane).runs) do ended[#ended + 1] = number end
  for _, number in ipairs(ended) do
    redis.call('DEL', base .. 'step:' .. lane .. ':' .. number)
    redis.call('ZREM', base .. 'ended', lane .. ':' .. number)
    redis.call('ZREM', base .. 'dead', lane .. ':' .. number)
  end
  -- What the next lane of this key gets must be larger than what this one had.
  local top = struct.unpack('>I8', redis.call('GETRANGE', base .. 'lane:' .. lane, 16, 23))
  if top > tonumber(redis.call('HGET', meta, 'floor') or '0') then
    redis.call('HSET', meta, 'floor', string.format('%.0f', top))
  end
  redis.call('HDEL', base .. 'key', key)
  redis.call('ZREM', base .. 'names', key)
  redis.call('DEL', base .. 'lane:' .. lane, base .. 'ev:' .. lane, base .. 'id:' .. lane, base .. 'run:' .. lane,
    base .. 'span:' .. lane)
end

local function erase(first, last)
  -- All of one key, in the same words; the number is empty when there is no lane. The trail stays.
  local key, queue, lane = ARGV[first], ARGV[first + 1], ARGV[first + 2]
  for _, name in ipairs(redis.call('ZRANGE', base .. 'of:' .. key, 0, -1)) do
    redis.call('HDEL', base .. 'aside', name)
    redis.call('ZREM', base .. 'look:' .. queue, name)
  end
  redis.call('DEL', base .. 'of:' .. key, base .. 'asid:' .. key)
  if lane ~= '' then remove(first, last) end
end

local function continue(first)
  -- Numbers go on after ARGV[first], and after all that were given here. With the new epoch everybody throws away the
  -- numbers that he has set apart.
  local last = math.max(tonumber(redis.call('HGET', meta, 'number')), tonumber(ARGV[first])) + 1
  last = string.format('%.0f', last)
  redis.call('HSET', meta, 'number', last, 'epoch', last)
end

local function later(first)
  -- A source that has only seen time pass: its key, the version that was seen, the row with the same version.
  if redis.call('GETRANGE', ARGV[first], 0, 7) == ARGV[first + 1] then redis.call('SET', ARGV[first], ARGV[first + 2]) end
end

local function answer(first)
  -- A kept answer, or that it is being fetched: source, key, when it is over, when its value expires ('' without one), the
  -- row. A version is never given twice, so whoever has read another row under this key finds out.
  local source, key = ARGV[first], ARGV[first + 1]
  local version = struct.pack('>I8', redis.call('HINCRBY', meta, 'answers', 1))
  redis.call('HSET', base .. 'answer:' .. source, key, version .. ARGV[first + 4])
  redis.call('ZADD', base .. 'over:' .. source, ARGV[first + 2], key)
  if ARGV[first + 3] ~= '' then
    redis.call('ZADD', base .. 'kept:' .. source, ARGV[first + 3], key)
  else
    redis.call('ZREM', base .. 'kept:' .. source, key)
  end
  first_of(base .. 'over:' .. source, base .. 'over', source)
end

local function unanswered(first)
  -- An answer goes: source, key.
  local source, key = ARGV[first], ARGV[first + 1]
  redis.call('HDEL', base .. 'answer:' .. source, key)
  redis.call('ZREM', base .. 'over:' .. source, key)
  redis.call('ZREM', base .. 'kept:' .. source, key)
  first_of(base .. 'over:' .. source, base .. 'over', source)
end

local function emptied(first)
  -- All answers of a source go.
  local source = ARGV[first]
  redis.call('DEL', base .. 'answer:' .. source, base .. 'over:' .. source, base .. 'kept:' .. source)
  redis.call('ZREM', base .. 'over', source)
end

local function document(first)
  -- A document: shelf, name, when it is over ('' for never), the row. A version is never given twice, as with answers.
  local shelf, name = ARGV[first], ARGV[first + 1]
  local version = struct.pack('>I8', redis.call('HINCRBY', meta, 'documents', 1))
  redis.call('HSET', base .. 'document:' .. shelf, name, version .. ARGV[first + 3])
  if ARGV[first + 2] ~= '' then
    redis.call('ZADD', base .. 'lapse:' .. shelf, ARGV[first + 2], name)
  else
    redis.call('ZREM', base .. 'lapse:' .. shelf, name)
  end
end

local function back(first, last)
  -- Entries that were reserved go back to where they were, unless somebody has removed them: the set, then (time, name) of each.
  redis.call('ZADD', ARGV[first], 'XX', unpack(ARGV, first + 1, last))
end

local own = {
  ['@back'] = back,
  ['@waits'] = function(first) refresh(ARGV[first], ARGV[first + 1]) end,
  ['@said'] = said,
  ['@ended'] = ended,
  ['@undead'] = undead,
  ['@remove'] = remove,
  ['@erase'] = erase,
  ['@continue'] = continue,
  ['@later'] = later,
  ['@answer'] = answer,
  ['@unanswered'] = unanswered,
  ['@emptied'] = emptied,
  ['@document'] = document,
}

local function perform(first, last)
  while first <= last do
    local words = tonumber(ARGV[first])
    local special = own[ARGV[first + 1]]
    if special then
      special(first + 2, first + words)
    else
      redis.call(unpack(ARGV, first + 1, first + words))
    end
    first = first + words + 1
  end
end

-- What does not hold any more, or nothing.
local function broken()
  local epoch = redis.call('HGET', meta, 'epoch')
  if epoch ~= next_argument() then return 'epoch' end
  local lanes = tonumber(next_argument())
  for first = i, i + lanes - 1, CHUNK do
    local last = math.min(first + CHUNK, i + lanes) - 1
    local found = redis.call('MGET', unpack(ARGV, first, last))
    for k = first, last do
      local row = found[k - first + 1]
      if not row or string.sub(row, 1, 8) ~= ARGV[k + lanes] then return 'lane ' .. ARGV[k] end
    end
  end
  i = i + 2 * lanes
  local absent = tonumber(next_argument())
  for first = i, i + absent - 1, CHUNK do
    local last = math.min(first + CHUNK, i + absent) - 1
    local found = redis.call('HMGET', base .. 'key', unpack(ARGV, first, last))
    for k = 1, last - first + 1 do
      if found[k] then return 'key' end
    end
  end
  i = i + absent
  for _ = 1, tonumber(next_argument()) do
    local command, key, argument, seen = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local is
    if command == 'FIRST' then
      is = redis.call('ZRANGE', key, 0, 0)[1]
    elseif command == 'AT MOST' then
      -- A bound is kept when others have left meanwhile; only those who came break it.
      is = redis.call('ZCARD', key) <= tonumber(seen) and seen or 'more'
    elseif command == 'VERSION' then
      -- The first eight bytes of a value in a hash.
      local row = redis.call('HGET', key, argument)
      is = row and string.format('%.0f', struct.unpack('>I8', row))
    elseif argument == '' then
      is = redis.call(command, key)
    else
      is = redis.call(command, key, argument)
    end
    if tostring(is or '') ~= seen then return command end
    i = i + 4
  end
  return nil
end

local reason = broken()
if reason then
  local last = #ARGV - 1
  local count = tonumber(ARGV[#ARGV])
  perform(last - count + 1, last)
  return reason
end
local last = #ARGV - 1 - tonumber(ARGV[#ARGV])
-- The first write is one that a server without memory refuses, so that it refuses all or nothing: most of what follows
-- would be refused, too, but not the removals among it.
redis.call('HINCRBY', meta, 'applied', 1)
perform(i, last)
return 'done'
