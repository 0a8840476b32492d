-- delete removes a set. Two datetimes stay: the one after which a new set with the same name
-- must start, and the latest datetime of any entry under that name if it is later. They differ
-- if an entry is further in the future than the clock skew. sweep removes the entries and keys.
-- ARGV: 4 begin. Replies: ok.

local s, no = open(ARGV[4])
if not s then return no end
room()
local now, upto = clock(), s.head.micros
if upto - now > skew then upto = math.min(upto, math.max(now, tonumber(s.begin))) end
local ever = math.max(s.head.micros, s.was)
if ever > upto then redis.call('HSET', SET, 'left', text(upto) .. '-' .. text(ever)) end
saveOnly('deleted ' .. text(upto))
return { 'ok' }
