-- Sets ARGV[1] numbers apart. Answers the epoch and the last of them.
return {redis.call('HGET', KEYS[1], 'epoch'), redis.call('HINCRBY', KEYS[1], 'number', ARGV[1])}
