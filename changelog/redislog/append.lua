-- append adds publishes. ARGV: 4 id of the call, 5 KeyAge in microseconds,
-- 6 KeyCount, 7 "wait" when replicas are waited for, 8 number of publishes; then
-- per publish: "kept", "brief" or "" for its key, the key, the hash, the number
-- of blocks, and per block the number of entries and the bytes.
--
-- Answers: ok ANSWER: "HEAD FIRST" where HEAD is the head before and FIRST the
-- datetime of the first entry that was added (all that were added follow each
-- other by 1 µs), then for each publish that was not added its number and "again
-- AFTER CURSOR" or "reused". cut SIZE POSITION...: blocks would cross a list's
-- boundary; the position before each publish, -1 for one that is not added.
-- clock NOW HEAD.

local s, no = open()
if not s then return no end

-- again answers once more. Who waits for replicas waits for what its connection
-- wrote: a write of the same makes it wait for all before.
local function again(answer)
  if ARGV[7] == 'wait' then save(s.log) end
  return { 'ok', answer }
end

if s.call == ARGV[4] then return again(s.answer) end
for _, key in ipairs({ CALLS0, CALLS1 }) do
  local answer = redis.call('HGET', key, ARGV[4])
  if answer then return again(answer) end
end

local now = clock()
if math.abs(now - ARGV[2]) > skew or s.head.micros - now > skew then
  return { 'clock', text(now), write(s.head) }
end

-- First find out what there is to do; nothing is written until all is well.
local maxAge, maxCount = tonumber(ARGV[5]), tonumber(ARGV[6])
local head = s.head
local micros = math.max(now - 1, head.micros) -- of the entry before, had it come just now
local answer = { write(head), text(micros + 1) }
local cut, fits = { 'cut', text(s.size) }, true
local added, keys, seen = {}, {}, {}
local latest
local arg = 9
for i = 1, tonumber(ARGV[8]) do
  local kind, key, hash, count = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], tonumber(ARGV[arg + 3])
  arg = arg + 4
  local old
  if kind ~= '' then old = seen[key] or kind == 'kept' and recall(s, now, key, maxAge, maxCount - #keys) end
  if old then
    answer[#answer + 1] = i - 1
    answer[#answer + 1] = old.hash == hash and 'again ' .. old.place or 'reused'
    cut[#cut + 1] = '-1'
    arg = arg + 2 * count
  else
    local after = write(head)
    local position = head.position
    cut[#cut + 1] = text(position)
    for _ = 1, count do
      local n = tonumber(ARGV[arg])
      if position % s.size + n > s.size then fits = false end
      position, micros = position + n, micros + n
      added[#added + 1] = write(cursor(position, micros)) .. ' ' .. ARGV[arg + 1]
      arg = arg + 2
    end
    head = cursor(position, micros)
    latest = after
    if kind ~= '' then seen[key] = { hash = hash, place = after .. ' ' .. write(head) } end
    if kind == 'kept' then
      keys[#keys + 1] = { key = key, known = hash .. seen[key].place .. ' ' .. key }
    end
  end
end
if not fits then return cut end
answer = table.concat(answer, ' ')
if #added == 0 then return again(answer) end

-- A block comes first: it is refused when Redis is full.
for _, block in ipairs(added) do
  s.live.last = s.live.last + 1
  redis.call('HSET', LIVE, text(s.live.last), block)
end
for _, k in ipairs(keys) do
  s.known = s.known + 1
  redis.call('HSET', KNOWN, text(s.known), k.known)
  redis.call('HSET', NUMBERS, k.key, text(s.known))
end
turn(s, now)
if s.call ~= '' then redis.call('HSET', calls(s), s.call, s.answer) end
s.head, s.latest, s.call, s.answer = head, latest, ARGV[4], answer
save(log(s))
return { 'ok', answer }
