-- epoch begins a new epoch, unless the log holds a cursor that it had. ARGV: 4 begin,
-- 5 name of the epoch; 6 and 7 position and datetime of the cursor, 0 and 0 for none.
-- Answers: ok BEGUN, where BEGUN is 1 if the epoch has begun, else 0.

local s, no = open(ARGV[4])
if not s then return no end

local after, lost = s.head, cursor(tonumber(ARGV[6]), tonumber(ARGV[7]))
if lost.position > 0 or lost.micros > 0 then
  if knows(s, lost) or lost.micros < s.floor.micros or lost.micros <= s.was then return { 'ok', 0 } end
  after = before(s, lost)
end
local function list(c) return math.floor(c.position / s.size) + 1 end

local kept = redis.call('HGET', SET, 'epochs')
local epochs = {}
if kept and string.match(kept, '^%d+') == s.begin then -- else they are of a deleted set of the same name
  for from, name in string.gmatch(kept, ' (%d+)%-(%w+)') do
    if tonumber(from) < list(after) then epochs[#epochs + 1] = { from = tonumber(from), name = name } end
  end
end
epochs[#epochs + 1] = { from = list(after), name = ARGV[5] }
while epochs[2] and epochs[2].from <= list(s.floor) do table.remove(epochs, 1) end -- no list is left of the first
local words = { s.begin }
for _, e in ipairs(epochs) do words[#words + 1] = text(e.from) .. '-' .. e.name end

room()
redis.call('HSET', SET, 'epochs', table.concat(words, ' '))
save(s.log)
return { 'ok', 1 }
