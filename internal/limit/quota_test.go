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

// A measured is a Store that tests measure. It has room for 1,000 bytes.
type measured struct {
	kept  func(set string) (int64, error)
	maker func(set string) string
}

func (m *measured) Kept(_ context.Context, set string) (int64, error)   { return m.kept(set) }
func (m *measured) Maker(_ context.Context, set string) (string, error) { return m.maker(set), nil }
func (m *measured) Capacity(context.Context) (int64, error)             { return 1000, nil }

// A keeper says what sets keep, and runs a quota in fake time.
type keeper struct {
	*Quota
	*testing.T
	mu    sync.Mutex
	kept  map[string]int64    // by set
	looks map[string]int      // by set
	pass  func(time.Duration) // lets time pass
}

// keeping runs a quota of so many bytes (0: four fifths of 1,000) until do returns. A set that
// keeps nothing is not there.
func keeping(t *testing.T, most int64, log *slog.Logger, kept map[string]int64, do func(k *keeper)) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{T: t, kept: kept, looks: map[string]int{}, pass: func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}}
		k.Quota = NewQuota(&measured{
			kept: func(set string) (int64, error) {
				k.mu.Lock()
				defer k.mu.Unlock()
				if k.looks[set]++; kept[set] == 0 {
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

// keep says what a set keeps from now on.
func (k *keeper) keep(set string, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[set] = bytes
}

// wants waits, and then wants these sets to be full.
func (k *keeper) wants(after time.Duration, full string) {
	k.Helper()
	k.pass(after)
	var got []string
	for _, set := range slices.Sorted(maps.Keys(k.kept)) {
		if _, ok := k.Full(set); ok {
			got = append(got, set)
		}
	}
	if strings.Join(got, " ") != full {
		k.Errorf("full are %q, want %q", got, full)
	}
}

// A set that keeps as much as it may is found within seconds, and a set that is near is
// looked at often.
func TestQuota(t *testing.T) {
	log := &testutil.Log{}
	keeping(t, 0, log.Logger(slog.LevelInfo), map[string]int64{"big": 900, "small": 10}, func(k *keeper) {
		k.Grew("big")
		k.Grew("small")
		k.wants(0, "") // before anybody has looked
		k.wants(quotaEvery+1, "big")
		if most, _ := k.Full("big"); most != 800 {
			t.Errorf("a set may keep %d", most)
		}
		k.wants(5*quotaEvery, "big")
		if k.looks["big"] < 5 || k.looks["small"] != 1 {
			t.Errorf("looks: %v", k.looks)
		}
		for range quotaOften {
			k.Grew("small")
		}
		k.wants(quotaEvery, "big")
		if k.looks["small"] != 2 {
			t.Errorf("%d looks at a set that much was published to", k.looks["small"])
		}
		k.keep("big", 700)
		k.wants(quotaEvery, "")
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "takes changes again") {
			t.Errorf("the log is %s", text)
		}
		k.keep("big", 0)
		k.keep("small", 0)
		k.wants(2*quotaForget, "")
		k.Full("not-there") // nobody could publish to it
		if len(k.sets) != 0 {
			t.Errorf("%d sets are known", len(k.sets))
		}
	})
}

// The sets of one maker keep together no more than one set; those of others go on.
func TestQuotaOfAMaker(t *testing.T) {
	sets := map[string]int64{"alice1": 30, "alice2": 40, "alice3": 20, "bob": 60}
	keeping(t, 100, slog.New(slog.DiscardHandler), sets, func(k *keeper) {
		look := func(full string) {
			t.Helper()
			for set := range sets {
				k.Grew(set)
			}
			k.wants(quotaSeldom+quotaEvery, full)
		}
		look("")
		k.keep("alice3", 30)
		look("alice1 alice2 alice3")
		k.keep("alice2", 0) // it is deleted
		look("")
		k.keep("bob", 100)
		look("bob")
		k.wants(2*quotaForget, "bob")
		k.keep("alice1", 80)      // also after a long time in which nobody published to alice3
		look("alice1 alice3 bob") // alice2 is gone, and whoever makes it anew may be another
	})
}

// What callers without a token have filled does not close the sets of others, not even until a
// new set is measured, or one that is made again.
func TestQuotaOfNobody(t *testing.T) {
	sets := map[string]int64{"1": 100, "bob": 0} // nobody made the first one
	keeping(t, 100, slog.New(slog.DiscardHandler), sets, func(k *keeper) {
		k.Grew("1")
		k.wants(quotaEvery+1, "1")
		k.keep("bob", 10)
		k.Grew("bob")
		k.wants(0, "1")
		k.wants(quotaEvery, "1")
		k.keep("bob", 0) // it is deleted
		k.Grew("bob")
		k.wants(quotaSeldom+quotaEvery, "1")
	})
}

// Whoever publishes to many sets does not get the full ones forgotten, nor keeps new ones
// from being measured.
func TestQuotaOfManySets(t *testing.T) {
	t.Parallel()
	q := NewQuota(&measured{kept: func(set string) (int64, error) {
		if strings.HasPrefix(set, "big") {
			return 1000, nil
		}
		return 1, nil
	}}, 800, false, slog.New(slog.DiscardHandler))
	q.Grew("big1")
	for i := range mostMeasured {
		q.Grew(fmt.Sprint(i))
	}
	q.look(t.Context(), time.Now())
	for i := range 5000 {
		q.Grew(fmt.Sprint("more", i))
	}
	q.Grew("big2")
	q.look(t.Context(), time.Now())
	for _, set := range []string{"big1", "big2"} {
		if _, full := q.Full(set); !full {
			t.Errorf("%s is not full", set)
		}
	}
	if n := len(q.sets); n > mostMeasured {
		t.Errorf("%d sets are measured", n)
	}
}

type disk struct{ free, reserve uint64 }

func (d *disk) Space() (free, reserve uint64, err error) { return d.free, d.reserve, nil }

// The temporary files of looks leave room for the change memory, and count as what the sets
// of their maker keep.
func TestSpools(t *testing.T) {
	disk := &disk{free: 1000, reserve: 100}
	q := NewQuota(&measured{
		kept:  func(string) (int64, error) { return 300, nil },
		maker: func(set string) string { return set[:1] },
	}, 800, true, slog.New(slog.DiscardHandler))
	q.Grew("a1")
	q.look(t.Context(), time.Now())
	s := NewSpools(q, disk)
	take := func(set string, bytes int64, want string) {
		t.Helper()
		err := s.Take(t.Context(), set, bytes)
		if want == "" && err != nil || want != "" && (!errors.Is(err, feed.ErrFull) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s takes %d: %v, want %q", set, bytes, err, want)
		}
	}
	take("a2", 200, "")
	take("a3", 200, "")
	take("a2", 350, "the sets of one maker") // 300 + 200 + 350
	take("b1", 700, "")                      // another one
	take("a3", 0, "")
	take("a2", 350, "")
	disk.free = 300
	take("c1", 101, "the disk has")
	take("c1", 100, "")
	take("a2", 350, "") // it takes no more than it has

	s = NewSpools(q, nil) // in Redis
	take("a1", maxSpools/2, "")
	take("b1", maxSpools/2, "")
	take("c1", 1, "at once")
	take("a1", 0, "")
	take("c1", 1, "")
}
