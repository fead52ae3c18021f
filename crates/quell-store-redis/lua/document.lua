-- One place on a shelf: shelf, name, the time. What stands there with its version in front or '', how many documents the
-- shelf has that are not over, and how often any document was put.
local shelf = ARGV[1]
return {
  now(),
  redis.call('HGET', base .. 'document:' .. shelf, ARGV[2]) or '',
  redis.call('HLEN', base .. 'document:' .. shelf) - redis.call('ZCOUNT', base .. 'lapse:' .. shelf, '-inf', ARGV[3]),
  redis.call('HGET', KEYS[1], 'documents') or '',
}
