-- trim removes closed lists and some of the expired keys, but not all keys at once, because
-- Redis serves no other client while a script runs. ARGV: 4 begin, 5 maximum age in
-- microseconds and 6 minimum count of retention, 7 KeyAge in microseconds, 8 KeyCount, 9 the
-- position after which nothing is removed or "", 10 to 12 the arguments of doubtful.
--
-- Replies: ok REMOVED MORE SIZE BLOCKS ENTRIES SWEEP: the number of removed entries, 1 if more
-- expired keys are left, the list size, the number of live blocks and of their entries, and 1
-- if data is left over for sweep.

local s, no = open(ARGV[4])
if not s then return no end

local now = clock()
local age, count = tonumber(ARGV[5]), tonumber(ARGV[6])
local maxAge, maxCount = tonumber(ARGV[7]), tonumber(ARGV[8])
-- The hub has called tick before, but a failover may have changed the clock since.
if math.abs(now - ARGV[2]) > skew then age, maxAge = 0, math.huge end
if doubtful(now, 10) then maxAge = math.huge end

room()
local upto = 0 -- last position that may be removed
if count > 0 then upto = s.head.position - count end
if age > 0 then upto = math.max(upto, newest(s, now - age - 1).position) end
local keep = math.floor(s.head.position / s.size) - 1 -- the open list and the newest closed list stay
if ARGV[9] ~= '' then upto = math.min(upto, tonumber(ARGV[9])) end
local position = s.size * math.min(keep, math.floor(upto / s.size))
local removed = position - s.floor.position
if removed > 0 then
  local found = search(s, 'position', position)
  if found.last.position ~= position then damaged('a block crosses position ' .. text(position)) end
  s.floor = found.last
  if found.store == s.live then s.packed.first, s.packed.upto = s.packed.last + 1, s.floor end
  found.store.first = found.number + 1
end

local more = 1
for _ = 1, 5000 do
  if s.forgot == s.known then more = 0 break end
  local number = text(s.forgot + 1)
  local k = known(number)
  if k then
    if s.known - number < maxCount and k.micros >= now - maxAge then more = 0 break end
    redis.call('HDEL', KNOWN, number)
    -- A key that was used again has a new number.
    if redis.call('HGET', NUMBERS, k.key) == number then redis.call('HDEL', NUMBERS, k.key) end
  end
  s.forgot = s.forgot + 1
end
turn(s, now)
if log(s) ~= s.log then saveOnly(log(s)) end
local sweep = (s.packed.swept < s.packed.first or s.live.swept < s.live.first) and 1 or 0
return { 'ok', math.max(removed, 0), more, s.size, s.live.last - s.live.first + 1, s.head.position - s.packed.upto.position, sweep }
