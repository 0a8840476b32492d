-- acquire claims a shard. KEYS: claim. ARGV: 1 the hub, 2 how long the claim
-- lasts in microseconds. Answers the claim's number, or '' when another hub has a
-- claim.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number', 'until')
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
-- An end that is much later than a claim lasts comes from a time at which the clock
-- of Redis was ahead. It does not count.
local till = tonumber(c[3])
if c[1] and c[1] ~= ARGV[1] and till > now and till <= now + ARGV[2] + 60000000 then return '' end

-- Because of the time, numbers rise even when Redis lost the newest ones.
local number = string.format('%.0f', math.max((c[2] or 0) + 1, now))
redis.call('HDEL', KEYS[1], '') -- removes nothing, but after a command that removes, Redis accepts the writes even when it is full
redis.call('HSET', KEYS[1], 'hub', ARGV[1], 'number', number, 'until', string.format('%.0f', now + ARGV[2]))
return number
