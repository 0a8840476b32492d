-- name adds the name of a set to the names of all sets. KEYS: 1 the sets. ARGV: 4 name.
-- Replies: ok.

for _ = 1, 2 do redis.call('HSET', KEYS[1], ARGV[4], '') end -- twice, see lib.lua
return { 'ok' }
