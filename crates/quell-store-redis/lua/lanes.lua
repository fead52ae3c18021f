-- Reads lanes by key (ARGV[1] = 'k') or by number ('i'); ARGV[2..] are the keys or numbers, at most as many as a group
-- of calls has events. Those that do not exist are not in the answer. Before the rows comes the number that a new lane's
-- numbers must pass: the largest that a removed lane had.
local out, ids = {now(), redis.call('HGET', base .. 'meta', 'floor') or 0}, {}
if ARGV[1] == 'k' then
  local keys = {unpack(ARGV, 2, math.min(#ARGV, CHUNK))}
  for i = #keys + 2, #ARGV do keys[i - 1] = ARGV[i] end
  in_chunks(keys, function(...) return redis.call('HMGET', base .. 'key', ...) end, function(id)
    if id then ids[#ids + 1] = id end
  end)
else
  for i = 2, #ARGV do ids[i - 1] = ARGV[i] end
end
rows(out, ids)
return out
