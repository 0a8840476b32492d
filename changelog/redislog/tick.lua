-- tick records the time of Redis's clock, see changelog.Log.Tick. KEYS: 1 the memory. ARGV: 4
-- ClockStep and 5 ClockDoubt in microseconds. Replies: ok DOUBT AT DOUBTED, where DOUBT is 1 if
-- the clock is in doubt, and AT and DOUBTED are the fields of changelog.Clock. While the clock
-- differs from the hub's by more than the skew, it is in doubt, too, and AT and DOUBTED are the
-- values recorded before.

local now = clock()
local v = redis.call('HMGET', KEYS[1], 'id', 'clock', 'doubted')
if v[1] ~= ARGV[1] then return { 'other', v[1] or '' } end
local at, doubted = tonumber(v[2] or 0), tonumber(v[3] or 0)
if math.abs(now - ARGV[2]) > skew then return { 'ok', 1, at, doubted } end

if at > 0 and now - at > tonumber(ARGV[4]) then
  doubted = now
elseif now < doubted or now - doubted >= tonumber(ARGV[5]) then
  doubted = 0
end
-- Not on every call, so that an idle memory rarely writes.
if doubted ~= tonumber(v[3] or 0) or math.abs(now - at) >= ARGV[4] / 6 then
  room()
  for _ = 1, 2 do redis.call('HSET', KEYS[1], 'clock', text(now), 'doubted', text(doubted)) end -- twice, see lib.lua
end
return { 'ok', doubted > 0 and 1 or 0, now, doubted }
