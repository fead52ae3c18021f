-- The beginning of every script. KEYS[1] is <base>meta; all other keys of the partition have the same base and with it
-- the same hash tag, so a script touches one slot only.
local base = string.sub(KEYS[1], 1, -5)

-- The answer to whoever would change a store that is sealed: its text becomes one line, as errors are.
local function refusal(by)
  return redis.error_reply('SEALED ' .. (string.gsub(by, '%c', ' ')))
end

-- How many arguments one command gets at the most: Lua cannot unpack more than some 8,000.
local CHUNK = 4000

-- Calls a command on many keys or members, a part at a time, and hands every result to `take`.
local function in_chunks(list, call, take)
  for first = 1, #list, CHUNK do
    local found = call(unpack(list, first, math.min(first + CHUNK - 1, #list)))
    for i = 1, math.min(CHUNK, #list - first + 1) do
      take(found[i], first + i - 1)
    end
  end
end

-- Appends the rows of lanes to `out`. Says which have none.
local function rows(out, ids)
  local keys, missing = {}, {}
  for i, id in ipairs(ids) do keys[i] = base .. 'lane:' .. id end
  in_chunks(keys, function(...) return redis.call('MGET', ...) end, function(row, i)
    if row then out[#out + 1] = row else missing[#missing + 1] = ids[i] end
  end)
  return missing
end

-- Writes down the first score of a set in another one, or that there is none.
local function first_of(set, among, member)
  local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
  if first[2] then
    redis.call('ZADD', among, first[2], member)
  else
    redis.call('ZREM', among, member)
  end
end

-- The set `waits` names every queue that waits for something, with the time of the first: this writes down one of them.
local function refresh(member, set)
  first_of(set, base .. 'waits', member)
end
