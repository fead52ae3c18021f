-- Reads the lanes that were claimed under the id ARGV[1]: at most as many as one claim takes.
local out = {now()}
rows(out, redis.call('SMEMBERS', base .. 'claim:' .. ARGV[1]))
return out
