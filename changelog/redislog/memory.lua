-- memory makes the memory, unless there is one. KEYS: 1 the memory. ARGV:
-- 4 format, 5 "check" to try whether Redis takes a write. Answers: ok FORMAT ID
-- MADE NOW, where MADE is 1 if there was none.

local v = redis.call('HMGET', KEYS[1], 'format', 'id')
local made = 0
if not v[2] then
  made, v = 1, { ARGV[4], ARGV[1] }
  for _ = 1, 2 do redis.call('HSET', KEYS[1], 'format', v[1], 'id', v[2]) end -- twice, see lib.lua
end
if ARGV[5] == 'check' then redis.call('HSET', KEYS[1], 'checked', ARGV[2]) end
return { 'ok', v[1] or '', v[2], made, clock() }
