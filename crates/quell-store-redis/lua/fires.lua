-- Reads schedules that are due, at most 256 of each queue, with the version of all schedules.
--
-- ARGV: now, then the queues.
local out = {now(), redis.call('HGET', base .. 'meta', 'schedules') or ''}
for i = 2, #ARGV do
  local names = redis.call('ZRANGEBYSCORE', base .. 'fire:' .. ARGV[i], '-inf', ARGV[1], 'LIMIT', 0, 256)
  in_chunks(names, function(...) return redis.call('HMGET', base .. 'schedule', ...) end, function(row)
    if row then out[#out + 1] = row end
  end)
end
return out
