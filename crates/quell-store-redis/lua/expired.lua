-- Reads lanes whose lease entries are over, and reserves them as `due.lua` does.
--
-- ARGV: now, the moment up to which they are reserved, how many at the most, then the queues.
local out, left = {now()}, tonumber(ARGV[3])
for i = 4, #ARGV do
  local set = base .. 'lease:' .. ARGV[i]
  local ids = redis.call('ZRANGEBYSCORE', set, '-inf', ARGV[1], 'LIMIT', 0, left)
  if #ids > 0 then
    for _, id in ipairs(ids) do redis.call('ZADD', set, ARGV[2], id) end
    for _, id in ipairs(rows(out, ids)) do redis.call('ZREM', set, id) end
    refresh('l' .. ARGV[i], set)
    left = left - #ids
    if left <= 0 then break end
  end
end
return out
