-- renew prolongs a claim. KEYS: claim, inbox. ARGV: 1 the hub, 2 the claim's
-- number, 3 how long it lasts in microseconds. Answers the ID of the newest
-- request, '0-0' when there is none, or '' when the claim is lost.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number')
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] then return '' end
local t = redis.call('TIME')
redis.call('HDEL', KEYS[1], '') -- changes nothing, but then Redis takes the rest also when it is full
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', t[1] * 1000000 + t[2] + ARGV[3]))
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
return newest and newest[1] or '0-0'
