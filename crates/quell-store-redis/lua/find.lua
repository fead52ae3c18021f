-- Reads what belongs to lanes, if they are still as the caller has seen them: otherwise events that came since would not
-- fit the lane that he has. ARGV: n, then the keys of n lanes and n versions; then a list of wishes, each a letter with its
-- arguments. The answer has one entry for each, or only the key of a lane that has changed, as a status. Every wish is bounded by its own
-- count or by the limits of one run, one lane or the configuration; all sources of one name by the number of tenants.
--
-- An event is kept as one member: number (8 bytes), mark (8, zero when none), size of the payload (4), fingerprint (16),
-- and so on; see `rows.rs`. The youngest events, runs and records of a lane are in its pocket; whatever is looked for in a set
-- is looked for there, too.
local out, i = {now()}, 2
local EVENTS = 256

local lanes = tonumber(ARGV[1])
for first = i, i + lanes - 1, CHUNK do
  local last = math.min(first + CHUNK, i + lanes) - 1
  local found = redis.call('MGET', unpack(ARGV, first, last))
  for k = first, last do
    local row = found[k - first + 1]
    if not row or string.sub(row, 1, 8) ~= ARGV[k + lanes] then
      out[2] = {ok = ARGV[k]}
      return out
    end
  end
end
i = i + 2 * lanes

local pockets = {}
local function in_pocket(lane)
  if not pockets[lane] then pockets[lane] = pocket_of(lane) end
  return pockets[lane]
end

local function at(set, seq)
  return redis.call('ZRANGEBYSCORE', set, seq, seq)[1]
end

-- Events of the set from a number on that carry this mark, until there are enough of them.
local function span_of_set(lane, from, upto, mark, most, bytes)
  local set, found, size, low = base .. 'ev:' .. lane, {}, 0, from
  while #found < most do
    local part = redis.call('ZRANGEBYSCORE', set, low, upto, 'LIMIT', 0, math.min(EVENTS, most))
    for _, event in ipairs(part) do
      if string.sub(event, 9, 16) == mark then
        found[#found + 1] = event
        size = size + struct.unpack('>I4', event, 17)
        if #found >= most or (bytes and size >= bytes) then return found end
      end
    end
    if #part < math.min(EVENTS, most) then break end
    low = '(' .. string.format('%.0f', struct.unpack('>I8', part[#part], 1))
  end
  return found
end

-- The same with those of the pocket.
local function span(lane, from, upto, mark, most, bytes)
  local all, size = span_of_set(lane, from, upto, mark, most, bytes), 0
  local count = #all
  for _, event in ipairs(in_pocket(lane).events) do
    local seq = struct.unpack('>I8', event)
    if seq >= tonumber(from) and seq <= tonumber(upto) and string.sub(event, 9, 16) == mark then all[#all + 1] = event end
  end
  if #all == count then return all end
  local found = {}
  for _, event in ipairs(in_order(all)) do
    if #found >= most or (bytes and size >= bytes) then break end
    found[#found + 1] = event
    size = size + struct.unpack('>I4', event, 17)
  end
  return found
end

-- The run that has ended and has this event: the marked one, or the unmarked one whose range it is in.
local function run_of(lane, seq, mark)
  local runs = base .. 'run:' .. lane
  local here = in_pocket(lane).runs
  if mark ~= '' then
    local run = here[mark] or redis.call('HGET', runs, mark)
    return run and {mark, run} or {}
  end
  for number, run in pairs(here) do
    local count, lo, hi = struct.unpack('>I8I8I8', run, 2)
    local marked = math.floor(string.byte(run) / 2) % 2 == 1
    if count > 0 and not marked and lo <= tonumber(seq) and tonumber(seq) <= hi then return {number, run} end
  end
  local number = redis.call('ZREVRANGEBYSCORE', base .. 'span:' .. lane, seq, '-inf', 'LIMIT', 0, 1)[1]
  local run = number and redis.call('HGET', runs, number)
  if run and struct.unpack('>I8', run, 18) >= tonumber(seq) then return {number, run} end
  return {}
end

-- What was said when this token ended an attempt of this run. Records of one transaction are kept together: number, lane,
-- time (8 bytes each), size (4), record; the first number is the score of all.
local function said(lane, run, token)
  local record = redis.call('ZSCORE', base .. 'trail:' .. lane, 'v' .. token .. ':' .. run)
  if not record then
    -- What it said first counts, and records lie in the order of their numbers.
    for _, named in ipairs(in_pocket(lane).records) do
      local spoke, id, of, by = struct.unpack('>BI8I8I8', named)
      if not record and spoke == 1 and of == tonumber(run) and by == tonumber(token) then
        record = string.format('%.0f', id)
      end
    end
  end
  if not record then return false end
  local entry = redis.call('ZREVRANGEBYSCORE', base .. 'audit', record, '-inf', 'LIMIT', 0, 1)[1] or ''
  local place = 1
  while place < #entry do
    local id, _, _, size = struct.unpack('>I8I8I8I4', entry, place)
    if id == tonumber(record) then return string.sub(entry, place + 28, place + 27 + size) end
    place = place + 28 + size
  end
  return false
end

local aside = {}
local function has_aside(queue)
  if aside[queue] == nil then aside[queue] = redis.call('EXISTS', base .. 'look:' .. queue) == 1 end
  return aside[queue]
end

-- The row of the source that is known under this name and tenant, or ''.
local function source_named(text)
  local id = redis.call('HGET', base .. 'source', text)
  return id and redis.call('GET', base .. 'source:' .. id) or ''
end

local wishes = {
  -- Events of a span: lane, from, upto, mark, most, bytes ('' for any).
  S = function()
    local bytes = ARGV[i + 6] ~= '' and tonumber(ARGV[i + 6])
    return span(ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], tonumber(ARGV[i + 5]), bytes), 7
  end,
  -- An event by its id: lane, id.
  I = function()
    local latest = false
    for _, event in ipairs(in_pocket(ARGV[i + 1]).events) do
      if string.sub(event, 56, 55 + struct.unpack('>I2', event, 54)) == ARGV[i + 2] then latest = event end
    end
    if latest then return latest, 3 end
    local seq = redis.call('HGET', base .. 'id:' .. ARGV[i + 1], ARGV[i + 2])
    return seq and at(base .. 'ev:' .. ARGV[i + 1], seq), 3
  end,
  -- The first unmarked event from a number on with this fingerprint: lane, from, fingerprint, no mark.
  C = function()
    local set, low = base .. 'ev:' .. ARGV[i + 1], ARGV[i + 2]
    local function same(event)
      return string.sub(event, 9, 16) == ARGV[i + 4] and string.sub(event, 21, 36) == ARGV[i + 3]
    end
    local first = false
    for _, event in ipairs(in_order(in_pocket(ARGV[i + 1]).events)) do
      if not first and struct.unpack('>I8', event) >= tonumber(ARGV[i + 2]) and same(event) then first = event end
    end
    while true do
      local part = redis.call('ZRANGEBYSCORE', set, low, '+inf', 'LIMIT', 0, EVENTS)
      for _, event in ipairs(part) do
        if same(event) then
          if first and struct.unpack('>I8', first) < struct.unpack('>I8', event) then return first, 5 end
          return event, 5
        end
      end
      if #part < EVENTS then return first, 5 end
      low = '(' .. string.format('%.0f', struct.unpack('>I8', part[#part], 1))
    end
  end,
  -- A run that has ended: lane, number.
  R = function()
    return in_pocket(ARGV[i + 1]).runs[ARGV[i + 2]] or redis.call('HGET', base .. 'run:' .. ARGV[i + 1], ARGV[i + 2]), 3
  end,
  -- The ended run of an event: lane, number of the event, mark ('' for none).
  O = function()
    return run_of(ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]), 4
  end,
  -- What a token said: lane, run, token.
  D = function()
    return said(ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]), 4
  end,
  -- An event aside by its id: queue, key of the lane, id. 0 when the whole queue has none, as most do: then one look at
  -- the queue is enough at the end.
  A = function()
    if not has_aside(ARGV[i + 1]) then return 0, 4 end
    local name = redis.call('HGET', base .. 'asid:' .. ARGV[i + 2], ARGV[i + 3])
    return {name or '', name and redis.call('HGET', base .. 'aside', name) or ''}, 4
  end,
  -- The first event aside of a lane: queue, key of the lane. 0 as above.
  F = function()
    if not has_aside(ARGV[i + 1]) then return 0, 3 end
    local name = redis.call('ZRANGE', base .. 'of:' .. ARGV[i + 2], 0, 0)[1]
    return {name or '', name and redis.call('HGET', base .. 'aside', name) or ''}, 3
  end,
  -- All steps of a run: lane, run.
  T = function()
    return redis.call('HGETALL', base .. 'step:' .. ARGV[i + 1] .. ':' .. ARGV[i + 2]), 3
  end,
  -- One step, and how many its revision has: lane, run, revision, name, how many are too many. Below that bound all
  -- steps of the run are as good a count as those of the revision.
  U = function()
    local set = base .. 'step:' .. ARGV[i + 1] .. ':' .. ARGV[i + 2]
    local step = redis.call('HGET', set, ARGV[i + 3] .. '\0' .. ARGV[i + 4])
    local all = redis.call('HLEN', set)
    local count = all
    if count >= tonumber(ARGV[i + 5]) then
      local start = ARGV[i + 3] .. '\0'
      count = 0
      for _, name in ipairs(redis.call('HKEYS', set)) do
        if string.sub(name, 1, #start) == start then count = count + 1 end
      end
    end
    return {step or '', count, all}, 6
  end,
  -- What there is in a lane altogether: key of the lane, its number ('' when there is no lane).
  M = function()
    local aside = redis.call('ZCARD', base .. 'of:' .. ARGV[i + 1])
    local events, dead = 0, 0
    if ARGV[i + 2] ~= '' then
      local here = in_pocket(ARGV[i + 2])
      events = redis.call('ZCARD', base .. 'ev:' .. ARGV[i + 2]) + #here.events
      local runs = redis.call('HVALS', base .. 'run:' .. ARGV[i + 2])
      for _, run in pairs(here.runs) do runs[#runs + 1] = run end
      for _, run in ipairs(runs) do
        if string.byte(run, 1) % 2 == 1 then dead = dead + struct.unpack('>I8', run, 2) end
      end
    end
    return {events, dead, aside}, 3
  end,
  -- All schedules, with their version.
  H = function()
    return {redis.call('HGET', base .. 'meta', 'schedules') or '', redis.call('HVALS', base .. 'schedule')}, 1
  end,
  -- All pauses, with their version.
  P = function()
    return {redis.call('HGET', base .. 'meta', 'pauses') or '', redis.call('HGETALL', base .. 'pause')}, 1
  end,
  -- A source: its number.
  G = function()
    return redis.call('GET', base .. 'source:' .. ARGV[i + 1]), 2
  end,
  -- What governs new events: the name of a source, and the tenant. How often anything came or went under this name, the
  -- declaration, the sources of this tenant and of none, each '' when there is none.
  V = function()
    local name = ARGV[i + 1]
    return {
      redis.call('HGET', base .. 'named', name) or '', redis.call('HGET', base .. 'declared', name) or '',
      source_named(name .. '\0' .. ARGV[i + 2]), source_named(name .. '\0'),
    }, 3
  end,
  -- All under the name of a source: as above, then how many declarations there are and the sources, one for each tenant.
  N = function()
    local name, found = ARGV[i + 1], {}
    local texts = redis.call('ZRANGEBYLEX', base .. 'sources', '[' .. name .. '\0', '(' .. name .. '\1')
    for _, text in ipairs(texts) do found[#found + 1] = source_named(text) end
    return {
      redis.call('HGET', base .. 'named', name) or '', redis.call('HGET', base .. 'declared', name) or '',
      redis.call('HLEN', base .. 'declared'), found,
    }, 2
  end,
  -- A kept answer: its source and its key. The answer with its version in front or '', how many the source has, and which
  -- of the others is over first, or ''.
  K = function()
    local first = redis.call('ZRANGE', base .. 'over:' .. ARGV[i + 1], 0, 1)
    return {
      redis.call('HGET', base .. 'answer:' .. ARGV[i + 1], ARGV[i + 2]) or '',
      redis.call('ZCARD', base .. 'over:' .. ARGV[i + 1]),
      (first[1] == ARGV[i + 2] and first[2] or first[1]) or '',
    }, 3
  end,
}

while i <= #ARGV do
  local found, taken = wishes[ARGV[i]]()
  -- A nil would end the answer.
  out[#out + 1] = found or false
  i = i + taken
end
return out
