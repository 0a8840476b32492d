-- since verifies a cursor and reads the entries that follow it. ARGV: 4 and 5 the position and
-- datetime of the cursor, 6 maximum number of entries, 7 maximum number of bytes. It returns at
-- least one block, even if that is larger.
--
-- Replies: ok AFTER DIVERGED HEAD BLOCK...: the cursor after which to continue, 1 if the log
-- has lost entries before the given cursor (else 0), the head, and the blocks, the first of
-- which contains the entry after AFTER. gone.

local s, no = open()
if not s then return no end

local asked = cursor(tonumber(ARGV[4]), tonumber(ARGV[5]))
local limit, most = tonumber(ARGV[6]), tonumber(ARGV[7])

local after, diverged = asked, 0
if not knows(s, asked) then
  -- A cursor up to was may come from a deleted set, whose entries are unknown.
  if asked.micros < s.floor.micros or asked.micros <= s.was then return { 'gone' } end
  after, diverged = before(s, asked), 1
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
  if number > store.last then
    if position ~= s.head.position then damaged('the last block ends at position ' .. text(position) .. ', and the log at ' .. text(s.head.position)) end
    return answer
  end
  -- Read as many blocks as were read so far, or fewer if fewer seem to suffice.
  local need = math.ceil(math.min((limit - entries) * count / entries, (most - bytes) * count / bytes))
  list = blocks(store, number, math.min(store.last, number + math.max(1, math.min(need, count, 64)) - 1))
end
