-- trim removes closed lists and forgets keys, some of them: a script blocks
-- everybody. ARGV: 4 the age in microseconds and 5 the count that retention
-- keeps, 6 KeyAge in microseconds, 7 KeyCount.
--
-- Answers: ok REMOVED MORE SIZE BLOCKS ENTRIES: how many entries were removed, 1
-- when there is more to do, the list size, and what is in the live stream.

local s, no = open()
if not s then return no end

local now = clock()
local age, count = tonumber(ARGV[4]), tonumber(ARGV[5])
local maxAge, maxCount = tonumber(ARGV[6]), tonumber(ARGV[7])

-- go reports whether the list that ends at a position may go.
local function go(position)
  if count > 0 and s.head.position - position >= count then return true end
  return age > 0 and at(s, position).micros < now - age
end

local oldest = math.floor(s.floor.position / s.size)
local list, more = oldest, 0
local keep = math.floor(s.head.position / s.size) - 1 -- the open list and the newest closed one stay
local most = oldest + math.min(1000, math.max(1, math.floor(100000 / s.size)))
while list < keep and go((list + 1) * s.size) do
  if list == most then
    more = 1
    break
  end
  list = list + 1
end
local removed = 0
if list > oldest then
  local floor = at(s, list * s.size)
  local rest = text(floor.position + 1) .. '-0'
  redis.call('XTRIM', PACKED, 'MINID', rest)
  redis.call('XTRIM', LIVE, 'MINID', rest)
  redis.call('HSET', SET, 'floor', write(floor))
  removed = floor.position - s.floor.position
  s.floor = floor
end

for n = 1, 5000 do
  local entry = redis.call('LINDEX', AGES, 0)
  if not entry then break end
  local number, micros, key = string.match(entry, '^(%d+) (%d+) (.*)$')
  if s.known - number < maxCount and tonumber(micros) >= now - maxAge then break end
  redis.call('LPOP', AGES)
  local v = redis.call('HGET', KNOWN, key)
  -- A key that was used again has a new number.
  if v and string.match(string.sub(v, 33), '^%d+') == number then redis.call('HDEL', KNOWN, key) end
  if n == 5000 then more = 1 end
end
turn(s, now)
local live = s.head.position - math.max(s.packed, s.floor.position)
return { 'ok', removed, more, s.size, redis.call('XLEN', LIVE), live }
