-- commit makes changes to a shard. KEYS: claim, records, progress, inbox. ARGV: 1 the hub, 2 the number of
-- its claim, 3 the number of the commit, then the lengths of the lists that follow: 4 records to put and
-- 5 progress, both as IDs with values, 6 IDs to delete, 7 IDs of completed requests. Returns 0 if the
-- claim is lost, or if a later commit came first: then the hub has given this one up.
--
-- If only the first writes survive a crash of Redis, they do no harm because of their order: every record
-- has its progress, and a request leaves only after its result is written.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number', 'commit')
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] or tonumber(c[3] or 0) >= tonumber(ARGV[3]) then return 0 end

-- all calls a command with the arguments from first to last, in parts that the stack of Lua can hold.
local function all(command, key, first, last)
  for i = first, last, 1000 do redis.call(command, key, unpack(ARGV, i, math.min(i + 999, last))) end
end

local put = 7 + ARGV[4]
local progress = put + ARGV[5]
local delete = progress + ARGV[6]
if put == 7 then
  redis.call('HDEL', KEYS[1], '') -- removes nothing, but after a command that removes, Redis accepts the writes even when it is full
end
all('HSET', KEYS[3], put + 1, progress)
all('HSET', KEYS[2], 8, put)
all('HDEL', KEYS[2], progress + 1, delete)
all('HDEL', KEYS[3], progress + 1, delete)
all('XDEL', KEYS[4], delete + 1, delete + ARGV[7])
redis.call('HSET', KEYS[1], 'commit', ARGV[3])
return 1
