//go:build linux

package main

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/redisconn"
)

// redisFlat compares memories in Redis, each with two hubs.
func (b *bench) redisFlat(t *table) error {
	s, err := b.redisServer() // first: is there one?
	if err != nil {
		return err
	}
	s.stop()
	nats, err := b.natsServer()
	if err != nil {
		return err
	}
	defer nats.stop()
	return b.flat(t, func() (*flatMemory, error) { return b.flatOnRedis(nats) })
}

// flatOnRedis starts a Redis and opens an empty memory in it.
func (b *bench) flatOnRedis(nats *server) (_ *flatMemory, err error) {
	var ends []func() error
	end := func() (err error) {
		for i := len(ends) - 1; i >= 0; i-- {
			err = cmp.Or(err, ends[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			_ = end()
		}
	}()
	s, err := b.redisServer()
	if err != nil {
		return nil, err
	}
	ends = append(ends, func() error { s.stop(); return nil })
	m := &flatMemory{servers: []*server{s.server, nats}, sets: []string{benchSet}, close: end}
	for range 2 {
		conn, err := redisconn.Open(s.url(), redisconn.Options{})
		if err != nil {
			return nil, err
		}
		ends = append(ends, conn.Close)
		log, err := redislog.Open(b.ctx, conn, redislog.Options{})
		if err != nil {
			return nil, err
		}
		bus, err := hub.ConnectNATS("nats://"+nats.addr, hub.NATSOptions{})
		if err != nil {
			return nil, err
		}
		// Run finds what was announced before the hub listened to its follower's set.
		h := hub.New(log, hub.Options{Bus: bus, Shared: 2 * time.Second})
		ctx, cancel := context.WithCancel(b.ctx)
		ran := make(chan error, 1)
		go func() { ran <- h.Run(ctx) }()
		ends = append(ends, func() error {
			cancel()
			err := <-ran
			h.Close()
			bus.Close()
			return err
		})
		m.log, m.follower, m.publisher = log, h, m.follower
	}
	return m, nil
}

// diskFlat compares memories on the disk.
func (b *bench) diskFlat(t *table) error {
	return b.flat(t, func() (*flatMemory, error) {
		dir, err := b.dir()
		if err != nil {
			return nil, err
		}
		log, err := disklog.Open(dir, disklog.Options{})
		if err != nil {
			return nil, err
		}
		h := hub.New(log, hub.Options{})
		return &flatMemory{log: log, publisher: h, follower: h, sets: []string{benchSet}, close: func() error {
			h.Close()
			return cmp.Or(log.Close(), os.RemoveAll(dir))
		}}, nil
	})
}
