-- sweep removes some of the data left over by earlier steps, but not all at once, because Redis
-- serves no other client while a script runs. Replies: ok MORE, where MORE is 1 if more is
-- left.

local state = redis.call('HGET', SET, 'log')
if state and deleted(state) then
  redis.call('UNLINK', unpack(KEYS, 2))
  redis.call('HDEL', SET, 'size', 'title', 'describedby', 'changelist', 'begin', 'described', 'more', 'inventory')
  return { 'ok', 0 }
end
local s, no = open()
if not s then return no end

local more = 0
for _, store in ipairs({ s.packed, s.live }) do
  for _ = 1, 20 do
    local numbers = {}
    for n = store.swept, math.min(store.first, store.swept + 100) - 1 do numbers[#numbers + 1] = text(n) end
    if #numbers == 0 then break end
    redis.call('HDEL', store.key, unpack(numbers))
    store.swept = store.swept + #numbers
  end
  if store.swept < store.first then more = 1 end
end
if log(s) ~= s.log then save(log(s)) end
return { 'ok', more }
