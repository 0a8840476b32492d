-- acquire claims a shard. KEYS: claim. ARGV: 1 the hub, 2 the lifetime of the claim
-- in microseconds. Returns the number of the claim, or '' if another hub has a
-- claim.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number', 'until')
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
-- An expiry later than the lifetime of a claim was set while the clock of Redis was
-- ahead. It is ignored.
local till = tonumber(c[3])
if c[1] and c[1] ~= ARGV[1] and till > now and till <= now + ARGV[2] + 60000000 then return '' end

-- Because of the time, numbers rise even when Redis lost the newest ones.
local number = string.format('%.0f', math.max((c[2] or 0) + 1, now))
-- The last commit was made under the old claim.
redis.call('HDEL', KEYS[1], 'commit') -- after a command that removes, Redis accepts the writes even when it is full
redis.call('HSET', KEYS[1], 'hub', ARGV[1], 'number', number, 'until', string.format('%.0f', now + ARGV[2]))
return number
