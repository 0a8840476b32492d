-- make makes a set, unless there is one. ARGV: 4 list size, 5 title, 6 describedby,
-- 7 changelist. Answers: ok MADE, where MADE is 1 if there was none.

local v = redis.call('HMGET', SET, 'memory', 'log')
local was = v[2] and deleted(v[2])
if v[2] and not was then
  if v[1] == ARGV[1] then return { 'ok', 0 } end
  return { 'other', v[1] }
end

local begin = clock()
if was then begin = math.max(begin, was + 1) end
local floor = cursor(0, begin)
redis.call('HSET', SET, 'memory', ARGV[1], 'size', ARGV[4], 'title', ARGV[5], 'describedby', ARGV[6], 'changelist', ARGV[7], 'begin', text(begin))
redis.call('UNLINK', PACKED, LIVE, KNOWN, NUMBERS, CALLS0, CALLS1)
save(log({
  floor = floor, head = floor, latest = write(floor),
  packed = { upto = floor, swept = 1, first = 1, last = 0 },
  live = { swept = 1, first = 1, last = 0 },
  known = 0, forgot = 0, turns = 0, turned = begin, call = '', answer = '',
}))
return { 'ok', 1 }
