-- describe replaces a description. ARGV: 4 title, 5 describedby, 6 changelist.
-- Answers: ok.

local s, no = open()
if not s then return no end
redis.call('HSET', SET, 'title', ARGV[4], 'describedby', ARGV[5], 'changelist', ARGV[6])
save(s.log)
return { 'ok' }
