-- acquire claims a shard. KEYS: claim. ARGV: 1 the hub, 2 how long the claim
-- lasts in microseconds. Answers its number, or '' when another hub has one.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number', 'until')
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local till = tonumber(c[3]) -- much later than a claim lasts it is by a clock that was ahead
if c[1] and c[1] ~= ARGV[1] and till > now and till <= now + ARGV[2] + 60000000 then return '' end

-- The time keeps it rising also when Redis lost the last ones.
local number = string.format('%.0f', math.max((c[2] or 0) + 1, now))
redis.call('HDEL', KEYS[1], '') -- changes nothing, but then Redis takes the rest also when it is full
redis.call('HSET', KEYS[1], 'hub', ARGV[1], 'number', number, 'until', string.format('%.0f', now + ARGV[2]))
return number
