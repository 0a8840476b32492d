-- delete removes a set. Of it remains the datetime of its head, so that a set
-- made again under its name begins later. Answers: ok.

local s, no = open()
if not s then return no end
redis.call('UNLINK', SET, PACKED, LIVE, KNOWN, AGES, CALLS, CALLED) -- first, for it is possible when Redis is full
redis.call('SET', WAS, text(s.head.micros))
return { 'ok' }
