-- Forgets kept answers that are over, at most ARGV[1] of them. Says 1 when there are more. An answer that somebody is
-- fetching is not over before his flight is, so nothing is taken from him. Values are not read.
local moment, left = string.format('%.0f', now()), tonumber(ARGV[1])
for _, source in ipairs(redis.call('ZRANGEBYSCORE', base .. 'over', '-inf', moment, 'LIMIT', 0, left + 1)) do
  if left == 0 then return 1 end
  local set = base .. 'over:' .. source
  local keys = redis.call('ZRANGEBYSCORE', set, '-inf', moment, 'LIMIT', 0, left)
  in_chunks(keys, function(...)
    redis.call('HDEL', base .. 'answer:' .. source, ...)
    redis.call('ZREM', base .. 'kept:' .. source, ...)
    redis.call('ZREM', set, ...)
    return {}
  end, function() end)
  left = left - #keys
  first_of(set, base .. 'over', source)
end
return left == 0 and redis.call('ZCOUNT', base .. 'over', '-inf', moment) > 0 and 1 or 0
