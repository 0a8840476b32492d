-- lib is prepended to each script. KEYS are the keys of one set in the order of key.go, ARGV[1]
-- is the memory's identity, ARGV[2] the hub's clock and ARGV[3] the clock skew, both in
-- microseconds. A reply is a word, followed by values. Numbers are below 2^53, so a double
-- represents them exactly.
--
-- A request may arrive late, long after the hub gave it up. In the meantime, others may have
-- deleted the set, created it again and published to it. So a script that changes a set gets as
-- ARGV[4] the begin of the intended log, and does nothing to any other log with that name. Two
-- logs with the same name never have the same begin. sweep does not need it, because it removes
-- only data that is in no log.
--
-- A script must do no harm if its writes are torn. Redis appends the writes of a script to its
-- append-only file as MULTI, the writes, EXEC. If Redis is killed at that moment, the file may
-- end in the middle. Many versions of Redis then remove only the last, torn command when they
-- start. The writes before it stay in the file, but are not applied. They are applied at the
-- next start but one, together with all later writes, which were made without them. Therefore:
--
--   1. A step writes and removes only data that no reader can see yet: blocks after the last
--      block, keys after the newest key, and data left over by an earlier step.
--   2. The last write of a step is the set's log, whole and in one field. This write makes the
--      step visible. All values are absolute.
--
-- So the first writes of a torn step change nothing visible. If the last write is applied too,
-- the next step on the set overwrites it, as if it had never existed. One hazard remains:
-- commands that follow an open MULTI are dropped if no EXEC follows, and Redis 7 writes no
-- MULTI and EXEC for a script with a single write. So a step that must not be lost makes two
-- writes.

local SET, PACKED, LIVE, KNOWN, NUMBERS, CALLS0, CALLS1 = unpack(KEYS)
local skew = tonumber(ARGV[3])

-- text formats a number without an exponent.
local function text(n) return string.format('%.0f', n) end

local function cursor(position, micros) return { position = position, micros = micros } end

local function parse(s)
  local position, micros = string.match(s, '^(%d+)%-(%d+)$')
  return cursor(tonumber(position), tonumber(micros))
end

local function write(c) return text(c.position) .. '-' .. text(c.micros) end

-- clock returns the time of Redis's clock in microseconds since 1970.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- doubtful reports whether the clock is in doubt at the time now: after ARGV[i], or from ARGV[i
-- + 1] until before ARGV[i + 2]. Tick has recorded these on the memory's key, which may be on
-- another server than the set.
local function doubtful(now, i)
  return now > tonumber(ARGV[i]) or now >= tonumber(ARGV[i + 1]) and now < tonumber(ARGV[i + 2])
end

-- damaged ends the script with an error. The client searches for "damaged: ".
local function damaged(what) error('damaged: ' .. what) end

-- deleted returns the datetime in the log of a deleted set as a string, or nil if the set is
-- not deleted.
local function deleted(log) return string.match(log, '^deleted (%d+)$') end

-- open returns the set, or nil and the reply that it does not exist. If begin is given and the
-- log has another begin, the reply is "anew": the set was created again after the hub read it.
--
-- The set has two stores of blocks, packed and live. A store has the blocks with the numbers
-- from first to last. The blocks from swept to first - 1 are left over until sweep removes
-- them. upto is the cursor of the last entry of the last block, and ends has the cursors of the
-- last entries of the blocks that search has examined, by number.
local function open(begin)
  local v = redis.call('HMGET', SET, 'memory', 'size', 'log', 'begin', 'was')
  if not v[3] or deleted(v[3]) then return nil, { 'noset' } end
  if v[1] ~= ARGV[1] then return nil, { 'other', v[1] } end
  if begin and begin ~= v[4] then return nil, { 'anew' } end
  local n = { string.match(v[3], '^(%d+)%-(%d+) (%d+)%-(%d+) (%S+) (%d+)%-(%d+)' .. string.rep(' (%d+)', 10) .. ',([^,]*),(.*)$') }
  if not n[1] then damaged('the log of the set') end
  local s = { log = v[3], size = tonumber(v[2]), begin = v[4], was = tonumber(v[5] or 0), latest = n[5], call = n[18], answer = n[19] }
  for i = 1, 17 do n[i] = tonumber(n[i]) end
  s.floor, s.head = cursor(n[1], n[2]), cursor(n[3], n[4])
  s.packed = { key = PACKED, upto = cursor(n[6], n[7]), swept = n[8], first = n[9], last = n[10], ends = {} }
  s.live = { key = LIVE, upto = s.head, swept = n[11], first = n[12], last = n[13], ends = {} }
  s.known, s.forgot, s.turns, s.turned = n[14], n[15], n[16], n[17]
  return s
end

-- log returns the value of the field log.
local function log(s)
  local p, l = s.packed, s.live
  return string.format('%.0f-%.0f %.0f-%.0f %s %.0f-%.0f' .. string.rep(' %.0f', 10) .. ',%s,%s',
    s.floor.position, s.floor.micros, s.head.position, s.head.micros, s.latest, p.upto.position, p.upto.micros,
    p.swept, p.first, p.last, l.swept, l.first, l.last, s.known, s.forgot, s.turns, s.turned, s.call, s.answer)
end

-- save ends a step that has already made another write.
local function save(log) redis.call('HSET', SET, 'log', log) end

-- saveOnly ends a step that makes no other write. It writes twice, see above.
local function saveOnly(log)
  save(log)
  save(log)
end

-- room makes Redis accept the writes of a script although it is full. Redis checks its memory
-- only before the first write, and HDEL needs no memory.
local function room() redis.call('HDEL', SET, 'room') end

-- blocks returns the blocks of a store with the numbers from first to last. A block is stored
-- as the cursor of its last entry, a space, and the bytes (see changelog.Block).
local function blocks(store, first, last)
  local numbers = {}
  for n = first, last do numbers[#numbers + 1] = text(n) end
  local found = redis.call('HMGET', store.key, unpack(numbers))
  for i = 1, #numbers do
    if not found[i] then damaged('block ' .. numbers[i] .. ' is missing in ' .. store.key) end
  end
  return found
end

-- last returns the cursor of a block's last entry, and the index at which the bytes start.
local function last(block)
  local position, micros, at = string.match(block, '^(%d+)%-(%d+) ()')
  if not at then damaged('a block has no cursor') end
  return cursor(tonumber(position), tonumber(micros)), at
end

-- uvarint decodes the number at index i of a block. It also returns the index after it.
local function uvarint(block, i)
  local n, unit = 0, 1
  while true do
    local c = string.byte(block, i) or damaged('a block is too short')
    i = i + 1
    if c < 128 then return n + c * unit, i end
    n, unit = n + (c - 128) * unit, unit * 128
  end
end

-- count returns the number of entries in the header of a block. at is the index at which its
-- bytes start.
local function count(block, at) return (uvarint(block, at + 1)) end

-- follows returns a block found by search, after checking that it starts where the previous
-- block ends. The checksum of a block does not cover its cursor, so without this check a
-- damaged cursor could move entries to other positions. by and goal are the arguments of
-- search: the previous block must not contain the entry that was searched for.
local function follows(s, found, by, goal)
  local store, n = found.store, found.number - 1
  local before = store == s.live and s.packed.upto or s.floor
  if n >= store.first then before = store.ends[n] or last(blocks(store, n, n)[1]) end
  if found.last.position - found.count ~= before.position or before[by] >= goal then
    damaged('the block that ends at position ' .. text(found.last.position) .. ' does not start after position ' .. text(before.position))
  end
  return found
end

-- search returns the block with the first entry whose position (or micros, depending on by) is
-- at least goal. goal is after the floor and not after the head. The result has the block's
-- store, number, bytes, last cursor and count of entries. search guesses the block's number by
-- interpolation, and bisects after each wrong guess.
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
    store.ends[n] = upto
    if upto[by] < goal then
      if n >= high then damaged('no block of ' .. store.key .. ' has ' .. by .. ' ' .. text(goal)) end
      low, below = n + 1, upto[by]
    else
      high, above = n, upto[by]
      found = { store = store, number = n, block = block, last = upto, count = count(block, at) }
      if by == 'position' and upto.position - found.count < goal then break end
    end
  end
  return follows(s, found, by, goal)
end

-- run returns the id of the run of this server, or - if it is unknown. A restarted server has
-- another run, and so has a server that replaces another.
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

-- at returns the cursor of the entry at a position, which must be from the floor to the head.
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

-- newest returns the cursor of the newest entry that is not later than micros, or the floor if
-- the log has no such entry.
local function newest(s, micros)
  if micros <= s.floor.micros then return s.floor end
  if micros >= s.head.micros then return s.head end
  local block = search(s, 'micros', micros + 1)
  local list = runs(block)
  local found
  for _, run in ipairs(list) do
    if run.micros > micros then break end
    local n = math.min(run.count - 1, micros - run.micros)
    found = cursor(run.position + n, run.micros + n)
  end
  return found or at(s, list[1].position - 1)
end

local function same(a, b) return a.position == b.position and a.micros == b.micros end

-- knows reports whether c is a cursor of the log.
local function knows(s, c)
  if same(c, s.floor) or same(c, s.head) then return true end
  if same(c, cursor(0, 0)) and s.floor.position == 0 then return true end
  if c.position <= s.floor.position or c.position > s.head.position then return false end
  return same(c, at(s, c.position))
end

-- before returns the cursor after which to continue if the log has lost the cursor lost; see
-- rule 2 of changelog.Log.Since.
local function before(s, lost)
  local c = newest(s, lost.micros - skew)
  if c.position < lost.position then return c end
  return at(s, math.max(lost.position, s.floor.position + 1) - 1)
end

-- The set remembers the answer to each append by the id of the call. The newest answer is in
-- the log, so it exists if and only if the append does. The next append moves that answer to
-- one of two hashes; calls returns the key of the active one.
local function calls(s) return s.turns % 2 == 0 and CALLS0 or CALLS1 end

-- turn empties the hash with the older answers and makes it active, once every 2 clock skews.
-- So an answer is stored for 2 to 4 clock skews. That is long enough: all requests of a call
-- have the same time of the hub's clock, and append refuses a time that differs from Redis's by
-- more than the clock skew. So two accepted requests of one call are at most 2 clock skews
-- apart.
local function turn(s, now)
  if s.turned - now > skew then s.turned = now end -- the clock was ahead and was set back
  if now - s.turned <= 2 * skew then return end
  s.turns, s.turned = s.turns + 1, now
  redis.call('UNLINK', calls(s))
end

-- known returns the record of a publish with an idempotency key, by the number of the key: the
-- hash of its content, its cursors as one string (before its first entry, and of its last
-- entry), its datetime and its key.
local function known(number)
  local v = redis.call('HGET', KNOWN, number)
  if not v then return nil end
  local after, upto, key = string.match(string.sub(v, 33), '^(%d+%-%d+) (%d+%-%d+) (.*)$')
  if not after then damaged('the record of key ' .. number) end
  return { hash = string.sub(v, 1, 32), cursors = after .. ' ' .. upto, micros = parse(upto).micros, key = key }
end

-- recall returns the record of the publish with a key, unless it has expired. A torn append may
-- have given the key a number that is not in use yet, or that belongs to another key now, so
-- recall compares both.
local function recall(s, now, key, maxAge, maxCount)
  local number = tonumber(redis.call('HGET', NUMBERS, key))
  if not number or number > s.known or s.known - number >= maxCount then return nil end
  local k = known(text(number))
  if k and k.key == key and now - k.micros <= maxAge then return k end
end

-- run returns the id of the run of this server, - if it is not known. A server that was
-- restarted, and one that takes the place of another, has another run.
local function run()
  local info = redis.pcall('INFO', 'server') -- the user may lack the permission
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or '-'
end

-- inventory returns the record of the set's inventory; see key.go. If there is none for this
-- log, its version is 0.
--
-- A restart or a failover may lose the last writes: pages whose Put was acknowledged, while the
-- record with the term of the writer still exists. So a term belongs to one run of one server. In
-- another run, there is no term and the version differs. Then a writer from the old run can neither
-- write nor remove pages, and can write no record that needs its lost pages.
local function inventory(s)
  local stored = redis.call('HGET', SET, 'inventory') or ''
  local begin, version, term, at, head = string.match(stored, '^(%d+) (%d+) (%d+) (%S+) (.*)$')
  if stored ~= '' and not begin then damaged('the record of the inventory') end
  if begin ~= s.begin then return { stored = '0', version = '0', term = '0', run = '-', head = '' } end
  local i = { stored = version, version = version, term = term, run = at, head = head }
  if term ~= '0' and at ~= run() then i.version, i.term = text(version + 1), '0' end
  return i
end

-- paged calls what for each key of pages in KEYS, with the key and the first and last index of
-- its arguments in ARGV. They follow their count, which is at index arg for the first key.
local function paged(arg, what)
  for k = 8, #KEYS do
    local count = tonumber(ARGV[arg])
    what(KEYS[k], arg + 1, arg + count)
    arg = arg + 1 + count
  end
end
