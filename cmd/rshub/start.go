package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/changelog/redislog"
)

// startEvery is the time between two looks whether Redis is there.
const startEvery = 500 * time.Millisecond

// errStopped is why a start ends that was told to stop.
var errStopped = errors.New("told to stop during the start")

// openRedis opens the change memory in Redis. While Redis cannot be reached it
// waits, as long as RSHUB_START_TIMEOUT says, and tells so once. What waiting does
// not cure, such as a wrong password, is an error at once.
func (s *server) openRedis(ctx context.Context) (*redislog.Log, error) {
	c := s.config
	limited, cancel := context.WithTimeout(ctx, c.StartTimeout)
	defer cancel()
	tick := time.NewTicker(startEvery)
	defer tick.Stop()
	begun, waits := time.Now(), false
	for {
		memory, err := redislog.Open(limited, c.RedisURL, redislog.Options{
			Prefix: c.Prefix, ClockSkew: c.ClockSkew, Logger: s.log, Timeout: c.RedisTimeout,
			Wait: c.RedisWait, WaitTimeout: c.RedisWaitTimeout, AllowEviction: c.RedisAllowEviction,
		})
		if err == nil {
			if waits {
				s.log.Info("Redis is there: the start goes on", "seconds", time.Since(begun).Seconds())
			}
			return memory, nil
		}
		if ctx.Err() != nil {
			return nil, errStopped
		}
		if limited.Err() == nil && !redislog.MayPass(err) {
			return nil, fmt.Errorf("RSHUB_REDIS_URL: %w", err)
		}
		if !waits && limited.Err() == nil {
			waits = true
			s.log.Warn("waiting for Redis", "limit", c.StartTimeout.String(), "err", err)
			s.leave("starting: waiting for Redis: " + err.Error())
		}
		select {
		case <-tick.C:
		case <-limited.Done():
		}
		switch {
		case ctx.Err() != nil:
			return nil, errStopped
		case limited.Err() != nil:
			return nil, fmt.Errorf("RSHUB_REDIS_URL: waited for %v (RSHUB_START_TIMEOUT): %w", c.StartTimeout, err)
		}
	}
}
