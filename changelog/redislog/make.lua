-- make creates a set if it does not exist. ARGV: 4 the field log that the hub saw, "" if there
-- was none, 5 list size, 6 title, 7 describedby, 8 changelist, 9 more. Replies: ok MADE BEGIN,
-- where MADE is 1 if the set is new, else 0. "anew": the set does not exist, but existed after
-- the hub read the field; creating it could be a late request that restores a deleted set.
-- clock NOW HUB: the clocks differ too much, and a set that starts in the future would accept
-- no change.

local v = redis.call('HMGET', SET, 'memory', 'log', 'begin', 'was', 'left')
local was = v[2] and deleted(v[2])
if v[2] and not was then
  if v[1] == ARGV[1] then return { 'ok', 0, v[3] } end
  return { 'other', v[1] }
end
if (v[2] or '') ~= ARGV[4] then return { 'anew' } end

local begin = clock()
if math.abs(begin - ARGV[2]) > skew then return { 'clock', text(begin), ARGV[2] } end

-- The log starts now, and after the deleted logs with its name ended. If a clock was wrong, one
-- of them may have ended far in the future. Then the log starts now anyway, and stores the
-- latest datetime that a cursor of a deleted log may have; see since.lua.
local upto, ever = tonumber(was or 0), tonumber(v[4] or 0)
local left = v[5] and parse(v[5])
if left and left.position == upto then ever = math.max(ever, left.micros) end
ever = math.max(ever, upto)
if upto - begin <= skew then begin = math.max(begin, upto + 1) end
local floor = cursor(0, begin)
redis.call('HSET', SET, 'memory', ARGV[1], 'size', ARGV[5], 'title', ARGV[6], 'describedby', ARGV[7], 'changelist', ARGV[8], 'begin', text(begin), 'was', text(ever),
  'more', text(begin) .. ' ' .. ARGV[9])
redis.call('UNLINK', unpack(KEYS, 2))
save(log({
  floor = floor, head = floor, latest = write(floor),
  packed = { upto = floor, swept = 1, first = 1, last = 0 },
  live = { swept = 1, first = 1, last = 0 },
  known = 0, forgot = 0, turns = 0, turned = begin, call = '', answer = '',
}))
return { 'ok', 1, text(begin) }
