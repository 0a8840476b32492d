-- adopt turns an empty store into an unfinished copy of the memory ARGV[1], or finishes the
-- copy. KEYS: 1 the memory. ARGV: 4 the format of an unfinished copy; to finish it also 5 the
-- format of a memory and 6 the number of the run. Replies: ok FORMAT ID RUN, with the values
-- after the step. Each adoption starts a new run and returns its number. Only the newest run
-- may finish the copy.

local v = redis.call('HMGET', KEYS[1], 'format', 'id', 'run')
local format, id, run = v[1] or ARGV[4], v[2] or ARGV[1], tonumber(v[3] or 0)
if ARGV[5] and not v[2] then return { 'ok', '', '', 0 } end -- Redis was emptied
if format == ARGV[4] and id == ARGV[1] then
  if not ARGV[5] then
    run = run + 1
  elseif run == tonumber(ARGV[6]) then
    format = ARGV[5]
  end
  for _ = 1, 2 do redis.call('HSET', KEYS[1], 'format', format, 'id', id, 'run', run) end -- twice, see lib.lua
end
return { 'ok', format, id, run }
