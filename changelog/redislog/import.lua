-- import executes one step of copying a set. ARGV: 4 number of the step, higher than in
-- all earlier steps and runs, 5 the step:
--
--   begin   creates the set without entries, keys and inventory, and removes data of an earlier
--           run. 6 list size, 7 title, 8 describedby, 9 changelist, 10 begin, 11 floor,
--           12 latest, 13 was, 14 more
--   add     adds blocks. 6 the head before, 7 the head after, then the blocks as stored
--   keys    adds keys. Per key: its number, the key, and its record
--   delete  deletes the set, and removes data of an earlier run. 6 and 7 the datetimes that
--           stay, see delete.lua
--   done    changes nothing. It is the last step on each set, so that no other step can arrive
--           late, after a hub has changed the set
--
-- All blocks of a copy are packed. Each step can be repeated. Replies: ok. busy: the step is
-- late, because a later step was executed or a later run is active. head HEAD: the set does not
-- end where the step expects.

if tonumber(redis.call('HGET', SET, 'run') or 0) > tonumber(ARGV[4]) then return { 'busy' } end
local step = ARGV[5]
redis.call('HSET', SET, 'run', ARGV[4])
if step == 'done' then return { 'ok' } end

if step == 'delete' then
  redis.call('UNLINK', unpack(KEYS, 2))
  redis.call('HSET', SET, 'left', ARGV[6] .. '-' .. ARGV[7])
  saveOnly('deleted ' .. ARGV[6])
  return { 'ok' }
end

if step == 'begin' then
  local floor = parse(ARGV[11])
  redis.call('UNLINK', unpack(KEYS, 2))
  redis.call('HDEL', SET, 'inventory')
  redis.call('HSET', SET, 'memory', ARGV[1], 'size', ARGV[6], 'title', ARGV[7], 'describedby', ARGV[8],
    'changelist', ARGV[9], 'begin', ARGV[10], 'was', ARGV[13],
    'more', ARGV[10] .. ' ' .. ARGV[14])
  save(log({
    floor = floor, head = floor, latest = ARGV[12], packed = { swept = 1, first = 1, last = 0, upto = floor },
    live = { swept = 1, first = 1, last = 0 }, known = 0, forgot = 0, turns = 0, turned = clock(), call = '', answer = '',
  }))
  return { 'ok' }
end

local s, no = open()
if not s then return no end

if step == 'add' then
  if write(s.head) == ARGV[7] then return { 'ok' } end -- an earlier attempt did it
  if write(s.head) ~= ARGV[6] then return { 'head', write(s.head) } end
  for i = 8, #ARGV do
    s.packed.last = s.packed.last + 1
    redis.call('HSET', PACKED, text(s.packed.last), ARGV[i])
  end
  s.head = parse(ARGV[7])
  s.packed.upto = s.head
else
  if s.known >= tonumber(ARGV[#ARGV - 2]) then return { 'ok' } end -- an earlier attempt did it
  if s.known == 0 then s.forgot = ARGV[6] - 1 end
  for i = 6, #ARGV, 3 do
    s.known = tonumber(ARGV[i])
    redis.call('HSET', KNOWN, ARGV[i], ARGV[i + 2])
    redis.call('HSET', NUMBERS, ARGV[i + 1], ARGV[i])
  end
end
save(log(s))
return { 'ok' }
