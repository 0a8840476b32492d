-- keys reads what is kept of the publishes that had keys, in the order of their
-- numbers. ARGV: 4 the number to begin after, 5 how many numbers to look at. Answers:
-- ok LAST (NUMBER KNOWN)...: LAST is the last number that was looked at. If LAST is
-- not higher than ARGV[4], there are no more.

local s, no = open()
if not s then return no end

local from = math.max(ARGV[4] + 1, s.forgot + 1)
local to = math.min(from + ARGV[5] - 1, s.known)
local answer = { 'ok', text(to) }
for n = from, to do
  local number = text(n)
  local k = known(number)
  if k and redis.call('HGET', NUMBERS, k.key) == number then -- else the key was used again, and has a higher number
    answer[#answer + 1] = number
    answer[#answer + 1] = redis.call('HGET', KNOWN, number)
  end
end
return answer
