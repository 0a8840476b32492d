-- make makes a set, unless there is one. ARGV: 4 list size, 5 title,
-- 6 describedby. Answers: ok.

local memory = redis.call('HGET', SET, 'memory')
if memory == ARGV[1] then return { 'ok' } end
if memory then return { 'other', memory } end

local begin = clock()
local was = redis.call('GET', WAS)
if was then begin = math.max(begin, was + 1) end
local floor = write(cursor(0, begin))
redis.call('HSET', SET, 'memory', ARGV[1], 'size', ARGV[4], 'title', ARGV[5], 'describedby', ARGV[6],
  'begin', text(begin), 'floor', floor, 'head', floor, 'latest', floor, 'known', 0, 'packed', 0, 'turned', text(begin))
redis.call('UNLINK', PACKED, LIVE, KNOWN, AGES, CALLS, CALLED)
return { 'ok' }
