-- join says that a hub lives. KEYS: hubs. ARGV: 1 the hub, 2 how long it lives in
-- microseconds, 3 its time, 4 by how much that may be wrong. Answers all that live,
-- or by how much the hub is ahead when that is too much, and then it lives no more.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function text(n) return string.format('%.0f', n) end

local ahead = ARGV[3] - now
if math.abs(ahead) > tonumber(ARGV[4]) then
	redis.call('ZREM', KEYS[1], ARGV[1])
	return ahead
end

-- What removes comes first: Redis takes it, and what follows it, when it is full.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], text(now + ARGV[2]), '+inf') -- by a clock that was ahead
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1)
