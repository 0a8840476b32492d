//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/resourcesync"
)

var caughtUpPerSecond = metric{name: "changes/s", limit: 200_000, least: true}

// catchup measures a follower that is far behind: by batches, and by changes
// that were published one by one, each a block of its own.
func (b *bench) catchup(t *table) error {
	for _, n := range []int{100, 1} {
		if err := b.catchUpWith(t, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) catchUpWith(t *table, n int) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.fillDisk(dir, b.behind, n, 10_000); err != nil {
		return err
	}
	ours, err := b.rshub(dir)
	if err != nil {
		return err
	}
	defer ours.stop()
	path := "/sets/" + benchSet + "/changes?since=start"

	// The floor sends what rshub sends. A first round records it, and fills the
	// caches.
	bytes := filepath.Join(dir, "bytes")
	f, err := os.Create(bytes)
	if err != nil {
		return err
	}
	tee := bufio.NewWriterSize(f, 1<<20)
	_, err = b.follow(ours, path, tee)
	if err = cmp.Or(err, tee.Flush(), f.Close()); err != nil {
		return err
	}
	floor, err := b.floor("replay", bytes)
	if err != nil {
		return err
	}
	defer floor.stop()
	what := fmt.Sprintf("%s behind, published by %d", format(float64(b.behind)), n)
	return alternate(b,
		func() (usage, error) { return b.follow(floor, "/replay", nil) },
		func() (usage, error) { return b.follow(ours, path, nil) },
		func(f, o usage) {
			n, others := float64(b.behind), max(f.others, o.others)
			t.add(what, caughtUpPerSecond, n/f.seconds, n/o.seconds, others)
			t.add(what, cpuPerChange, 1e6*f.cpu/n, 1e6*o.cpu/n, others)
		})
}

// memory opens the change memory in a data directory of rshub's.
func memory(dir string) (*disklog.Log, error) {
	return disklog.Open(filepath.Join(dir, "changes"), disklog.Options{})
}

// fillDisk fills the memory in a data directory of rshub's.
func (b *bench) fillDisk(dir string, count, n, listSize int) error {
	log, err := memory(dir)
	if err != nil {
		return err
	}
	return cmp.Or(b.fill(log, benchSet, count, n, listSize), log.Close())
}

// fill publishes count changes, n at a time.
func (b *bench) fill(log changelog.Log, set string, count, n, listSize int) error {
	return b.fillWith(log, set, count/n, listSize, func(i int) []resourcesync.Change { return b.content.batch(i, n) })
}

// fillWith publishes batches of changes from many publishers, so that it does not take
// long. Each publish is a block.
func (b *bench) fillWith(log changelog.Log, set string, batches, listSize int, batch func(i int) []resourcesync.Change) error {
	h := hub.New(log, hub.Options{ListSize: listSize})
	var next atomic.Int64
	var wg sync.WaitGroup
	const writers = 128
	errs := make(chan error, writers)
	for range writers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < batches; i = int(next.Add(1)) - 1 {
				if _, err := h.Publish(b.ctx, set, changelog.Publish{Changes: batch(i)}); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	h.Close()
	return <-errs
}

// follow follows from the start until nothing is missing.
func (b *bench) follow(s *server, path string, tee *bufio.Writer) (u usage, err error) {
	r, err := newReader(splitFrame)
	if err != nil {
		return u, err
	}
	r.handle, r.tee = r.batch, tee
	go r.run()
	defer r.close()
	time.Sleep(settle / 3) // until what was before is over
	u, err = measure(func() error {
		if err := r.connect(s.addr, always(path), false, 1); err != nil {
			return err
		}
		return r.await(b.ctx, int64(b.behind))
	}, s)
	if err = cmp.Or(err, r.check()); err != nil {
		err = fmt.Errorf("GET %s: %w", path, err)
	}
	return u, err
}

var positionMember = []byte(`{"position":`)

// batch handles messages with changes. Each must begin where the one before
// ended, and have every position in between.
func (r *reader) batch(s *subscriber, body []byte, _ int64) int {
	after, cursor := member(body, `"after":"`), member(body, `"cursor":"`)
	n := bytes.Count(body, positionMember)
	from, err1 := feed.ParseCursor(after)
	to, err2 := feed.ParseCursor(cursor)
	if err1 != nil || err2 != nil || s.told != "" && s.told != after || to.Position-from.Position != uint64(n) {
		r.disorder++
	}
	s.told = cursor
	return n
}

// member returns the string that follows a member's name.
func member(body []byte, name string) string {
	_, rest, _ := bytes.Cut(body, []byte(name))
	value, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(value)
}
