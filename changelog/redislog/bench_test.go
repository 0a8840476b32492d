package redislog

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/logtest"
	"github.com/rshub/rshub/feed"
)

// used is what Redis has in memory.
func used(t testing.TB, admin *redis.Client) int {
	t.Helper()
	for line := range strings.Lines(admin.Info(t.Context(), "memory").Val()) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); found {
			n, err := strconv.Atoi(v)
			ok(t, err)
			return n
		}
	}
	t.Fatal("used_memory is unknown")
	return 0
}

// A packed change takes at most 120 bytes of Redis, also when it was published alone. The
// answers and keys that Redis keeps for a while do not count.
func TestMemory(t *testing.T) {
	t.Parallel()
	const total = 19_999 // as many as there are, whatever they are
	for _, batch := range []int{100, 1} {
		s := newServer(t, "--appendonly", "no")
		admin, ctx := s.admin(t), t.Context()
		l := start(t, s.url(), Options{})
		makeSet(t, l, 10_000)
		empty := used(t, admin)
		for from := 0; from < total; {
			var p []changelog.Publish
			for n := 0; n < 2000 && from+batch <= total; n += batch {
				p = append(p, changelog.Publish{Changes: logtest.Sample(from, batch)})
				from += batch
			}
			if len(p) == 0 {
				break
			}
			_, err := l.Append(ctx, "set", p...)
			ok(t, err)
		}
		ok(t, admin.Del(ctx, l.keys("set")[5:7]...).Err())
		n := int(state(t, l).Head.Position)
		published := (used(t, admin) - empty) / n
		_, err := l.Pack(ctx, "set")
		ok(t, err)
		packed := (used(t, admin) - empty) / n
		var blocks int64
		for _, key := range l.keys("set")[1:3] {
			blocks += admin.MemoryUsage(ctx, key, 0).Val()
		}
		t.Logf("%d changes in batches of %d: %d bytes each, %d packed (MEMORY USAGE says %d)", n, batch, published, packed, int(blocks)/n)
		if batch == 100 && published > 120 || packed > 120 {
			t.Errorf("batches of %d take %d bytes a change, %d packed", batch, published, packed)
		}
	}
}

// BenchmarkAppend is one publish a call, and beside it what the same blocks take
// with one HSET each.
func BenchmarkAppend(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000} {
		for _, writers := range []int{1, 16} {
			name := fmt.Sprintf("batch=%d/goroutines=%d", batch, writers)
			l := start(b, shared.url(), Options{})
			makeSet(b, l, 10_000)
			b.Run(name, func(b *testing.B) {
				together(b, batch, writers, func(i int) error {
					_, err := l.Append(b.Context(), "set", changelog.Publish{Changes: logtest.Sample(i*batch, batch)})
					return err
				})
			})
			b.Run(name+"/bare", func(b *testing.B) {
				key, client := prefix(), shared.admin(b)
				var number atomic.Int64
				var blocks [][]byte
				for i := range 100 {
					blocks = append(blocks, changelog.CutBlocks(logtest.Sample(i*batch, batch), 1, 10_000)[0].Block)
				}
				together(b, batch, writers, func(i int) error {
					return client.HSet(b.Context(), key, number.Add(1), blocks[i%100]).Err()
				})
				ok(b, client.Del(b.Context(), key).Err())
			})
			ok(b, l.Delete(b.Context(), "set"))
		}
	}
}

// together does something b.N times.
func together(b *testing.B, batch, writers int, do func(i int) error) {
	logtest.Sample(0, 1)
	var next atomic.Int64
	var running sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range writers {
		running.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkSince is catching up over a hundred thousand changes.
func BenchmarkSince(b *testing.B) {
	const total = 100_000
	for _, batch := range []int{1, 100, 1000} {
		l := start(b, shared.url(), Options{})
		makeSet(b, l, 10_000)
		for i := 0; i < total; {
			var publishes []changelog.Publish
			for n := 0; n < 2_000; n += batch {
				publishes = append(publishes, changelog.Publish{Changes: logtest.Sample(i, batch)})
				i += batch
			}
			_, err := l.Append(b.Context(), "set", publishes...)
			ok(b, err)
		}
		catchUp := func(b *testing.B) {
			for b.Loop() {
				if n := len(all(b, l, feed.Cursor{})); n != total {
					b.Fatalf("%d entries", n)
				}
			}
			b.ReportMetric(float64(b.N*total)/b.Elapsed().Seconds(), "changes/s")
		}
		b.Run(fmt.Sprintf("batch=%d", batch), catchUp)
		begin := time.Now()
		n, err := l.Pack(b.Context(), "set")
		ok(b, err)
		b.Logf("batches of %d: packed %.0f changes/s", batch, float64(n)/time.Since(begin).Seconds())
		b.Run(fmt.Sprintf("batch=%d/packed", batch), catchUp)
		ok(b, l.Delete(b.Context(), "set"))
	}
}

// BenchmarkSinceHead is a follower that asks and finds nothing, and one that
// finds the newest.
func BenchmarkSinceHead(b *testing.B) {
	l := start(b, shared.url(), Options{})
	makeSet(b, l, 10_000)
	var last changelog.Appended
	for i := range 1000 {
		last = add(b, l, fmt.Sprint(i), 1)
	}
	for name, c := range map[string]feed.Cursor{"nothing": last.Cursor, "newest": last.After} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := l.Since(b.Context(), "set", c, 0)
				ok(b, err)
			}
		})
	}
}

// BenchmarkSinceLength reads a little from anywhere, of logs of several lengths.
func BenchmarkSinceLength(b *testing.B) {
	const batch = 100
	for _, total := range []int{10_000, 1_000_000} {
		l := start(b, shared.url(), Options{})
		makeSet(b, l, 10_000)
		var cursors []feed.Cursor // in the middle of blocks
		for i := 0; i < total; {
			var publishes []changelog.Publish
			for range 2_000 / batch {
				publishes = append(publishes, changelog.Publish{Changes: logtest.Sample(i%10_000, batch)})
				i += batch
			}
			appended, err := l.Append(b.Context(), "set", publishes...)
			ok(b, err)
			for _, a := range appended {
				cursors = append(cursors, feed.Cursor{Position: a.Cursor.Position - batch/2, Micros: a.Cursor.Micros - batch/2})
			}
		}
		read := func(b *testing.B) {
			for b.Loop() {
				batch, err := l.Since(b.Context(), "set", cursors[rand.IntN(len(cursors))], 10)
				if err != nil || batch.Diverged || len(batch.Entries) != 10 {
					b.Fatalf("%v, %v", batch, err)
				}
			}
		}
		seek := func(b *testing.B) {
			for b.Loop() {
				c := cursors[rand.IntN(len(cursors))]
				if got, err := l.Seek(b.Context(), "set", c.Micros+1); got != c {
					b.Fatalf("%v, %v, want %v", got, err, c)
				}
			}
		}
		b.Run(fmt.Sprintf("changes=%d", total), read)
		b.Run(fmt.Sprintf("changes=%d/seek", total), seek)
		_, err := l.Pack(b.Context(), "set")
		ok(b, err)
		b.Run(fmt.Sprintf("changes=%d/packed", total), read)
		b.Run(fmt.Sprintf("changes=%d/packed/seek", total), seek)
		ok(b, l.Delete(b.Context(), "set"))
	}
}
