-- put writes inventory pages of a set. ARGV: 4 begin, 5 attempt, then see paged: the number and
-- the bytes of each page. Replies: ok. raced: the attempt is over.

local s, no = open(ARGV[4])
if not s then return no end
if inventory(s).attempt ~= ARGV[5] then return { 'raced' } end

-- The first write is a page: if Redis is full, it refuses the page, and the script has
-- changed nothing.
paged(6, function(key, from, to) redis.call('HSET', key, unpack(ARGV, from, to)) end)
return { 'ok' }
