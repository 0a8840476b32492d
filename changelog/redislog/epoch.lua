-- epoch begins a new epoch with the list of the first entry behind a position, or with the
-- open list. ARGV: 4 begin, 5 name of the epoch, 6 the position. Answers: ok.

local s, no = open(ARGV[4])
if not s then return no end

local function list(position) return math.floor(position / s.size) + 1 end
local first = list(math.min(tonumber(ARGV[6]), s.head.position))

local kept = redis.call('HGET', SET, 'epochs')
local epochs = {}
if kept and string.match(kept, '^%d+') == s.begin then -- else they are of a deleted set of the same name
  for from, name in string.gmatch(kept, ' (%d+)%-(%w+)') do
    if tonumber(from) < first then epochs[#epochs + 1] = { from = tonumber(from), name = name } end
  end
end
epochs[#epochs + 1] = { from = first, name = ARGV[5] }
while epochs[2] and epochs[2].from <= list(s.floor.position) do table.remove(epochs, 1) end -- no list is left of the first
local words = { s.begin }
for _, e in ipairs(epochs) do words[#words + 1] = text(e.from) .. '-' .. e.name end

room()
redis.call('HSET', SET, 'epochs', table.concat(words, ' '))
save(s.log)
return { 'ok' }
