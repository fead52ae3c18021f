-- One step of the retention: runs that ended before a moment, the oldest first, with their events, ids and steps; then
-- records of the trail; then lanes to which nothing refers. Dead letters are in a set of their own and stay.
--
-- ARGV: the moment, how many runs, how many events and how many records at the most. A run is removed whole, so the bound
-- of events may be passed by one run.
local before = tonumber(ARGV[1])
local runs, events, records, more = 0, 0, 0, 0
local touched = {}

local function text(number) return string.format('%.0f', number) end

-- Whoever has read this lane begins anew.
local function changed(lane)
  local key = base .. 'lane:' .. lane
  local version = redis.call('GETRANGE', key, 0, 7)
  if #version == 8 then
    redis.call('SETRANGE', key, 0, struct.pack('>I8', struct.unpack('>I8', version) + 1))
  end
end

local function remove_events(lane, number, run)
  local marked = math.floor(string.byte(run, 1) / 2) % 2 == 1
  local mark = struct.pack('>I8', marked and tonumber(number) or 0)
  local set, ids = base .. 'ev:' .. lane, base .. 'id:' .. lane
  local low, high = text(struct.unpack('>I8', run, 10)), text(struct.unpack('>I8', run, 18))
  while true do
    local part = redis.call('ZRANGEBYSCORE', set, low, high, 'LIMIT', 0, 256)
    for _, event in ipairs(part) do
      if string.sub(event, 9, 16) == mark then
        local seq = text(struct.unpack('>I8', event))
        local id = string.sub(event, 56, 55 + struct.unpack('>I2', event, 54))
        redis.call('ZREM', set, event)
        if redis.call('HGET', ids, id) == seq then redis.call('HDEL', ids, id) end
        events = events + 1
      end
    end
    if #part < 256 then return end
    low = '(' .. text(struct.unpack('>I8', part[#part]))
  end
end

local oldest = redis.call('ZRANGE', base .. 'ended', 0, tonumber(ARGV[2]) - 1)
for _, name in ipairs(oldest) do
  local lane, number = string.match(name, '^(%d+):(%d+)$')
  local run = redis.call('HGET', base .. 'run:' .. lane, number)
  -- They are in the order in which they ended, so the first young one ends the walk.
  if run and struct.unpack('>I8', run, 26) >= before then break end
  if events >= tonumber(ARGV[3]) then
    more = 1
    break
  end
  changed(lane)
  if run and struct.unpack('>I8', run, 2) > 0 then remove_events(lane, number, run) end
  redis.call('DEL', base .. 'step:' .. lane .. ':' .. number)
  redis.call('HDEL', base .. 'run:' .. lane, number)
  redis.call('ZREM', base .. 'span:' .. lane, number)
  redis.call('ZREM', base .. 'ended', name)
  touched[lane] = true
  runs = runs + 1
end
if runs == tonumber(ARGV[2]) then more = 1 end

-- Records of one transaction are kept together: number, lane, time (8 bytes each), size (4), record. Numbers rise with
-- time but for a moment.
local entries = redis.call('ZRANGE', base .. 'audit', 0, tonumber(ARGV[4]) - 1)
local seen = 0
for _, entry in ipairs(entries) do
  local _, _, at = struct.unpack('>I8I8I8', entry)
  if at >= before then break end
  if records >= tonumber(ARGV[4]) then
    more = 1
    break
  end
  local place = 1
  while place < #entry do
    local id, lane, _, size = struct.unpack('>I8I8I8I4', entry, place)
    if lane > 0 then
      lane = text(lane)
      redis.call('ZREMRANGEBYSCORE', base .. 'trail:' .. lane, '-inf', text(id))
      touched[lane] = true
    end
    place = place + 28 + size
    records = records + 1
  end
  redis.call('ZREM', base .. 'audit', entry)
  seen = seen + 1
end
if seen == tonumber(ARGV[4]) then more = 1 end

local floor = 0
for lane in pairs(touched) do
  local row = redis.call('GET', base .. 'lane:' .. lane)
  local quiet = row and string.byte(row, 25) % 2 == 1
  if quiet and redis.call('EXISTS', base .. 'run:' .. lane, base .. 'trail:' .. lane, base .. 'ev:' .. lane) == 0 then
    local key = string.sub(row, 45, 44 + struct.unpack('>I2', row, 43))
    -- What the next lane of this key gets must be larger than what this one had.
    floor = math.max(floor, struct.unpack('>I8', row, 17))
    redis.call('HDEL', base .. 'key', key)
    redis.call('ZREM', base .. 'names', key)
    redis.call('DEL', base .. 'lane:' .. lane, base .. 'id:' .. lane, base .. 'span:' .. lane)
  end
end
if floor > tonumber(redis.call('HGET', base .. 'meta', 'floor') or '0') then
  redis.call('HSET', base .. 'meta', 'floor', text(floor))
end
return {runs, events, records, more}
