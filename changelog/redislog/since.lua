-- since reads what follows a cursor. ARGV: 4 and 5 the cursor's position and
-- datetime, 6 at most so many entries, 7 at most so many bytes, but one block.
--
-- Answers: ok AFTER DIVERGED HEAD (ID BLOCK)...: the place to go on behind, 1
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
local position, entries, bytes, step = after.position, 0, 0, 1
for _, stream in ipairs({ PACKED, LIVE }) do
  local asking = position < s.head.position
  while asking do
    local found = redis.call('XRANGE', stream, text(position + 1) .. '-0', '+', 'COUNT', step)
    for _, b in ipairs(found) do
      local last = parse(b[1])
      local n = last.position - position
      bytes = bytes + #b[2][2]
      if entries > 0 and (entries + n > limit or bytes > most) then return answer end
      answer[#answer + 1] = b[1]
      answer[#answer + 1] = b[2][2]
      position, entries = last.position, entries + n
      if entries >= limit then return answer end
    end
    asking = #found == step and position < s.head.position
    step = math.min(2 * step, 64) -- few at first, as nobody knows how large they are
  end
end
return answer
