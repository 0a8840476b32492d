package disklog

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/logtest"
	"github.com/rshub/rshub/feed"
)

func open(b *testing.B) *Log {
	b.Helper()
	l, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := l.Make(b.Context(), "set", feed.Description{}, 10_000); err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkAppend is one publish a call.
func BenchmarkAppend(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000} {
		for _, writers := range []int{1, 16} {
			b.Run(fmt.Sprintf("batch=%d/goroutines=%d", batch, writers), func(b *testing.B) {
				l := open(b)
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
							if _, err := l.Append(b.Context(), "set", changelog.Publish{Changes: logtest.Sample(i*batch, batch)}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				running.Wait()
				b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "changes/s")
			})
		}
	}
}

// BenchmarkSince is catching up over half a million changes.
func BenchmarkSince(b *testing.B) {
	const total = 500_000
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			l := open(b)
			for i := 0; i < total; {
				var publishes []changelog.Publish
				for n := 0; n < 10_000; n += batch {
					publishes = append(publishes, changelog.Publish{Changes: logtest.Sample(i, batch)})
					i += batch
				}
				if _, err := l.Append(b.Context(), "set", publishes...); err != nil {
					b.Fatal(err)
				}
			}
			for _, limit := range []int{1000, 10_000} {
				b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
					b.ReportAllocs()
					n := 0
					for b.Loop() {
						for c := (feed.Cursor{}); ; {
							batch, err := l.Since(b.Context(), "set", c, limit)
							if err != nil {
								b.Fatal(err)
							}
							if len(batch.Entries) == 0 {
								break
							}
							n += len(batch.Entries)
							c = batch.Cursor
						}
					}
					if n != b.N*total {
						b.Fatalf("%d entries", n)
					}
					b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "changes/s")
				})
			}
		})
	}
}

// BenchmarkSinceHead is a follower that asks and finds nothing, and one that
// finds the newest.
func BenchmarkSinceHead(b *testing.B) {
	l := open(b)
	var last changelog.Appended
	for i := range 1000 {
		a, err := l.Append(b.Context(), "set", changelog.Publish{Changes: logtest.Sample(i, 1)})
		if err != nil {
			b.Fatal(err)
		}
		last = a[0]
	}
	for name, c := range map[string]feed.Cursor{"nothing": last.Cursor, "newest": last.After} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Since(b.Context(), "set", c, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSets is what 10,000 sets cost: opening them, and what is asked of
// one of them.
func BenchmarkSets(b *testing.B) {
	const sets = 10_000
	fs := vfs.NewMem()
	open := func() *Log {
		l, err := Open("data", Options{FS: fs})
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	l := open()
	name := func(i int) string { return fmt.Sprintf("set-%d", i%sets) }
	for i := range sets {
		if err := l.Make(b.Context(), name(i), feed.Description{Title: "A set of resources"}, 10_000); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Append(b.Context(), name(i), changelog.Publish{Changes: logtest.Sample(i, 1)}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			l = open()
		}
	})
	b.Run("state", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := l.State(b.Context(), name(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := l.Append(b.Context(), name(i), changelog.Publish{Changes: logtest.Sample(i, 1)}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sets", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.Sets(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
