-- send adds a request. KEYS: inbox. ARGV: 1 the limit on requests, 2 the request. Returns its ID, or '' if
-- the inbox is full.
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return '' end
return redis.call('XADD', KEYS[1], '*', 'r', ARGV[2])
