-- renew extends a claim. KEYS: claim. ARGV: 1 the hub, 2 the claim's number, 3 its
-- lifetime in microseconds. Returns 1, or 0 if the claim is lost.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number')
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] then return 0 end
local t = redis.call('TIME')
redis.call('HDEL', KEYS[1], '') -- deletes nothing, but after a deleting command Redis accepts the writes even if it is full
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', t[1] * 1000000 + t[2] + ARGV[3]))
return 1
