-- find returns a subscription and its progress. KEYS: records, progress. ARGV: 1 the ID. It is a script
-- because Redis refuses a transaction when it is full.
return { redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1]) }
