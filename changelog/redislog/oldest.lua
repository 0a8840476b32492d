-- oldest reads the oldest live blocks. ARGV: 4 at most so many, 5 at most so many
-- bytes. Answers: ok SIZE POSITION (ID BLOCK)...: the list size, the position
-- before the first of them, and the blocks.

local s, no = open()
if not s then return no end

local count, most = tonumber(ARGV[4]), tonumber(ARGV[5])
local answer = { 'ok', s.size, math.max(s.packed, s.floor.position) }
local from, bytes, step = '-', 0, 1
while count > 0 do
  local found = redis.call('XRANGE', LIVE, from, '+', 'COUNT', math.min(step, count))
  for _, b in ipairs(found) do
    bytes = bytes + #b[2][2]
    if bytes > most and #answer > 3 then return answer end
    answer[#answer + 1] = b[1]
    answer[#answer + 1] = b[2][2]
    from = '(' .. b[1]
  end
  if #found < math.min(step, count) then break end
  count = count - #found
  step = math.min(2 * step, 64)
end
return answer
