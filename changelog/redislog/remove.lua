-- remove removes inventory pages of a set. ARGV: 4 begin, 5 the run of the server in which the
-- record was written that no longer needs the pages, "" if any; then see paged: the numbers of
-- the pages. Replies: ok. raced: the server has another run. It may have lost that record, and
-- the previous record may need the pages.

local s, no = open(ARGV[4])
if not s then return no end
if ARGV[5] ~= '' and ARGV[5] ~= run() then return { 'raced' } end

paged(6, function(key, from, to) redis.call('HDEL', key, unpack(ARGV, from, to)) end)
return { 'ok' }
