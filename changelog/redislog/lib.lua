-- What the scripts share; it stands before each of them. KEYS are the keys of
-- one set in the order of key.go, ARGV[1] is the memory's identity, ARGV[2] the
-- hub's clock and ARGV[3] the clock skew, both in microseconds. An answer is a
-- word and what belongs to it. Numbers stay below 2^53, so a double is exact.
--
-- What a script writes must stand to be torn. Redis appends it to its file as
-- MULTI, the writes, EXEC. When it is killed meanwhile, the file may end within
-- that, and then many a Redis removes the torn command alone: the writes before
-- it are not applied, nor removed. At the start after the next they are applied,
-- followed by all that came later and knew nothing of them. Therefore:
--
--   1. A step writes and removes only what nobody sees: blocks behind the last,
--      keys behind the newest, and what an earlier step has left.
--   2. Its last write is the set's log, in one field and whole: from there on it
--      is seen. All values are absolute.
--
-- So the first writes of a torn step change nothing that is seen; and if its last
-- one is there too, the next step on the set overwrites it as if it had not been.
-- And as what follows an open MULTI is dropped where no EXEC comes, a step that
-- must not be lost has two writes: Redis 7 makes no MULTI and EXEC for one.

local SET, PACKED, LIVE, KNOWN, NUMBERS, CALLS0, CALLS1 = unpack(KEYS)
local skew = tonumber(ARGV[3])

-- text writes a number without an exponent.
local function text(n) return string.format('%.0f', n) end

local function cursor(position, micros) return { position = position, micros = micros } end

local function parse(s)
  local position, micros = string.match(s, '^(%d+)%-(%d+)$')
  return cursor(tonumber(position), tonumber(micros))
end

local function write(c) return text(c.position) .. '-' .. text(c.micros) end

-- clock is the memory's now.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- damaged ends the script; the client knows the word.
local function damaged(what) error('damaged: ' .. what) end

-- deleted returns what a log says that remained of a deleted set.
local function deleted(log) return string.match(log, '^deleted (%d+)$') end

-- open returns the set, or nil and the answer that there is none. A store has
-- the blocks with the numbers from first to last; those from swept on are not
-- removed; upto is the cursor of the last one's last entry.
local function open()
  local v = redis.call('HMGET', SET, 'memory', 'size', 'log')
  if not v[3] or deleted(v[3]) then return nil, { 'noset' } end
  if v[1] ~= ARGV[1] then return nil, { 'other', v[1] } end
  local n = { string.match(v[3], '^(%d+)%-(%d+) (%d+)%-(%d+) (%S+) (%d+)%-(%d+)' .. string.rep(' (%d+)', 10) .. ',([^,]*),(.*)$') }
  if not n[1] then damaged('the log of the set') end
  local s = { log = v[3], size = tonumber(v[2]), latest = n[5], call = n[18], answer = n[19] }
  for i = 1, 17 do n[i] = tonumber(n[i]) end
  s.floor, s.head = cursor(n[1], n[2]), cursor(n[3], n[4])
  s.packed = { key = PACKED, upto = cursor(n[6], n[7]), swept = n[8], first = n[9], last = n[10] }
  s.live = { key = LIVE, upto = s.head, swept = n[11], first = n[12], last = n[13] }
  s.known, s.forgot, s.turns, s.turned = n[14], n[15], n[16], n[17]
  return s
end

-- log writes the field log.
local function log(s)
  local p, l = s.packed, s.live
  return string.format('%.0f-%.0f %.0f-%.0f %s %.0f-%.0f' .. string.rep(' %.0f', 10) .. ',%s,%s',
    s.floor.position, s.floor.micros, s.head.position, s.head.micros, s.latest, p.upto.position, p.upto.micros,
    p.swept, p.first, p.last, l.swept, l.first, l.last, s.known, s.forgot, s.turns, s.turned, s.call, s.answer)
end

-- save ends a step that wrote something before.
local function save(log) redis.call('HSET', SET, 'log', log) end

-- saveOnly ends a step that writes nothing else.
local function saveOnly(log)
  save(log)
  save(log)
end

-- room lets the other writes of a script pass when Redis is full.
local function room() redis.call('HDEL', SET, 'room') end

-- blocks returns the blocks with some numbers. A block is its last entry's
-- cursor, a space and the bytes (see changelog.Block).
local function blocks(store, first, last)
  local numbers = {}
  for n = first, last do numbers[#numbers + 1] = text(n) end
  local found = redis.call('HMGET', store.key, unpack(numbers))
  for i = 1, #numbers do
    if not found[i] then damaged('block ' .. numbers[i] .. ' is missing in ' .. store.key) end
  end
  return found
end

-- last returns the cursor of a block's last entry, and where the bytes begin.
local function last(block)
  local position, micros, at = string.match(block, '^(%d+)%-(%d+) ()')
  if not at then damaged('a block has no cursor') end
  return cursor(tonumber(position), tonumber(micros)), at
end

-- uvarint reads a number of a block. It returns what follows it, too.
local function uvarint(block, i)
  local n, unit = 0, 1
  while true do
    local c = string.byte(block, i) or damaged('a block is too short')
    i = i + 1
    if c < 128 then return n + c * unit, i end
    n, unit = n + (c - 128) * unit, unit * 128
  end
end

-- search returns the block that has the first entry whose position or micros is
-- not before a goal, which is behind the floor and not behind the head: its store,
-- number, bytes and last cursor. It guesses from where the goal lies between what
-- is known, and halves after each guess that is wrong.
local function search(s, by, goal)
  local store, before = s.packed, s.floor
  if goal > store.upto[by] then store, before = s.live, store.upto end
  local low, high = store.first, store.last
  local below, above = before[by], store.upto[by]
  local found, halve
  while low < high or not found do
    local n = high
    if low < high then
      n = low + math.floor((high - low) * (halve and 0.5 or (goal - below - 1) / (above - below)))
      halve = not halve
    end
    local block = blocks(store, n, n)[1]
    local upto, at = last(block)
    if upto[by] < goal then
      if n >= high then damaged('no block of ' .. store.key .. ' has ' .. by .. ' ' .. text(goal)) end
      low, below = n + 1, upto[by]
    else
      high, above = n, upto[by]
      found = { store = store, number = n, block = block, last = upto }
      if by == 'position' and upto.position - uvarint(block, at + 1) < goal then return found end
    end
  end
  return found
end

-- runs reads the head of a block that was found: a list of the runs, of each the
-- cursor of its first entry and its length.
local function runs(found)
  local block, upto = found.block, found.last
  local _, i = last(block)
  local function number()
    local n
    n, i = uvarint(block, i)
    return n
  end
  i = i + 1
  local position, micros = upto.position - number(), 0
  local list = {}
  for n = 1, number() do
    local count, gap = number(), number()
    micros = micros + gap
    list[n] = cursor(position + 1, micros)
    list[n].count = count
    position, micros = position + count, micros + count - 1
  end
  if position ~= upto.position then damaged('the block that ends at position ' .. text(upto.position)) end
  for _, run in ipairs(list) do run.micros = run.micros + upto.micros - micros end
  return list
end

-- at returns the cursor of the entry at a position from the floor to the head.
local function at(s, position)
  if position == s.floor.position then return s.floor end
  local found = search(s, 'position', position)
  if found.last.position == position then return found.last end
  for _, run in ipairs(runs(found)) do
    local n = position - run.position
    if n >= 0 and n < run.count then return cursor(position, run.micros + n) end
  end
  damaged('the block that ends at position ' .. text(found.last.position) .. ' lacks position ' .. text(position))
end

-- newest returns the cursor of the newest entry that is not later than micros,
-- or the floor's.
local function newest(s, micros)
  if micros <= s.floor.micros then return s.floor end
  if micros >= s.head.micros then return s.head end
  local list = runs(search(s, 'micros', micros + 1))
  local found
  for _, run in ipairs(list) do
    if run.micros > micros then break end
    local n = math.min(run.count - 1, micros - run.micros)
    found = cursor(run.position + n, run.micros + n)
  end
  return found or at(s, list[1].position - 1)
end

-- An answer to an append is remembered by the id of the call: the newest in the
-- log, so that it is there if and only if the append is; the older ones in calls,
-- which the next append tells.
local function calls(s) return s.turns % 2 == 0 and CALLS0 or CALLS1 end

-- turn drops the older calls, so that each is kept for 2 to 4 times the clock skew
-- at a constant cost. That is long enough: a request that comes later than that
-- after another with the same clock in it is refused by one of them.
local function turn(s, now)
  if now - s.turned <= 2 * skew then return end
  s.turns, s.turned = s.turns + 1, now
  redis.call('UNLINK', calls(s))
end

-- known returns the publish that a key has the number of: the hash of its
-- content, the cursors before it and of its last entry, and its key.
local function known(number)
  local v = redis.call('HGET', KNOWN, number)
  if not v then return nil end
  local after, upto, key = string.match(string.sub(v, 33), '^(%S+) (%S+) (.*)$')
  return { hash = string.sub(v, 1, 32), place = after .. ' ' .. upto, micros = parse(upto).micros, key = key }
end

-- recall returns what is known by a key. A torn append may have given it a number
-- that is not used yet, or is another's.
local function recall(s, now, key, maxAge, maxCount)
  local number = tonumber(redis.call('HGET', NUMBERS, key))
  if not number or number > s.known or s.known - number >= maxCount then return nil end
  local k = known(text(number))
  if k and k.key == key and now - k.micros <= maxAge then return k end
end
