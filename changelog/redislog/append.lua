-- append adds publishes. ARGV: 4 begin, 5 id of the call, 6 KeyAge in microseconds, 7 KeyCount,
-- 8 "wait" if the hub waits for replicas, 9 to 11 the arguments of doubtful, 12 number of
-- publishes; then per publish: its key or "", its hash, a key that must not have been used or
-- "", the number of blocks, and per block the number of entries and the bytes. A publish
-- without blocks must not be added: it only gets its earlier result if the set has seen it.
--
-- Replies:
--
--   ok ANSWER             ANSWER is one string, "HEAD FIRST ...". HEAD is the head before the
--                         append. FIRST is the datetime of the first added entry; all added
--                         entries are 1 µs apart. Then, for each publish that was not added,
--                         follow its number from 0 and "again AFTER CURSOR", "reused" or
--                         "refused"
--   cut SIZE POSITION...  a block would cross the boundary of a list: the list size, and the
--                         position before each publish, or -1 if the publish is not added
--   clock NOW HEAD        the clocks differ too much

local s, no = open(ARGV[4])
if not s then return no end

-- again returns an earlier answer. Redis makes a hub wait only for the replication of writes of
-- the hub's own connection. So again writes the log unchanged: then the hub waits until the
-- replicas have that write, and therefore all earlier ones.
local function again(answer)
  if ARGV[8] == 'wait' then
    room()
    save(s.log)
  end
  return { 'ok', answer }
end

if s.call == ARGV[5] then return again(s.answer) end
for _, key in ipairs({ CALLS0, CALLS1 }) do
  local answer = redis.call('HGET', key, ARGV[5])
  if answer then return again(answer) end
end

local now = clock()
local late = { 'clock', text(now), write(s.head) }
if math.abs(now - ARGV[2]) > skew then return late end

-- Collect the changes first. Nothing is written before all checks have passed.
local maxAge, maxCount = tonumber(ARGV[6]), tonumber(ARGV[7])
if doubtful(now, 9) then maxAge = math.huge end
local head = s.head
local micros = math.max(now - 1, head.micros) -- one microsecond before the first entry
local answer = { write(head), text(micros + 1) }
local cut, fits = { 'cut', text(s.size) }, true
local added, keys, seen = {}, {}, {}
local latest
local arg = 13
for i = 1, tonumber(ARGV[12]) do
  local key, hash, unless, count = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], tonumber(ARGV[arg + 3])
  arg = arg + 4
  local old
  local function find(k) return seen[k] or recall(s, now, k, maxAge, maxCount - #keys) end
  if key ~= '' then old = find(key) end
  local same = old and old.hash == hash
  if not old and unless ~= '' then old = find(unless) end
  if old or count == 0 then
    answer[#answer + 1] = i - 1
    answer[#answer + 1] = same and 'again ' .. old.cursors or old and 'reused' or 'refused'
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
    if key ~= '' then
      seen[key] = { hash = hash, cursors = after .. ' ' .. write(head) }
      keys[#keys + 1] = { key = key, known = hash .. seen[key].cursors .. ' ' .. key }
    end
  end
end
if #added > 0 and s.head.micros - now > skew then return late end
if not fits then return cut end
answer = table.concat(answer, ' ')
if #added == 0 then return again(answer) end

-- The first write is a block: if Redis is full, it refuses the block, and the script
-- has changed nothing.
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
s.head, s.latest, s.call, s.answer = head, latest, ARGV[5], answer
save(log(s))
return { 'ok', answer }
