-- delete removes a set. Two datetimes stay: the one that a new set of the same name must
-- begin after, and, if it is later, the latest that any entry of the name ever had. They
-- differ if an entry lies further in the future than the clock skew. The entries and keys
-- are removed by sweep. ARGV: 4 begin. Answers: ok.

local s, no = open(ARGV[4])
if not s then return no end
room()
local now, upto = clock(), s.head.micros
if upto - now > skew then upto = math.min(upto, math.max(now, tonumber(s.begin))) end
local ever = math.max(s.head.micros, s.was)
if ever > upto then redis.call('HSET', SET, 'left', text(upto) .. '-' .. text(ever)) end
saveOnly('deleted ' .. text(upto))
return { 'ok' }
