-- oldest reads the oldest live blocks. ARGV: 4 maximum number of blocks, 5 maximum number of
-- bytes. It returns at least one block, even if that is larger. Replies: ok SIZE POSITION BEGIN
-- BLOCK...: the list size, the position before the first of the blocks, the begin of the log,
-- and the blocks.

local s, no = open()
if not s then return no end

local upto, most = math.min(s.live.last, s.live.first + ARGV[4] - 1), tonumber(ARGV[5])
local answer = { 'ok', s.size, s.packed.upto.position, s.begin }
local n, bytes, step = s.live.first, 0, 1
while n <= upto do
  for _, block in ipairs(blocks(s.live, n, math.min(upto, n + step - 1))) do
    bytes = bytes + #block
    if bytes > most and #answer > 4 then return answer end
    answer[#answer + 1] = block
    n = n + 1
  end
  step = math.min(2 * step, 64)
end
return answer
