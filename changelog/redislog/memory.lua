-- memory creates the memory if it does not exist, and maintains its secret. KEYS: 1 the memory.
-- ARGV: 4 format, 5 "check" to try whether Redis accepts a write, 6 a new secret. Replies: ok
-- FORMAT ID MADE NOW SECRET AT DOUBTED, where MADE is 1 if the memory is new, and NOW is the
-- time of Redis's clock. AT and DOUBTED were recorded by tick.
--
-- The secret belongs to one run of one server, and is replaced if the server or its run has
-- changed. A clone of the data runs in another server, so its hubs have another secret than the
-- hubs of the original, no matter how the clone was made. If the server does not report its
-- run, the secret stays forever. SECRET is empty if it must be replaced but Redis accepts no
-- write.

local v = redis.call('HMGET', KEYS[1], 'format', 'id', 'secret', 'server', 'clock', 'doubted')
local made = 0
if not v[2] then
  made, v = 1, { ARGV[4], ARGV[1] }
  for _ = 1, 2 do redis.call('HSET', KEYS[1], 'format', v[1], 'id', v[2]) end -- twice, see lib.lua
end
local info = redis.pcall('INFO', 'server') -- the user may lack the permission
local server = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
local secret = v[3]
if not secret or v[4] ~= server then
  secret = ARGV[6]
  redis.pcall('HDEL', KEYS[1], 'room') -- so that a full Redis accepts the next write, see room
  local wrote = redis.pcall('HSET', KEYS[1], 'secret', secret, 'server', server)
  if type(wrote) == 'table' then secret = '' end
end
if ARGV[5] == 'check' then redis.call('HSET', KEYS[1], 'checked', ARGV[2]) end
return { 'ok', v[1] or '', v[2], made, clock(), secret, tonumber(v[5] or 0), tonumber(v[6] or 0) }
