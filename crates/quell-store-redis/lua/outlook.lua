-- What waits: every queue with something to wait for, the first time of each kind; for each that has leases how many,
-- and when the first runs out that has not run out yet; pauses; the rows of the sources that lanes wait for.
-- Bounded by the number of queues that have something to do and of the sources they wait for, not by lanes.
local moment = now()
local waits = redis.call('ZRANGE', base .. 'waits', 0, -1, 'WITHSCORES')
local leases, sources, asked = {}, {}, {}
for i = 1, #waits, 2 do
  local kind = string.sub(waits[i], 1, 1)
  if kind == 'g' then
    local source = string.match(waits[i], '^g%d(%d+):')
    if source and not asked[source] then
      asked[source] = true
      sources[#sources + 1] = base .. 'source:' .. source
    end
  elseif kind == 'l' then
    local set = base .. 'lease:' .. string.sub(waits[i], 2)
    local later = waits[i + 1]
    if tonumber(later) <= moment then
      later = redis.call('ZRANGEBYSCORE', set, '(' .. string.format('%.0f', moment), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    end
    leases[#leases + 1] = redis.call('ZCARD', set)
    leases[#leases + 1] = later or ''
  end
end
local governing = {}
in_chunks(sources, function(...) return redis.call('MGET', ...) end, function(row)
  if row then governing[#governing + 1] = row end
end)
return {moment, waits, leases, redis.call('HGETALL', base .. 'pause'), governing}
