-- release releases a claim. KEYS: claim. ARGV: 1 the hub, 2 the claim's number. The
-- number is retained, so that the next one is higher.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number')
if c[1] == ARGV[1] and c[2] == ARGV[2] then redis.call('HDEL', KEYS[1], 'hub') end
return 1
