-- The time of the server in milliseconds, moved by what tests have asked for.
local function now()
  local time = redis.call('TIME')
  local moved = redis.call('HGET', base .. 'meta', 'offset') or 0
  return time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(moved)
end
