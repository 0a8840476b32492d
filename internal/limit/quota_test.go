package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// A fakeStore is a Store with a capacity of 1,000 bytes.
type fakeStore struct {
	kept  func(set string) (int64, error)
	maker func(set string) string
}

func (m *fakeStore) SetSize(_ context.Context, set string) (int64, error)  { return m.kept(set) }
func (m *fakeStore) Creator(_ context.Context, set string) (string, error) { return m.maker(set), nil }
func (m *fakeStore) Capacity(context.Context) (int64, error)               { return 1000, nil }

// A quotaTest runs a Quota in fake time on sets with given sizes.
type quotaTest struct {
	*Quota
	*testing.T
	mu    sync.Mutex
	kept  map[string]int64    // size by set
	reads map[string]int      // number of measurements by set
	pass  func(time.Duration) // advances the time
}

// testQuota runs a Quota of most bytes (0 means four fifths of 1,000) until do returns. A set of size 0 does
// not exist.
func testQuota(t *testing.T, most int64, log *slog.Logger, kept map[string]int64, do func(k *quotaTest)) {
	synctest.Test(t, func(t *testing.T) {
		k := &quotaTest{T: t, kept: kept, reads: map[string]int{}, pass: func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}}
		k.Quota = NewQuota(&fakeStore{
			kept: func(set string) (int64, error) {
				k.mu.Lock()
				defer k.mu.Unlock()
				if k.reads[set]++; kept[set] == 0 {
					return 0, feed.ErrNoSet
				}
				return kept[set], nil
			},
			maker: func(set string) string { return strings.TrimRight(set, "123") },
		}, most, true, log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.Quota.Run(ctx) }()
		synctest.Wait()
		do(k)
		cancel()
		<-done
	})
}

// setSize sets the size of a set.
func (k *quotaTest) setSize(set string, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[set] = bytes
}

// wantFull waits, and then checks which sets are full.
func (k *quotaTest) wantFull(after time.Duration, full string) {
	k.Helper()
	k.pass(after)
	var got []string
	for _, set := range slices.Sorted(maps.Keys(k.kept)) {
		if _, ok := k.Full(set); ok {
			got = append(got, set)
		}
	}
	if strings.Join(got, " ") != full {
		k.Errorf("got the full sets %q, want %q", got, full)
	}
}

// A full set is detected within seconds, and a set near its quota is measured often.
func TestQuota(t *testing.T) {
	log := &testutil.Log{}
	testQuota(t, 0, log.Logger(slog.LevelInfo), map[string]int64{"big": 900, "small": 10}, func(k *quotaTest) {
		k.RecordGrowth("big")
		k.RecordGrowth("small")
		k.wantFull(0, "") // before the first measurement
		k.wantFull(quotaInterval+1, "big")
		if most, _ := k.Full("big"); most != 800 {
			t.Errorf("quota = %d, want 800", most)
		}
		k.wantFull(5*quotaInterval, "big")
		if k.reads["big"] < 5 || k.reads["small"] != 1 {
			t.Errorf("got measurements %v, want at least 5 of big and 1 of small", k.reads)
		}
		for range quotaBurst {
			k.RecordGrowth("small")
		}
		k.wantFull(quotaInterval, "big")
		if k.reads["small"] != 2 {
			t.Errorf("got %d measurements of a set with many publishes, want 2", k.reads["small"])
		}
		k.setSize("big", 700)
		k.wantFull(quotaInterval, "")
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "accepts changes again") {
			t.Errorf("got the log %s, want a warning and its end", text)
		}
		k.setSize("big", 0)
		k.setSize("small", 0)
		k.wantFull(2*quotaRetention, "")
		k.Full("missing")
		if len(k.sets) != 0 {
			t.Errorf("got %d sets, want 0", len(k.sets))
		}
	})
}

// The quota applies to all sets of a creator together; sets of others are not affected.
func TestQuotaPerCreator(t *testing.T) {
	sets := map[string]int64{"alice1": 30, "alice2": 40, "alice3": 20, "bob": 60}
	testQuota(t, 100, slog.New(slog.DiscardHandler), sets, func(k *quotaTest) {
		measure := func(full string) {
			t.Helper()
			for set := range sets {
				k.RecordGrowth(set)
			}
			k.wantFull(quotaSlowInterval+quotaInterval, full)
		}
		measure("")
		k.setSize("alice3", 30)
		measure("alice1 alice2 alice3")
		k.setSize("alice2", 0) // deleted
		measure("")
		k.setSize("bob", 100)
		measure("bob")
		k.wantFull(2*quotaRetention, "bob")
		k.setSize("alice1", 80)      // even long after the last publish to alice3
		measure("alice1 alice3 bob") // alice2 does not exist, and may be created by another caller
	})
}

// Full sets of callers without a token do not affect other sets, not even before a new set is measured.
func TestQuotaOfAnyone(t *testing.T) {
	sets := map[string]int64{"1": 100, "bob": 0} // the creator of the first one is unknown
	testQuota(t, 100, slog.New(slog.DiscardHandler), sets, func(k *quotaTest) {
		k.RecordGrowth("1")
		k.wantFull(quotaInterval+1, "1")
		k.setSize("bob", 10)
		k.RecordGrowth("bob")
		k.wantFull(0, "1")
		k.wantFull(quotaInterval, "1")
		k.setSize("bob", 0) // deleted
		k.RecordGrowth("bob")
		k.wantFull(quotaSlowInterval+quotaInterval, "1")
	})
}

// Publishes to many sets neither evict the full ones nor prevent new ones from being measured.
func TestQuotaWithManySets(t *testing.T) {
	t.Parallel()
	q := NewQuota(&fakeStore{kept: func(set string) (int64, error) {
		if strings.HasPrefix(set, "big") {
			return 1000, nil
		}
		return 1, nil
	}}, 800, false, slog.New(slog.DiscardHandler))
	q.RecordGrowth("big1")
	for i := range maxMeasured {
		q.RecordGrowth(fmt.Sprint(i))
	}
	q.measureDue(t.Context(), time.Now())
	for i := range 5000 {
		q.RecordGrowth(fmt.Sprint("more", i))
	}
	q.RecordGrowth("big2")
	q.measureDue(t.Context(), time.Now())
	for _, set := range []string{"big1", "big2"} {
		if _, full := q.Full(set); !full {
			t.Errorf("Full(%q) = false, want true", set)
		}
	}
	if n := len(q.sets); n > maxMeasured {
		t.Errorf("got %d sets, want at most %d", n, maxMeasured)
	}
}

type disk struct{ free, reserve uint64 }

func (d *disk) Space() (free, reserve uint64, err error) { return d.free, d.reserve, nil }

// The temporary files of polls leave space for the change memory, and count towards the quota of the creator.
func TestSpools(t *testing.T) {
	disk := &disk{free: 1000, reserve: 100}
	q := NewQuota(&fakeStore{
		kept:  func(string) (int64, error) { return 300, nil },
		maker: func(set string) string { return set[:1] },
	}, 800, true, slog.New(slog.DiscardHandler))
	q.RecordGrowth("a1")
	q.measureDue(t.Context(), time.Now())
	s := NewSpools(q, disk)
	take := func(set string, bytes int64, want string) {
		t.Helper()
		err := s.Acquire(t.Context(), set, bytes)
		if want == "" && err != nil || want != "" && (!errors.Is(err, feed.ErrFull) || !strings.Contains(err.Error(), want)) {
			t.Errorf("Take(%q, %d) = %v, want %q", set, bytes, err, want)
		}
	}
	take("a2", 200, "")
	take("a3", 200, "")
	take("a2", 350, "the sets of one creator") // 300 + 200 + 350
	take("b1", 700, "")                        // another creator
	take("a3", 0, "")
	take("a2", 350, "")
	disk.free = 300
	take("c1", 101, "free disk space")
	take("c1", 100, "")
	take("a2", 350, "") // no more than before

	s = NewSpools(q, nil) // elsewhere
	take("a1", maxSpools/2, "")
	take("b1", maxSpools/2, "")
	take("c1", 1, "in total")
	take("a1", 0, "")
	take("c1", 1, "")
}
