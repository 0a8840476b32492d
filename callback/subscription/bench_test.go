package subscription

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redistest"
)

// info returns a number that Redis tells of itself.
func info(t testing.TB, c *redis.Client, section, name string) float64 {
	t.Helper()
	for line := range strings.Lines(c.Info(context.Background(), section).Val()) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			if n, err := strconv.ParseFloat(v, 64); err == nil {
				return n
			}
		}
	}
	t.Fatalf("%s is unknown", name)
	return 0
}

// cpu returns the processor time that Redis has used, in microseconds.
func cpu(t testing.TB, c *redis.Client) float64 {
	return 1e6 * (info(t, c, "cpu", "used_cpu_user") + info(t, c, "cpu", "used_cpu_sys"))
}

func allShards() (all []int) {
	for shard := range Shards {
		all = append(all, shard)
	}
	return all
}

// typical is a subscription of some 600 bytes.
func typical(set string, n int) Record {
	now := time.Now()
	return Record{
		Subscription: Subscription{
			Set: set, Callback: fmt.Sprintf("https://subscriber.example.org/callbacks/rshub/%032d?%s", n, strings.Repeat("x", 80)),
			Secret: strings.Repeat("s", 64), Filter: feed.Filter{Prefix: "https://source.example.org/records/"},
			LeaseEnd: now, Token: strings.Repeat("t", 26), Made: now, Renewed: now,
		},
		Progress: busy(n, 10),
	}
}

// busy is the progress of a subscription with deliveries behind it.
func busy(n, attempts int) Progress {
	now := time.Now()
	p := Progress{Cursor: feed.Cursor{Position: uint64(1_000_000 + n), Micros: now.UnixMicro()}}
	for i := range attempts {
		p.Last = append(p.Last, Attempt{At: now, Kind: "deliver", Status: 200, Took: 12_345_678 * time.Nanosecond, Changes: i})
	}
	return p
}

// BenchmarkRenew renews all claims. A hub does that twice a second.
func BenchmarkRenew(b *testing.B) {
	s := redistest.Start(b, "--appendfsync", "everysec")
	admin := s.Client()
	r := hubOn(b, s, "p")
	claims, err := r.Acquire(b.Context(), allShards())
	if err != nil {
		b.Fatal(err)
	}
	before := cpu(b, admin)
	aof := info(b, admin, "persistence", "aof_current_size")
	for b.Loop() {
		if held, err := r.Renew(b.Context(), claims); err != nil || len(held) != Shards {
			b.Fatal(len(held), err)
		}
	}
	b.ReportMetric((cpu(b, admin)-before)/float64(b.N), "redis-µs/op")
	b.ReportMetric((info(b, admin, "persistence", "aof_current_size")-aof)/float64(b.N), "aof-B/op")
}

// BenchmarkProgress commits the progress of 64 subscriptions.
func BenchmarkProgress(b *testing.B) {
	const n = 64
	for _, attempts := range []int{0, 10} {
		b.Run(fmt.Sprint("attempts=", attempts), func(b *testing.B) {
			s := redistest.Start(b, "--appendfsync", "everysec")
			admin := s.Client()
			r := hubOn(b, s, "p")
			some := subscriptions(1, 400)
			c := claimOn(b, r, 1)
			if err := r.Commit(b.Context(), c, Changes{Put: some}); err != nil {
				b.Fatal(err)
			}
			before := cpu(b, admin)
			for i := 0; b.Loop(); i++ {
				changes := Changes{Progress: make(map[ID]Progress)}
				for j := range n {
					changes.Progress[some[(i*n+j)%len(some)].ID()] = busy(i, attempts)
				}
				if err := r.Commit(b.Context(), c, changes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpu(b, admin)-before)/float64(b.N)/n, "redis-µs/cursor")
			b.ReportMetric(float64(len(encodeProgress(&Progress{Last: busy(0, attempts).Last, Cursor: busy(0, 0).Cursor}))), "B/cursor")
		})
	}
}

// BenchmarkMany has 100,000 subscriptions to 100 sets. Half of them are to one set.
func BenchmarkMany(b *testing.B) {
	const total = 100_000
	s := redistest.Start(b, "--appendonly", "no")
	admin := s.Client()
	r := hubOn(b, s, "p")
	claims, err := r.Acquire(b.Context(), allShards())
	if err != nil {
		b.Fatal(err)
	}
	put := make([][]Record, Shards)
	size, progress := 0, 0
	for i := range total {
		set := "large"
		if i%2 == 1 {
			set = fmt.Sprint("small", i%99)
		}
		record := typical(set, i)
		if i < 1000 {
			text, _ := encodeSubscription(&record.Subscription, nil)
			size, progress = size+len(text), progress+len(encodeProgress(&record.Progress))
		}
		put[record.ID().Shard()] = append(put[record.ID().Shard()], record)
	}
	empty := info(b, admin, "memory", "used_memory")
	for shard, records := range put {
		if err := r.Commit(b.Context(), claims[shard], Changes{Put: records}); err != nil {
			b.Fatal(err)
		}
	}
	used := (info(b, admin, "memory", "used_memory") - empty) / total
	b.Run("load", func(b *testing.B) { // a shard
		before := cpu(b, admin)
		for i := 0; b.Loop(); i++ {
			n := 0
			for _, err := range r.Load(b.Context(), i%Shards) {
				if n++; err != nil {
					b.Fatal(err)
				}
			}
			if n != len(put[i%Shards]) {
				b.Fatal(n)
			}
		}
		b.ReportMetric((cpu(b, admin)-before)/float64(b.N), "redis-µs/op")
		b.ReportMetric(used, "redis-B/subscription")
		b.ReportMetric(float64(size)/1000, "record-B")
		b.ReportMetric(float64(progress)/1000, "progress-B")
	})
	for _, set := range []string{"large", "small7", "none"} {
		b.Run("list "+set, func(b *testing.B) { // a page
			before := cpu(b, admin)
			for b.Loop() {
				if _, _, err := r.List(b.Context(), set, ID{}, 100); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpu(b, admin)-before)/float64(b.N), "redis-µs/op")
		})
	}
	slow, err := admin.SlowLogGet(b.Context(), 100).Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, entry := range slow {
		b.Logf("slow: %v %.60q", entry.Duration, entry.Args)
	}
}
