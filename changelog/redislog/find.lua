-- find returns a cursor by position or datetime. ARGV: 4 "at" and 5 a position, or 4 "seek" and
-- 5 a datetime. Replies: ok CURSOR. gone. behind HEAD: the position is after the head.

local s, no = open()
if not s then return no end

local n = tonumber(ARGV[5])
if ARGV[4] == 'at' then
  if n < s.floor.position then return { 'gone' } end
  if n > s.head.position then return { 'behind', write(s.head) } end
  return { 'ok', write(at(s, n)) }
end
if n < s.floor.micros or n == s.floor.micros and s.floor.position > 0 then return { 'gone' } end
return { 'ok', write(newest(s, n - 1)) }
