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

-- What a lane has in the pocket behind it in its row (`pocket.rs`): events as they are in their set, runs that ended by their
-- numbers, records; and where the pocket begins.
local function pocket(row)
  local found = {events = {}, runs = {}, records = {}, place = #row + 1}
  if #row < 25 or math.floor(string.byte(row, 25) / 2) % 2 == 0 then return found end
  local place = 45 + struct.unpack('>I2', row, 43)
  place = place + 4 + struct.unpack('>I4', row, place)
  found.place = place
  while place <= #row do
    local kind, size = string.sub(row, place, place), struct.unpack('>I4', row, place + 1)
    local item = string.sub(row, place + 5, place + 4 + size)
    if kind == 'e' then
      found.events[#found.events + 1] = item
    elseif kind == 'r' then
      found.runs[string.format('%.0f', struct.unpack('>I8', item))] = string.sub(item, 9)
    else
      found.records[#found.records + 1] = item
    end
    place = place + 5 + size
  end
  return found
end

local function pocket_of(lane)
  return pocket(redis.call('GET', base .. 'lane:' .. lane) or '')
end

-- Puts events into their order.
local function in_order(events)
  table.sort(events, function(a, b) return struct.unpack('>I8', a) < struct.unpack('>I8', b) end)
  return events
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
