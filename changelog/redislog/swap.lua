-- swap replaces the record of the inventory of a set. ARGV: 4 begin, 5 the version to replace,
-- 6 the new version, an even random number, 7 term, 8 and 9 position and datetime of the
-- cursor that the log must have, or 0 and 0, 10 head. If the version to replace is 0, KEYS also
-- has all keys of pages, and the pages of an earlier log with the same name are removed.
--
-- Replies: ok. raced: the record has another version. log: the log does not have the cursor.

local s, no = open(ARGV[4])
if not s then return no end

local i = inventory(s)
if i.stored == ARGV[6] then return { 'ok' } end -- an earlier call did it
if i.version ~= ARGV[5] then return { 'raced' } end
local at = cursor(tonumber(ARGV[8]), tonumber(ARGV[9]))
if (at.position > 0 or at.micros > 0) and not knows(s, at) then return { 'log' } end

room() -- so that inventories can free pages in a full Redis
if i.version == '0' and #KEYS > 7 then redis.call('UNLINK', unpack(KEYS, 8)) end
local began = ARGV[7] == i.term and i.run or run()
local record = table.concat({ s.begin, ARGV[6], ARGV[7], began, ARGV[10] }, ' ')
for _ = 1, 2 do redis.call('HSET', SET, 'inventory', record) end -- twice, see lib.lua
return { 'ok' }
