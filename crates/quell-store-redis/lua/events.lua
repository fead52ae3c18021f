-- Events of a lane behind a number, in order, until there are enough of them or their payloads are long enough.
--
-- ARGV: lane, number, how many at the most, how many bytes.
local set, low = base .. 'ev:' .. ARGV[1], '(' .. ARGV[2]
local most, bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local out, size = {}, 0
while #out < most do
  local asked = math.min(32, most - #out)
  local part = redis.call('ZRANGEBYSCORE', set, low, '+inf', 'LIMIT', 0, asked)
  for _, event in ipairs(part) do
    out[#out + 1] = event
    size = size + struct.unpack('>I4', event, 17)
    if size >= bytes then return out end
  end
  if #part < asked then break end
  low = '(' .. string.format('%.0f', struct.unpack('>I8', part[#part], 1))
end
return out
