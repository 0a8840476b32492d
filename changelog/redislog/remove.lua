-- remove removes pages of the set's inventory. ARGV: 4 begin, 5 the run of the server in
-- which the record was written that does not need the pages, "" if it does not matter; then
-- see paged: the numbers of the pages. Answers: ok. raced: it is another run. It may have
-- lost that record, and the one before may need the pages.

local s, no = open(ARGV[4])
if not s then return no end
if ARGV[5] ~= '' and ARGV[5] ~= run() then return { 'raced' } end

paged(6, function(key, from, to) redis.call('HDEL', key, unpack(ARGV, from, to)) end)
return { 'ok' }
