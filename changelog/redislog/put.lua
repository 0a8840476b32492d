-- put writes inventory pages of a set. ARGV: 4 begin, 5 term, then see paged: the number and the
-- bytes of each page. Replies: ok. fenced: the record does not have the term.

local s, no = open(ARGV[4])
if not s then return no end
if inventory(s).term ~= ARGV[5] then return { 'fenced' } end

-- The first write is a page: if Redis is full, it refuses the page, and the script has
-- changed nothing.
paged(6, function(key, from, to) redis.call('HSET', key, unpack(ARGV, from, to)) end)
return { 'ok' }
