-- scan reads some subscriptions with their progress. KEYS: records, progress. ARGV: 1 the cursor of HSCAN,
-- 2 the pattern of the IDs, 3 about how many to examine. Returns the next cursor, then the ID, the record
-- and the progress of each subscription.
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local answer = { found[1] }
for i = 1, #found[2], 2 do
  answer[#answer + 1] = found[2][i]
  answer[#answer + 1] = found[2][i + 1]
  answer[#answer + 1] = redis.call('HGET', KEYS[2], found[2][i]) or ''
end
return answer
