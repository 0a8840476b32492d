-- join says that a hub lives. KEYS: hubs. ARGV: 1 the hub, 2 how long it lives in
-- microseconds. Answers all that live.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function text(n) return string.format('%.0f', n) end

-- What removes comes first: Redis takes it, and what follows it, when it is full.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], text(now + ARGV[2]), '+inf') -- by a clock that was ahead
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1)
