//go:build linux

package main

import (
	"cmp"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
)

// redisCatchup measures a follower in this process that is far behind, in a
// memory in Redis. Each round has a new hub, whose window is empty.
func (b *bench) redisCatchup(t *table) error {
	s, err := b.redisServer()
	if err != nil {
		return err
	}
	defer s.stop()
	for _, n := range []int{100, 1} {
		log, err := s.open(b.ctx)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s behind, published by %d", format(float64(b.behind)), n)
		err = cmp.Or(b.fill(log, benchSet, b.behind, n, 10_000), b.fillBare(s, n))
		if err == nil {
			err = b.redisFollowing(t, what, s, log, n)
		}
		if err == nil && n == 1 {
			_, err = log.Trim(b.ctx, benchSet, changelog.Retention{})
			err = cmp.Or(err, b.redisFollowing(t, what+", after Trim", s, log, n))
		}
		if err = cmp.Or(err, log.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) redisFollowing(t *table, what string, s *redisServer, log changelog.Log, n int) error {
	return alternate(b,
		func() (usage, error) {
			return measure(func() error { return b.readBare(s, n) }, s.server)
		},
		func() (usage, error) {
			h := hub.New(log, hub.Options{})
			defer h.Close()
			return measure(func() error { return b.followHere(h) }, s.server)
		},
		func(f, o usage) {
			n, others := float64(b.behind), max(f.others, o.others)
			t.add(what, caughtUpPerSecond, n/f.seconds, n/o.seconds, others)
			t.add(what, cpuPerChange, 1e6*f.cpu/n, 1e6*o.cpu/n, others)
			t.add(what, clientCPUPerChange, 1e6*f.own/n, 1e6*o.own/n, others)
		})
}

// followHere follows from the start until nothing is missing.
func (b *bench) followHere(h *hub.Hub) error {
	var at feed.Cursor
	for batches, err := range h.Follow(b.ctx, benchSet, at) {
		if err != nil {
			return err
		}
		for _, batch := range batches {
			if batch.Diverged || batch.Cursor.Position-batch.After.Position != uint64(len(batch.Entries)) || at.Position != batch.After.Position {
				return fmt.Errorf("what follows %v begins after %v and has %d changes to %v", at, batch.After, len(batch.Entries), batch.Cursor)
			}
			at = batch.Cursor
		}
		if at.Position >= uint64(b.behind) {
			return nil
		}
	}
	return b.ctx.Err()
}

// fillBare keeps the blocks of as many changes in the bare stream.
func (b *bench) fillBare(s *redisServer, n int) error {
	blocks := b.content.encodeAll(n)
	const atOnce = 1000
	for from := 0; from < b.behind/n; from += atOnce {
		_, err := s.client.Pipelined(b.ctx, func(p redis.Pipeliner) error {
			for i := from; i < min(from+atOnce, b.behind/n); i++ {
				p.XAdd(b.ctx, &redis.XAddArgs{Stream: bareStream, Values: []any{"b", blocks[i%len(blocks)]}})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readBare reads the blocks of the bare stream, as many changes at once as a
// follower asks for.
func (b *bench) readBare(s *redisServer, n int) error {
	const atOnce = 1000
	read, from := 0, "-"
	for read < b.behind {
		blocks, err := s.client.XRangeN(b.ctx, bareStream, from, "+", int64(atOnce/n)).Result()
		if err != nil {
			return err
		}
		if len(blocks) == 0 {
			return fmt.Errorf("the bare stream has %d changes, not %d", read, b.behind)
		}
		read, from = read+n*len(blocks), "("+blocks[len(blocks)-1].ID
	}
	return nil
}
