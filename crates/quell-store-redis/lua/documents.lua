-- Forgets documents that are over, at most ARGV[1] of them, on the shelves that follow. Says 1 when there are more.
local moment, left = string.format('%.0f', now()), tonumber(ARGV[1])
for i = 2, #ARGV do
  local set = base .. 'lapse:' .. ARGV[i]
  local names = redis.call('ZRANGEBYSCORE', set, '-inf', moment, 'LIMIT', 0, left)
  in_chunks(names, function(...)
    redis.call('HDEL', base .. 'document:' .. ARGV[i], ...)
    redis.call('ZREM', set, ...)
    return {}
  end, function() end)
  left = left - #names
  if left == 0 then return redis.call('ZCOUNT', set, '-inf', moment) > 0 and 1 or i < #ARGV and 1 or 0 end
end
return 0
