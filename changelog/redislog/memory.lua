-- memory makes the memory, unless it exists, and keeps its secret. KEYS: 1 the memory.
-- ARGV: 4 format, 5 "check" to try whether Redis takes a write, 6 a new secret. Answers:
-- ok FORMAT ID MADE NOW SECRET AT DOUBTED, where MADE is 1 if the memory is new, and NOW
-- the time of Redis's clock. AT and DOUBTED are what tick has noted.
--
-- The secret belongs to one run of one server: if the server is another than before, the
-- secret is replaced. A clone of the data runs in a server of its own, so its hubs have
-- another secret than the hubs of the original, whoever made the clone and however. A
-- server that does not tell its run keeps the secret for ever. SECRET is empty if it has
-- to be replaced and Redis takes no write.

local v = redis.call('HMGET', KEYS[1], 'format', 'id', 'secret', 'server', 'clock', 'doubted')
local made = 0
if not v[2] then
  made, v = 1, { ARGV[4], ARGV[1] }
  for _ = 1, 2 do redis.call('HSET', KEYS[1], 'format', v[1], 'id', v[2]) end -- twice, see lib.lua
end
local info = redis.pcall('INFO', 'server') -- the user may lack the right to ask
local server = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
local secret = v[3]
if not secret or v[4] ~= server then
  secret = ARGV[6]
  redis.pcall('HDEL', KEYS[1], 'room') -- so that a full Redis takes the next write, see room
  local wrote = redis.pcall('HSET', KEYS[1], 'secret', secret, 'server', server)
  if type(wrote) == 'table' then secret = '' end
end
if ARGV[5] == 'check' then redis.call('HSET', KEYS[1], 'checked', ARGV[2]) end
return { 'ok', v[1] or '', v[2], made, clock(), secret, tonumber(v[5] or 0), tonumber(v[6] or 0) }
