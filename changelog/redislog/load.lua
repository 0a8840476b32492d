-- load reads the record of the inventory of a set, and the set. ARGV: from 4 the fields of the
-- set to read. Replies: ok NOW VERSION TERM HEAD FIELD...

local s, no = open()
if not s then return no end

local i = inventory(s)
local answer = { 'ok', text(clock()), i.version, i.term, i.head }
for _, v in ipairs(redis.call('HMGET', SET, unpack(ARGV, 4))) do answer[#answer + 1] = v end
return answer
