-- pack moves the oldest live blocks to the end of the packed ones. ARGV: 4 number
-- of live blocks, and of each its cursor and its checksum; then the number of
-- blocks that they become, and of each how many it takes and its bytes, "" where
-- it is moved as it is. What it moved, sweep removes. Answers: ok, or moved when
-- the oldest are not these any more.

local s, no = open()
if not s then return no end

local n = tonumber(ARGV[4])
if s.live.last - s.live.first + 1 < n then return { 'moved' } end
local live = {}
for i = 1, n, 100 do
  for _, block in ipairs(blocks(s.live, s.live.first + i - 1, s.live.first + math.min(n, i + 99) - 1)) do
    live[#live + 1] = block
  end
end
local arg = 5
for _, block in ipairs(live) do
  if write(last(block)) ~= ARGV[arg] or string.sub(block, -4) ~= ARGV[arg + 1] then return { 'moved' } end
  arg = arg + 2
end

local taken = 0
for i = arg + 1, arg + 2 * ARGV[arg], 2 do
  taken = taken + ARGV[i]
  local block = live[taken]
  s.packed.last, s.packed.upto = s.packed.last + 1, (last(block))
  if ARGV[i + 1] ~= '' then block = write(s.packed.upto) .. ' ' .. ARGV[i + 1] end
  redis.call('HSET', PACKED, text(s.packed.last), block)
end
s.live.first = s.live.first + taken
save(log(s))
return { 'ok' }
