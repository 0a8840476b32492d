-- pack moves the oldest live blocks to the end of the packed blocks. ARGV: 4 begin, 5 number of
-- live blocks to move; per block its cursor and its checksum; then the number of packed blocks
-- to write; per packed block the number of live blocks that it replaces, and its bytes, or ""
-- to move one live block unchanged. sweep removes the live blocks that were moved. Replies: ok.
-- moved: other blocks are the oldest now.

local s, no = open(ARGV[4])
if not s then return no end

local n = tonumber(ARGV[5])
if s.live.last - s.live.first + 1 < n then return { 'moved' } end
local live = {}
for i = 1, n, 100 do
  for _, block in ipairs(blocks(s.live, s.live.first + i - 1, s.live.first + math.min(n, i + 99) - 1)) do
    live[#live + 1] = block
  end
end
local arg = 6
for _, block in ipairs(live) do
  if write(last(block)) ~= ARGV[arg] or string.sub(block, -4) ~= ARGV[arg + 1] then return { 'moved' } end
  arg = arg + 2
end

room() -- packing frees memory
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
