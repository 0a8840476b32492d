-- sweep removes a part of what earlier steps have left over. It removes only a part
-- because Redis serves nobody while a script runs. Answers: ok MORE, where MORE is 1
-- when something is left.

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
