-- In front of every script that changes something or begins a transaction: once the seal is set, nothing changes any more.
local sealed = redis.call('HGET', KEYS[1], 'sealed')
if sealed then return refusal(sealed) end
