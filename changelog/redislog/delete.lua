-- delete removes a set. Of it remains the datetime of its head, so that a set
-- made again under its name begins later. What it held, sweep removes. Answers: ok.

local s, no = open()
if not s then return no end
room()
saveOnly('deleted ' .. text(s.head.micros))
return { 'ok' }
