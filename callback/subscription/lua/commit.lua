-- commit makes changes to a shard. KEYS: claim, records, progress, inbox. ARGV:
-- 1 the hub, 2 the claim's number, then the lengths of the lists that follow:
-- 3 put, as id and record; 4 its progress, as id and progress; 5 progress, the
-- same; 6 delete, ids; 7 done, IDs of requests. Answers 0 when the claim is lost.
--
-- Every write is absolute. If only the first few writes survive a crash of Redis,
-- they do no harm because of their order: no record is ever without progress, and a
-- request leaves only after its outcome is written.
local c = redis.call('HMGET', KEYS[1], 'hub', 'number')
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] then return 0 end

local arg = 7
-- list returns the next list.
local function list(n)
  local l = {}
  for i = 1, n do l[i] = ARGV[arg + i] end
  arg = arg + n
  return l
end
-- all calls a command with a list, in parts that Lua's stack can hold.
local function all(command, key, l)
  for i = 1, #l, 1000 do redis.call(command, key, unpack(l, i, math.min(i + 999, #l))) end
end

local put, with, progress = list(ARGV[3]), list(ARGV[4]), list(ARGV[5])
if #put > 0 then
  all('HSET', KEYS[3], with)
  all('HSET', KEYS[2], put)
else
  redis.call('HDEL', KEYS[1], '') -- removes nothing, but after a command that removes, Redis accepts the writes even when it is full
end
local there = {}
for i = 1, #progress, 2 do
  if redis.call('HEXISTS', KEYS[2], progress[i]) == 1 then
    there[#there + 1] = progress[i]
    there[#there + 1] = progress[i + 1]
  end
end
all('HSET', KEYS[3], there)
local gone = list(ARGV[6])
all('HDEL', KEYS[2], gone)
all('HDEL', KEYS[3], gone)
all('XDEL', KEYS[4], list(ARGV[7]))
return 1
