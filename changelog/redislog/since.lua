-- since reads what follows a cursor. ARGV: 4 and 5 the cursor's position and
-- datetime, 6 at most so many entries, 7 at most so many bytes, but one block.
--
-- Answers: ok AFTER DIVERGED HEAD BLOCK...: the place to go on behind, 1
-- where the log has lost its tail, and the blocks from the one that holds the
-- next entry. gone.

local s, no = open()
if not s then return no end

local asked = cursor(tonumber(ARGV[4]), tonumber(ARGV[5]))
local limit, most = tonumber(ARGV[6]), tonumber(ARGV[7])

local function same(a, b) return a.position == b.position and a.micros == b.micros end

local function knows(c)
  if same(c, s.floor) or same(c, s.head) then return true end
  if same(c, cursor(0, 0)) and s.floor.position == 0 then return true end
  if c.position <= s.floor.position or c.position > s.head.position then return false end
  return same(c, at(s, c.position))
end

local after, diverged = asked, 0
if not knows(asked) then
  if asked.micros < s.floor.micros then return { 'gone' } end
  diverged = 1
  after = newest(s, asked.micros - skew)
  if after.position >= asked.position then
    after = at(s, math.max(asked.position, s.floor.position + 1) - 1)
  end
end

local answer = { 'ok', write(after), diverged, write(s.head) }
if after.position == s.head.position then return answer end
local found = search(s, 'position', after.position + 1)
local store, number, list = found.store, found.number, { found.block }
local position, entries, bytes, count = after.position, 0, 0, 0
while true do
  for _, block in ipairs(list) do
    local upto = last(block).position
    local n = upto - position
    bytes = bytes + #block
    if count > 0 and (entries + n > limit or bytes > most) then return answer end
    answer[#answer + 1] = block
    position, entries, count = upto, entries + n, count + 1
    if entries >= limit then return answer end
  end
  number = number + #list
  if number > store.last and store == s.packed then store, number = s.live, s.live.first end
  if number > store.last then return answer end
  -- As many as there were, or as seem to be needed.
  local need = math.ceil(math.min((limit - entries) * count / entries, (most - bytes) * count / bytes))
  list = blocks(store, number, math.min(store.last, number + math.max(1, math.min(need, count, 64)) - 1))
end
