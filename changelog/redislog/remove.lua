-- remove removes inventory pages of a set. ARGV: 4 begin, 5 term, then see paged: the numbers of the
-- pages. Replies: ok. fenced: the record does not have the term.

local s, no = open(ARGV[4])
if not s then return no end
if inventory(s).term ~= ARGV[5] then return { 'fenced' } end

paged(6, function(key, from, to) redis.call('HDEL', key, unpack(ARGV, from, to)) end)
return { 'ok' }
