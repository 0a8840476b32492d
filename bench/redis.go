//go:build linux

package main

import (
	"cmp"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

var (
	redisBatchSizes = []int{1, 10, 100}

	clientCPUPerChange = metric{name: "client CPU µs/change"}
	hundredsPerSecond  = metric{name: "changes/s", limit: 100_000, least: true}
	bytesPerChange     = metric{name: "bytes/change"}
	bytesAtMost        = metric{name: "bytes/change", limit: 120}
)

// redis measures hub.Publish on a redislog, in this process, and Redis under it.
func (b *bench) redis(t *table) error {
	s, err := b.redisServer()
	if err != nil {
		return err
	}
	defer s.stop()
	for _, writers := range publishers {
		for _, n := range redisBatchSizes {
			if err := b.redisLoad(t, s, load{publishers: writers, n: n, length: b.publishing}, ""); err != nil {
				return err
			}
		}
	}
	if err := s.client.ConfigSet(b.ctx, "appendfsync", "always").Err(); err != nil {
		return err
	}
	for _, writers := range publishers {
		if err := b.redisLoad(t, s, load{publishers: writers, n: 100, length: b.publishing}, ", appendfsync always"); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) redisLoad(t *table, s *redisServer, l load, how string) error {
	blocks := b.content.encodeAll(l.n)
	perSecond := changesPerSecond
	if l.n == 100 && l.publishers > 1 && how == "" {
		perSecond = hundredsPerSecond
	}
	return alternate(b,
		func() (publishing, error) {
			if err := s.empty(b.ctx); err != nil {
				return publishing{}, err
			}
			l.post = func(_, i int) error { return s.bareAppend(b.ctx, blocks[i%len(blocks)]) }
			return l.measure(s.server)
		},
		func() (p publishing, err error) {
			log, err := s.open(b.ctx)
			if err != nil {
				return p, err
			}
			p, err = b.publishInto(log, l, s.server)
			return p, cmp.Or(err, log.Close())
		},
		func(f, o publishing) {
			what, n, others := l.String()+how, float64(l.n), max(f.others, o.others)
			t.add(what, perSecond, n*f.publishes/f.seconds, n*o.publishes/o.seconds, others)
			t.add(what, cpuPerChange, 1e6*f.cpu/(n*f.publishes), 1e6*o.cpu/(n*o.publishes), others)
			t.add(what, clientCPUPerChange, 1e6*f.own/(n*f.publishes), 1e6*o.own/(n*o.publishes), others)
		})
}

// redisMemory measures what a change takes in Redis.
func (b *bench) redisMemory(t *table) error {
	s, err := b.redisServer()
	if err != nil {
		return err
	}
	defer s.stop()
	for _, n := range []int{100, 1} {
		bare, err := b.bareBytes(s, n)
		if err != nil {
			return err
		}
		published, trimmed, err := b.redisBytes(s, n)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s changes, published by %d", format(float64(len(b.content))), n)
		first := bytesPerChange
		if n == 100 {
			first = bytesAtMost
		}
		t.add(what, first, bare, published, notMeasured)
		t.add(what+", after Trim", bytesAtMost, bare, trimmed, notMeasured)
	}
	return nil
}

// bareBytes is what a change takes in a bare stream of encoded blocks of n.
func (b *bench) bareBytes(s *redisServer, n int) (float64, error) {
	if err := s.empty(b.ctx); err != nil {
		return 0, err
	}
	for _, block := range b.content.encodeAll(n) {
		if err := s.bareAppend(b.ctx, block); err != nil {
			return 0, err
		}
	}
	bytes, err := s.used(b.ctx)
	return bytes / float64(len(b.content)), err
}

// redisBytes returns how many bytes Redis needs for a change that was published with n - 1
// others, before and after Trim. It counts everything that the memory keeps.
func (b *bench) redisBytes(s *redisServer, n int) (published, trimmed float64, err error) {
	log, err := s.open(b.ctx)
	if err != nil {
		return 0, 0, err
	}
	if err = b.fill(log, benchSet, len(b.content), n, 10_000); err == nil {
		published, err = s.used(b.ctx)
	}
	if err == nil {
		_, err = log.Trim(b.ctx, benchSet, changelog.Retention{})
	}
	if err == nil {
		trimmed, err = s.used(b.ctx)
	}
	all := float64(len(b.content))
	return published / all, trimmed / all, cmp.Or(err, log.Close())
}
