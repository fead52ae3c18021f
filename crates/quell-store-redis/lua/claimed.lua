-- Reads the lanes that were claimed under the id ARGV[1], at most as many as one claim takes, and says before how many.
local lanes = redis.call('SMEMBERS', base .. 'claim:' .. ARGV[1])
local out = {now(), #lanes}
rows(out, lanes)
return out
