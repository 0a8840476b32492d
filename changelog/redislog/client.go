package redislog

import "github.com/redis/go-redis/v9"

// Client returns the connections to Redis, for what else the hub keeps there.
// They tell each failure and try nothing again. They are closed by Close.
func (l *Log) Client() redis.UniversalClient { return l.client }

// Client returns the connections of a copy, for what else is copied along. It is
// to be there before Finish.
func (m *Import) Client() redis.UniversalClient { return m.log.client }
