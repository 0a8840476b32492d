-- get reads pages of the set's inventory. ARGV: 4 begin, then see paged: the numbers of the
-- pages. Answers: ok PAGE...: in the order of the arguments, nil for a page that is not
-- there.

local s, no = open(ARGV[4])
if not s then return no end
if inventory(s).kept == '0' then return { 'ok' } end -- pages that are there are of an earlier log

local answer = { 'ok' }
paged(5, function(key, from, to)
  for _, page in ipairs(redis.call('HMGET', key, unpack(ARGV, from, to))) do answer[#answer + 1] = page end
end)
return answer
