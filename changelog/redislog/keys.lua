-- keys reads what is known by keys, in the order of their numbers. ARGV: 4 the
-- number before, 5 at most so many. Answers: ok NUMBER (NUMBER KNOWN)...: the
-- number that was looked at last, no higher than the one before when there is no
-- more.

local s, no = open()
if not s then return no end

local from = math.max(ARGV[4] + 1, s.forgot + 1)
local to = math.min(from + ARGV[5] - 1, s.known)
local answer = { 'ok', text(to) }
for n = from, to do
  local number = text(n)
  local k = known(number)
  if k and redis.call('HGET', NUMBERS, k.key) == number then -- else it was used again
    answer[#answer + 1] = number
    answer[#answer + 1] = redis.call('HGET', KNOWN, number)
  end
end
return answer
