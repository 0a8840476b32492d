-- alive tells which hubs are alive. KEYS: hubs. ARGV: 1 how long a hub counts as alive
-- in microseconds.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function text(n) return string.format('%.0f', n) end

return redis.call('ZRANGEBYSCORE', KEYS[1], text(now - ARGV[1]), text(now + ARGV[1]))
