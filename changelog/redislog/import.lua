-- import does one step of a copy on a set. ARGV: 4 number of the step, higher than those
-- of all earlier steps and runs, 5 the step:
--
--   begin   makes the set, without keys and inventory. If the set exists, it must end at the head,
--           and its blocks stay. 6 list size, 7 title, 8 describedby, 9 changelist,
--           10 begin, 11 floor, 12 latest, 13 head, 14 was, 15 epochs, 16 more
--   add     adds blocks. 6 the head before, 7 the head after, then the blocks as they
--           are kept
--   keys    adds keys. Per key: its number, the key, and what is kept of it
--   delete  deletes the set. 6 and 7 the datetimes that stay, see delete.lua,
--           8 begin of the set, or "" if there is none
--
-- All blocks of a copy are packed. Each step may be repeated. Answers: ok. busy: the step
-- comes late, because a later one was done, or a later run is at work. head HEAD: the set
-- does not end where the step expects.

local v = redis.call('HMGET', SET, 'run', 'log', 'begin')
if tonumber(v[1] or 0) > tonumber(ARGV[4]) then return { 'busy' } end
local step = ARGV[5]

if step == 'delete' then
  if v[2] and not deleted(v[2]) and v[3] ~= ARGV[8] then return { 'busy' } end
  redis.call('HSET', SET, 'run', ARGV[4], 'left', ARGV[6] .. '-' .. ARGV[7])
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
  elseif ARGV[13] ~= ARGV[11] then
    return { 'head', '' }
  end
  packed.upto = head
  redis.call('HSET', SET, 'run', ARGV[4], 'memory', ARGV[1], 'size', ARGV[6], 'title', ARGV[7], 'describedby', ARGV[8],
    'changelist', ARGV[9], 'begin', ARGV[10], 'was', ARGV[14],
    'epochs', ARGV[10] .. ' ' .. ARGV[15], 'more', ARGV[10] .. ' ' .. ARGV[16])
  redis.call('UNLINK', KNOWN, NUMBERS, unpack(KEYS, 8)) -- each run begins with this step, and adds the keys and the inventory again
  redis.call('HDEL', SET, 'inventory')
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
  redis.call('HSET', SET, 'run', ARGV[4])
  for i = 8, #ARGV do
    s.packed.last = s.packed.last + 1
    redis.call('HSET', PACKED, text(s.packed.last), ARGV[i])
  end
  s.head = parse(ARGV[7])
  s.packed.upto = s.head
else
  if s.known >= tonumber(ARGV[#ARGV - 2]) then return { 'ok' } end -- an earlier try did it
  redis.call('HSET', SET, 'run', ARGV[4])
  if s.known == 0 then s.forgot = ARGV[6] - 1 end
  for i = 6, #ARGV, 3 do
    s.known = tonumber(ARGV[i])
    redis.call('HSET', KNOWN, ARGV[i], ARGV[i + 2])
    redis.call('HSET', NUMBERS, ARGV[i + 1], ARGV[i])
  end
end
save(log(s))
return { 'ok' }
