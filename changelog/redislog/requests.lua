-- requests removes and adds requests for newer roots of inventories, and lists those that remain.
-- KEYS: 1 the requests. ARGV: 4 how many to remove, their sets, then for each to add its set and 1
-- if a reader has found damage, else 0. Replies: ok SET DAMAGED...

local from = 5 + tonumber(ARGV[4])
for i = 5, from - 1 do redis.call('HDEL', KEYS[1], ARGV[i]) end
for i = from, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) ~= '1' then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
local answer = redis.call('HGETALL', KEYS[1])
table.insert(answer, 1, 'ok')
return answer
