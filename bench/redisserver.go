//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/internal/redisconn"
)

// A redisServer is a redis-server for this bench. It never rewrites its append-only file,
// because a rewrite would begin at any time and disturb the measurement.
type redisServer struct {
	*server
	dir    string
	conn   *redisconn.Conn // for what is rshub's
	client *redis.Client   // for what is bare
}

// redisServer starts one.
func (b *bench) redisServer() (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, skipped("it needs redis-server: apt-get install redis-server")
	}
	dir, err := b.dir()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	conn, err := redisconn.Open("redis://"+addr, redisconn.Options{})
	if err != nil {
		return nil, err
	}
	s, err := startAt(addr, exec.Command(path, "--bind", host, "--port", port, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &redisServer{s, dir, conn, redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 32,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}, nil
}

func (s *redisServer) stop() {
	_ = s.conn.Close()
	_ = s.client.Close()
	s.server.stop()
	_ = os.RemoveAll(s.dir) // what is left goes with the rest
}

func (s *redisServer) url() string { return "redis://" + s.addr }

// open empties Redis and opens a new change memory in it.
func (s *redisServer) open(ctx context.Context) (*redislog.Log, error) {
	if err := s.empty(ctx); err != nil {
		return nil, err
	}
	return redislog.Open(ctx, s.conn, redislog.Options{})
}

func (s *redisServer) empty(ctx context.Context) error { return s.client.FlushAll(ctx).Err() }

// used returns the bytes of all keys and their values. INFO would also count the buffers of
// connections, which are hundreds of KB that come and go.
func (s *redisServer) used(ctx context.Context) (bytes float64, err error) {
	keys := s.client.Scan(ctx, 0, "", 1000).Iterator()
	for keys.Next(ctx) {
		n, err := s.client.MemoryUsage(ctx, keys.Val(), 0).Result()
		if err != nil {
			return 0, err
		}
		bytes += float64(n)
	}
	return bytes, keys.Err()
}

// bareStream is where the floors keep blocks: a stream, one entry for each.
const bareStream = "bare"

// bareAppend stores a block in the stream: the cheapest way to store blocks in order.
func (s *redisServer) bareAppend(ctx context.Context, block []byte) error {
	return s.client.XAdd(ctx, &redis.XAddArgs{Stream: bareStream, Values: []any{"b", block}}).Err()
}
