-- Reads events aside that want to be looked at, and reserves them as `due.lua` does.
--
-- ARGV: now, the moment up to which they are reserved, how many of each queue at the most, then the queues.
local out = {now()}
for i = 4, #ARGV do
  local set = base .. 'look:' .. ARGV[i]
  local found = redis.call('ZRANGEBYSCORE', set, '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
  if #found > 0 then
    in_chunks(found, function(...) return redis.call('HMGET', base .. 'aside', ...) end, function(row, n)
      if row then
        out[#out + 1] = row
        redis.call('ZADD', set, ARGV[2], found[n])
      else
        redis.call('ZREM', set, found[n])
      end
    end)
    refresh('a' .. ARGV[i], set)
  end
end
return out
