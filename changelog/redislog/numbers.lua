-- numbers lists the inventory pages of a set that are in one key. ARGV: 4 begin. KEYS: 8 the
-- key. Replies: ok NUMBER...

local s, no = open(ARGV[4])
if not s then return no end
if inventory(s).stored == '0' then return { 'ok' } end

local answer = redis.call('HKEYS', KEYS[8])
table.insert(answer, 1, 'ok')
return answer
