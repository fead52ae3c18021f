-- Reads lanes that are due and reserves them: their entries move a moment ahead, so that other claimers choose others.
-- Whoever reserved them writes the true entries when he ends; if he dies, the lanes are merely late by that moment.
-- Reads at most as many lanes as are asked for: no more than a claim can take.
--
-- ARGV: now, the moment up to which they are reserved, then (name in `waits`, set, most) for each level.
local out = {now()}
for i = 3, #ARGV, 3 do
  local set = ARGV[i + 1]
  local ids = redis.call('ZRANGEBYSCORE', set, '-inf', ARGV[1], 'LIMIT', 0, ARGV[i + 2])
  if #ids > 0 then
    local moved = {}
    for _, id in ipairs(ids) do
      moved[#moved + 1] = ARGV[2]
      moved[#moved + 1] = id
    end
    for first = 1, #moved, CHUNK do
      redis.call('ZADD', set, unpack(moved, first, math.min(first + CHUNK - 1, #moved)))
    end
    for _, id in ipairs(rows(out, ids)) do redis.call('ZREM', set, id) end
    refresh(ARGV[i], set)
  end
end
return out
