-- find returns a subscription and its progress. KEYS: records, progress. ARGV: 1
-- the ID. Not a transaction, which Redis refuses when it is full.
return { redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1]) }
