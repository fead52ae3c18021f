-- Counts what no counter knows, for a part of the lanes or runs at a time.
--
-- ARGV[1] = 'e': the events of the lanes ARGV[2..]; behind the count come the rows of those whose runs have not all ended.
-- ARGV[1] = 's': the steps of the runs ARGV[2..], each as lane:number.
-- ARGV[1] = 'r': the records of at most ARGV[3] entries of the trail from place ARGV[2] on; behind the count comes that
-- of the entries. A record has 28 bytes in front of it, of which the last four are its size.
local count = 0
if ARGV[1] == 'r' then
  local entries = redis.call('ZRANGE', base .. 'audit', ARGV[2], ARGV[2] + ARGV[3] - 1)
  for _, entry in ipairs(entries) do
    local place = 1
    while place < #entry do
      count = count + 1
      place = place + 28 + struct.unpack('>I4', entry, place + 24)
    end
  end
  return {count, #entries}
end
if ARGV[1] == 's' then
  for i = 2, #ARGV do count = count + redis.call('HLEN', base .. 'step:' .. ARGV[i]) end
  return {count}
end
local busy = {}
for i = 2, #ARGV do
  local row = redis.call('GET', base .. 'lane:' .. ARGV[i]) or ''
  count = count + redis.call('ZCARD', base .. 'ev:' .. ARGV[i]) + #pocket(row).events
  local quiet = string.byte(row, 25)
  if quiet and quiet % 2 == 0 then busy[#busy + 1] = ARGV[i] end
end
local out = {count}
rows(out, busy)
return out
