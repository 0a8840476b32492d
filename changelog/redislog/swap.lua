-- swap replaces the record of the set's inventory. ARGV: 4 begin, 5 the version that is to
-- be replaced, 6 the version that it gets, an even random number, 7 attempt, 8 and 9
-- position and datetime of the cursor that the log must hold, 0 and 0 for none, 10 head.
-- KEYS has all keys of pages if the version to replace is 0: then the pages that an earlier
-- log of the name has left are removed.
--
-- Answers: ok RUN. raced: the record is another one. log: the log does not hold the cursor.

local s, no = open(ARGV[4])
if not s then return no end

local i, here = inventory(s), run()
if i.kept == ARGV[6] then return { 'ok', here } end -- an earlier try did it
if i.version ~= ARGV[5] then return { 'raced' } end
local at = cursor(tonumber(ARGV[8]), tonumber(ARGV[9]))
if (at.position > 0 or at.micros > 0) and not knows(s, at) then return { 'log' } end

room() -- so that pages can be removed from a Redis that is full
if i.version == '0' and #KEYS > 7 then redis.call('UNLINK', unpack(KEYS, 8)) end
local began = ARGV[7] == i.attempt and i.run or here
local record = table.concat({ s.begin, ARGV[6], ARGV[7], began, ARGV[10] }, ' ')
for _ = 1, 2 do redis.call('HSET', SET, 'inventory', record) end -- twice, see above
return { 'ok', here }
