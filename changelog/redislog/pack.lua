-- pack moves the oldest live blocks to the end of the packed ones. ARGV: 4 number
-- of live blocks, and of each its ID and its checksum; then the number of blocks
-- that they become, and of each how many it takes and its bytes, "" where it is
-- moved as it is. Answers: ok, or moved when the oldest are not these any more.

local s, no = open()
if not s then return no end

local n = tonumber(ARGV[4])
local live = redis.call('XRANGE', LIVE, '-', '+', 'COUNT', n)
if #live ~= n then return { 'moved' } end
local arg = 5
for _, b in ipairs(live) do
  if b[1] ~= ARGV[arg] or string.sub(b[2][2], -4) ~= ARGV[arg + 1] then return { 'moved' } end
  arg = arg + 2
end

local taken = 0
local groups = tonumber(ARGV[arg])
for i = arg + 1, arg + 2 * groups, 2 do
  taken = taken + ARGV[i]
  local bytes = ARGV[i + 1]
  if bytes == '' then bytes = live[taken][2][2] end
  redis.call('XADD', PACKED, live[taken][1], 'b', bytes)
end
local last = parse(live[taken][1])
redis.call('XTRIM', LIVE, 'MINID', text(last.position + 1) .. '-0')
redis.call('HSET', SET, 'packed', text(last.position))
return { 'ok' }
