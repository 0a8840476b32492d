-- import is the steps of a copy on a set. ARGV: 4 number of the run, 5 the step:
--
--   begin   6 list size, 7 title, 8 describedby, 9 changelist, 10 begin, 11 floor,
--           12 latest, 13 head: makes the set, without keys. Where there is one it
--           must end at head, and its blocks stay
--   add     6 the head before, 7 the head, then the blocks as they are kept
--   keys    then of each its number, its key and what is kept of it
--   delete  6 the datetime that remains
--
-- All blocks are packed. Each step may be repeated. Answers: ok. busy: a later run
-- is at work. head HEAD: the set does not end where it should.

local v = redis.call('HMGET', SET, 'run', 'log')
if tonumber(v[1] or 0) > tonumber(ARGV[4]) then return { 'busy' } end
local step = ARGV[5]

if step == 'delete' then
  redis.call('HSET', SET, 'run', ARGV[4])
  saveOnly('deleted ' .. ARGV[6])
  return { 'ok' }
end

if step == 'begin' then
  local head = parse(ARGV[13])
  local packed = { swept = 1, first = 1, last = 0 }
  if v[2] and not deleted(v[2]) then
    local s, no = open()
    if not s then return no end
    if write(s.head) ~= ARGV[13] then return { 'head', write(s.head) } end
    packed = s.packed
  end
  packed.upto = head
  redis.call('HSET', SET, 'run', ARGV[4], 'memory', ARGV[1], 'size', ARGV[6], 'title', ARGV[7], 'describedby', ARGV[8],
    'changelist', ARGV[9], 'begin', ARGV[10])
  redis.call('UNLINK', KNOWN, NUMBERS) -- each run begins with this and brings them again
  save(log({
    floor = parse(ARGV[11]), head = head, latest = ARGV[12], packed = packed, live = { swept = 1, first = 1, last = 0 },
    known = 0, forgot = 0, turns = 0, turned = clock(), call = '', answer = '',
  }))
  return { 'ok' }
end

local s, no = open()
if not s then return no end

if step == 'add' then
  if write(s.head) == ARGV[7] then return { 'ok' } end -- an earlier try did it
  if write(s.head) ~= ARGV[6] then return { 'head', write(s.head) } end
  for i = 8, #ARGV do
    s.packed.last = s.packed.last + 1
    redis.call('HSET', PACKED, text(s.packed.last), ARGV[i])
  end
  s.head = parse(ARGV[7])
  s.packed.upto = s.head
else
  if s.known == 0 then s.forgot = ARGV[6] - 1 end
  for i = 6, #ARGV, 3 do
    s.known = tonumber(ARGV[i])
    redis.call('HSET', KNOWN, ARGV[i], ARGV[i + 2])
    redis.call('HSET', NUMBERS, ARGV[i + 1], ARGV[i])
  end
end
save(log(s))
return { 'ok' }
