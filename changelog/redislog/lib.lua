-- What the scripts share; it stands before each of them. KEYS are the keys of
-- one set in the order of key.go, ARGV[1] is the memory's identity, ARGV[2] the
-- hub's clock and ARGV[3] the clock skew, both in microseconds. An answer is a
-- word and what belongs to it. Numbers stay below 2^53, so a double is exact.

local SET, PACKED, LIVE, KNOWN, AGES, CALLS, CALLED, WAS = unpack(KEYS)
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

-- open returns the set, or nil and the answer that there is none.
local function open()
  local v = redis.call('HMGET', SET, 'memory', 'size', 'floor', 'head', 'known', 'packed', 'turned')
  if not v[1] then return nil, { 'noset' } end
  if v[1] ~= ARGV[1] then return nil, { 'other', v[1] } end
  return {
    size = tonumber(v[2]), floor = parse(v[3]), head = parse(v[4]),
    known = tonumber(v[5]), packed = tonumber(v[6]), turned = tonumber(v[7]),
  }
end

-- damaged ends the script; the client knows the word.
local function damaged(what) error('damaged: ' .. what) end

-- block returns the block that holds a position, which is in the log: the
-- cursor of its last entry, and its bytes.
local function block(position)
  for _, stream in ipairs({ PACKED, LIVE }) do
    local found = redis.call('XRANGE', stream, text(position) .. '-0', '+', 'COUNT', 1)[1]
    if found then return parse(found[1]), found[2][2] end
  end
  damaged('no block holds position ' .. text(position))
end

-- runs reads the head of a block (see changelog.Block): a list of the runs, of
-- each the cursor of its first entry and its length.
local function runs(last, bytes)
  local i = 2
  local function uvarint()
    local n, unit = 0, 1
    while true do
      local c = string.byte(bytes, i) or damaged('the block that ends at position ' .. text(last.position))
      i = i + 1
      if c < 128 then return n + c * unit end
      n, unit = n + (c - 128) * unit, unit * 128
    end
  end
  local position, micros = last.position - uvarint(), 0
  local list = {}
  for n = 1, uvarint() do
    local count, gap = uvarint(), uvarint()
    micros = micros + gap
    list[n] = cursor(position + 1, micros)
    list[n].count = count
    position, micros = position + count, micros + count - 1
  end
  if position ~= last.position then damaged('the block that ends at position ' .. text(last.position)) end
  for _, run in ipairs(list) do run.micros = run.micros + last.micros - micros end
  return list
end

-- at returns the cursor of the entry at a position from the floor to the head.
local function at(s, position)
  if position == s.floor.position then return s.floor end
  local last, bytes = block(position)
  if last.position == position then return last end
  for _, run in ipairs(runs(last, bytes)) do
    local n = position - run.position
    if n >= 0 and n < run.count then return cursor(position, run.micros + n) end
  end
  damaged('the block that ends at position ' .. text(last.position) .. ' lacks position ' .. text(position))
end

-- newest returns the cursor of the newest entry that is not later than micros,
-- or the floor's. It halves the positions between the floor and the head.
local function newest(s, micros)
  local low, high = s.floor, s.head
  if high.micros <= micros then return high end
  while low.micros <= micros do -- and micros < high.micros
    local middle = high.position - math.floor((high.position - low.position) / 2)
    local last, bytes = block(middle)
    if last.micros <= micros then
      low = last
    else
      local found
      local list = runs(last, bytes)
      for _, run in ipairs(list) do
        if run.micros > micros then break end
        local n = math.min(run.count - 1, micros - run.micros)
        found = cursor(run.position + n, run.micros + n)
      end
      if found then return found end
      local before = list[1].position - 1
      if before <= low.position then return low end
      high = (block(before)) -- its last entry is at that position
      if high.micros <= micros then return high end
    end
  end
  return low
end

-- An answer to an append is remembered in CALLS, later in CALLED. turn drops the
-- older ones, so that each is kept for 2 to 4 times the clock skew at a constant
-- cost. That is long enough: a request that comes later than that after another
-- with the same clock in it is refused by one of them.
local function turn(s, now)
  if now - s.turned <= 2 * skew then return end
  redis.call('UNLINK', CALLED)
  if redis.call('EXISTS', CALLS) == 1 then redis.call('RENAME', CALLS, CALLED) end
  redis.call('HSET', SET, 'turned', text(now))
end

-- A known publish is the hash of its content, then its number among the set's
-- keys, the cursor before it and its own.
local function recall(s, now, key, maxAge, maxCount)
  local v = redis.call('HGET', KNOWN, key)
  if not v then return nil end
  local number, after, last = string.match(string.sub(v, 33), '^(%d+) (%S+) (%S+)$')
  if s.known - number >= maxCount or now - parse(last).micros > maxAge then return nil end
  return { hash = string.sub(v, 1, 32), place = after .. ' ' .. last }
end
