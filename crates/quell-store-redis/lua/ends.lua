-- When the runs ARGV[1..] ended, each named lane:number; an empty text for one that is not there.
local out = {}
for i = 1, #ARGV do
  local lane, number = string.match(ARGV[i], '^(%d+):(%d+)$')
  local run = lane and (redis.call('HGET', base .. 'run:' .. lane, number) or pocket_of(lane).runs[number])
  out[i] = run and string.format('%.0f', struct.unpack('>I8', run, 26)) or ''
end
return out
