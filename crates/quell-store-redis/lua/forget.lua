-- One step of the retention: runs that ended before a moment, the oldest first, with their events, ids and steps; then
-- records of the trail; then lanes to which nothing refers. Dead letters are in a set of their own and stay.
--
-- ARGV: the moment, how many runs, how many events and how many records at the most. A run is removed whole, so the bound
-- of events may be passed by one run.
local before = tonumber(ARGV[1])
local runs, events, records, more = 0, 0, 0, 0
local touched = {}

local function text(number) return string.format('%.0f', number) end

-- The rows of lanes with their pockets, as far as they were looked at.
local lanes = {}
local function lane_of(id)
  local lane = lanes[id]
  if not lane then
    local row = redis.call('GET', base .. 'lane:' .. id) or ''
    lane = {row = row, pocket = pocket(row)}
    lanes[id] = lane
  end
  return lane
end

-- Leaves in a list what `stays`; says how many went.
local function leave(list, stays)
  local left, gone = {}, 0
  for _, item in ipairs(list) do
    if stays(item) then left[#left + 1] = item else gone = gone + 1 end
  end
  return left, gone
end

local function item(kind, value) return kind .. struct.pack('>I4', #value) .. value end

-- Writes the rows of lanes that have changed. Whoever has read one of them begins anew.
local function write_lanes()
  for id, lane in pairs(lanes) do
    if #lane.row >= 25 and (lane.changed or lane.emptied) then
      local version = struct.pack('>I8', struct.unpack('>I8', lane.row) + 1)
      local key = base .. 'lane:' .. id
      if lane.emptied then
        local parts = {version, string.sub(lane.row, 9, lane.pocket.place - 1)}
        for _, event in ipairs(lane.pocket.events) do parts[#parts + 1] = item('e', event) end
        for number, run in pairs(lane.pocket.runs) do
          parts[#parts + 1] = item('r', struct.pack('>I8', tonumber(number)) .. run)
        end
        for _, record in ipairs(lane.pocket.records) do parts[#parts + 1] = item('t', record) end
        redis.call('SET', key, table.concat(parts))
      else
        redis.call('SETRANGE', key, 0, version)
      end
    end
  end
end

local function remove_events(lane, number, run)
  local marked = math.floor(string.byte(run, 1) / 2) % 2 == 1
  local mark = struct.pack('>I8', marked and tonumber(number) or 0)
  local _, lo, hi = struct.unpack('>I8I8I8', run, 2)
  local at, gone = lane_of(lane), 0
  at.pocket.events, gone = leave(at.pocket.events, function(event)
    local seq = struct.unpack('>I8', event)
    return seq < lo or seq > hi or string.sub(event, 9, 16) ~= mark
  end)
  if gone > 0 then at.emptied = true end
  events = events + gone
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
  local at = lane_of(lane)
  local run = at.pocket.runs[number] or redis.call('HGET', base .. 'run:' .. lane, number)
  -- They are in the order in which they ended, so the first young one ends the walk.
  if run and struct.unpack('>I8', run, 26) >= before then break end
  if events >= tonumber(ARGV[3]) then
    more = 1
    break
  end
  at.changed = true
  if run and struct.unpack('>I8', run, 2) > 0 then remove_events(lane, number, run) end
  redis.call('DEL', base .. 'step:' .. lane .. ':' .. number)
  if at.pocket.runs[number] then
    at.pocket.runs[number], at.emptied = nil, true
  else
    redis.call('HDEL', base .. 'run:' .. lane, number)
    redis.call('ZREM', base .. 'span:' .. lane, number)
  end
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
      local at, gone = lane_of(lane), 0
      at.pocket.records, gone = leave(at.pocket.records, function(named)
        local _, record = struct.unpack('>BI8', named)
        return record > id
      end)
      if gone > 0 then at.emptied = true end
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
for id in pairs(touched) do
  local lane = lane_of(id)
  local row, left = lane.row, lane.pocket
  local quiet = #row >= 25 and string.byte(row, 25) % 2 == 1
  local empty = #left.events == 0 and #left.records == 0 and next(left.runs) == nil
  if quiet and empty and redis.call('EXISTS', base .. 'run:' .. id, base .. 'trail:' .. id, base .. 'ev:' .. id) == 0 then
    local key = string.sub(row, 45, 44 + struct.unpack('>I2', row, 43))
    -- What the next lane of this key gets must be larger than what this one had.
    floor = math.max(floor, struct.unpack('>I8', row, 17))
    redis.call('HDEL', base .. 'key', key)
    redis.call('ZREM', base .. 'names', key)
    redis.call('DEL', base .. 'lane:' .. id, base .. 'id:' .. id, base .. 'span:' .. id)
    lanes[id] = nil
  end
end
write_lanes()
if floor > tonumber(redis.call('HGET', base .. 'meta', 'floor') or '0') then
  redis.call('HSET', base .. 'meta', 'floor', text(floor))
end
return {runs, events, records, more}
