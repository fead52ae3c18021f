-- Opens the store on this server; the only script that is sent as text. The others are loaded by the client after it,
-- and called by their hash. So a server that was restarted, or has taken over from another, knows none of them and is
-- opened first: before it hands out a number, the sequence is raised beyond all that a lost tail may have told.
--
-- KEYS[1] meta. ARGV: the schema of this program, the run id of the server, the jump of an epoch, the floor that the
-- calendar sets, the first number that is too large, the server's time in milliseconds. A database of several has a range of
-- numbers above those: its jump, its floor within the range, and the size of a range.
local meta = KEYS[1]
local known = redis.call('HMGET', meta, 'schema', 'server', 'number', 'raised')
if known[1] and tonumber(known[1]) > tonumber(ARGV[1]) then
  return {'newer', known[1]}
end
if known[2] ~= ARGV[2] then
  local last = tonumber(known[3] or '0')
  -- The time since the last jump counts as 1,024 numbers a millisecond: should this very jump be lost with the tail of
  -- the log, the next one still lands behind everything told under this one.
  local since = math.max(0, tonumber(ARGV[6]) - tonumber(known[4] or ARGV[6]))
  local number, ends
  if last < tonumber(ARGV[5]) then
    number, ends = math.max(last + tonumber(ARGV[3]) + since * 1024, tonumber(ARGV[4])), tonumber(ARGV[5])
  else
    -- As 64 a millisecond in a range, which is to last for years.
    local first = last - last % tonumber(ARGV[9])
    number, ends = math.max(last + tonumber(ARGV[7]) + since * 64, first + tonumber(ARGV[8])), first + tonumber(ARGV[9])
  end
  if number >= ends then
    return {'spent'}
  end
  number = string.format('%.0f', number)
  -- An epoch is known by the number with which it begins: a count would come again when it is lost.
  redis.call('HSET', meta, 'schema', ARGV[1], 'server', ARGV[2], 'raised', ARGV[6], 'number', number, 'epoch', number)
end
local raised = known[1] and tonumber(known[1]) < tonumber(ARGV[1])
if raised then
  -- What an older program wrote is read as it is; from now on it would not understand all of it.
  redis.call('HSET', meta, 'schema', ARGV[1])
end
return {'open', redis.call('HGET', meta, 'epoch'), raised and 'raised' or ''}
