-- Events of a lane behind a number, in order, until there are enough of them or their payloads are long enough.
--
-- ARGV: lane, number, how many at the most, how many bytes.
local set, low = base .. 'ev:' .. ARGV[1], '(' .. ARGV[2]
local most, bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local out, size = {}, 0
-- Those of the pocket come in between.
local here, next_here = {}, 1
for _, event in ipairs(in_order(pocket_of(ARGV[1]).events)) do
  if struct.unpack('>I8', event) > tonumber(ARGV[2]) then here[#here + 1] = event end
end
local function take(event)
  out[#out + 1] = event
  size = size + struct.unpack('>I4', event, 17)
  return #out >= most or size >= bytes
end
while #out < most do
  local asked = math.min(32, most - #out)
  local part = redis.call('ZRANGEBYSCORE', set, low, '+inf', 'LIMIT', 0, asked)
  for _, event in ipairs(part) do
    while here[next_here] and struct.unpack('>I8', here[next_here]) < struct.unpack('>I8', event) do
      if take(here[next_here]) then return out end
      next_here = next_here + 1
    end
    if take(event) then return out end
  end
  if #part < asked then break end
  low = '(' .. string.format('%.0f', struct.unpack('>I8', part[#part], 1))
end
for i = next_here, #here do
  if #out >= most or take(here[i]) then break end
end
return out
