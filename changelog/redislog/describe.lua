-- describe replaces the description of a set. ARGV: 4 begin, 5 id of the call, 6 id of the call
-- that wrote the present description or "", 7 title, 8 describedby, 9 changelist, 10 more.
-- Replies: ok. "anew": another call has described the set in the meantime.

local s, no = open(ARGV[4])
if not s then return no end
local by = redis.call('HGET', SET, 'described') or ''
if by ~= ARGV[5] and by ~= ARGV[6] then return { 'anew' } end -- otherwise a late request would restore an old description
redis.call('HSET', SET, 'title', ARGV[7], 'describedby', ARGV[8], 'changelist', ARGV[9], 'described', ARGV[5],
  'more', s.begin .. ' ' .. ARGV[10])
save(s.log)
return { 'ok' }
