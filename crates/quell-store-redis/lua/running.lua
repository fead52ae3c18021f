-- How many lanes of the queue ARGV[1] are under a lease.
return redis.call('ZCARD', base .. 'lease:' .. ARGV[1])
