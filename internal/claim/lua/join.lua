-- join announces that a hub is alive. KEYS: hubs. ARGV: 1 the hub, 2 how long it counts
-- as alive in microseconds, 3 the time of its clock, 4 the allowed clock skew.
-- Returns all live hubs. If the skew is too large, it returns by how much the clock is
-- ahead, a number, and the hub is no longer alive.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function text(n) return string.format('%.0f', n) end

local ahead = ARGV[3] - now
if math.abs(ahead) > tonumber(ARGV[4]) then
	redis.call('ZREM', KEYS[1], ARGV[1])
	return ahead
end

-- Removing comes first: Redis accepts it, and the writes after it, even when it is
-- full.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], text(now + ARGV[2]), '+inf') -- joined while the clock of Redis was ahead
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1)
