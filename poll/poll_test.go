package poll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/internal/keeptest"
)

// A world is some sets and what was done to their sources.
type world struct {
	mu     sync.Mutex
	sets   map[string]feed.State
	looks  []string // the sets that were looked at, with the time in minutes
	fails  map[string]error
	hangs  map[string]bool // looks that end with ctx only
	begun  time.Time
	others map[string]bool // sets that another hub polls
}

func newWorld() *world {
	return &world{sets: map[string]feed.State{}, fails: map[string]error{}, hangs: map[string]bool{}, others: map[string]bool{}, begun: time.Now()}
}

func (w *world) Sets(context.Context, ...string) ([]feed.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.sets)), nil
}

func (w *world) describe(set, source string, every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sets[set] = feed.State{Set: set, Begin: 1, Description: feed.Description{Source: source, Every: every}}
}

func (w *world) look(ctx context.Context, set string, out *Outcome) error {
	w.mu.Lock()
	w.looks = append(w.looks, fmt.Sprintf("%s %d", set, time.Since(w.begun)/time.Minute))
	err, hangs := w.fails[set], w.hangs[set]
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	out.Created = 1
	return err
}

func (w *world) set(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// looked returns the looks since the last call.
func (w *world) looked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	looks := w.looks
	w.looks = nil
	slices.SortStableFunc(looks, func(a, b string) int { // by set: those of one moment come in any order
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return looks
}

func (w *world) run(t *testing.T, o Outcomes) (p *Poller, stop func()) {
	p = New(w, o, w.look, Options{Mine: func(set string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.others[set]
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	return p, func() {
		cancel()
		<-done
	}
}

func (w *world) want(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if got := w.looked(); !slices.Equal(got, want) {
		t.Errorf("looks %q, want %q", got, want)
	}
}

// TestTimes shows when a source is looked at: soon after it is described, at its interval,
// also over a restart; sooner after a failure, but not before a server allows it.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, kept := newWorld(), OnDisk(&keeptest.Map{})
		p, stop := w.run(t, kept)
		w.want(t, 10*time.Minute)
		w.describe("a", "http://example.org/a", 15*time.Minute)
		p.Described()
		w.want(t, time.Second, "a 10")
		w.want(t, 30*time.Minute, "a 25", "a 40")
		stop()

		_, stop = w.run(t, kept)
		w.want(t, 5*time.Minute)
		w.want(t, 15*time.Minute, "a 55")
		w.describe("a", "http://example.org/other", 15*time.Minute) // nobody says so to this hub
		w.want(t, time.Minute, "a 60")

		last, err := Last(t.Context(), kept, "a", 1, "http://example.org/other")
		if err != nil || last == nil || last.Created != 1 || last.Error != "" || last.Next.Sub(last.Time) != 15*time.Minute {
			t.Errorf("the outcome is %+v, %v", last, err)
		}
		for _, other := range []struct {
			begin  int64
			source string
		}{{2, "http://example.org/other"}, {1, "http://example.org/a"}} {
			if last, err := Last(t.Context(), kept, "a", other.begin, other.source); last != nil || err != nil {
				t.Errorf("an outcome of something else: %+v, %v", last, err)
			}
		}

		w.set(func() { w.fails["a"] = errors.New("away") })
		time.Sleep(14*time.Minute + 10*time.Second)
		synctest.Wait()
		failed := w.looked()
		if len(failed) != 1 {
			t.Fatalf("looks %q", failed)
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if n := len(w.looked()); n < 3 || n > 5 { // after one minute, two, four, eight, more or less
			t.Errorf("%d looks in the quarter of an hour after a failure", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(w.looked()); n < 4 || n > 6 {
			t.Errorf("%d looks in an hour when it has failed for long", n)
		}
		if last, err = Last(t.Context(), kept, "a", 1, "http://example.org/other"); err != nil || last.Failures < 7 || last.Error != "away" {
			t.Errorf("the outcome is %+v, %v", last, err)
		}

		w.set(func() { w.fails["a"] = &harvest.Busy{Status: 503, After: 10 * time.Hour} })
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		w.looked()
		w.want(t, 9*time.Hour)
		w.set(func() { delete(w.fails, "a") })
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(w.looked()); n != 1 && n != 2 && n != 3 {
			t.Errorf("%d looks in the hour in which the server may be asked again", n)
		}
		if last, err = Last(t.Context(), kept, "a", 1, "http://example.org/other"); err != nil || last.Failures != 0 || last.Error != "" {
			t.Errorf("the outcome is %+v, %v", last, err)
		}

		w.set(func() { delete(w.sets, "a") })
		time.Sleep(time.Minute) // one more look may begin before the poller sees it
		synctest.Wait()
		w.looked()
		w.want(t, time.Hour)
		if text, err := kept.Get(t.Context(), "a"); text != nil || err != nil {
			t.Errorf("of a set that was deleted, %s is kept, %v", text, err)
		}
		stop()
	})
}

// TestShare shows that a hub leaves the sets of other hubs alone, that few looks are under
// way at a time, and that one that hangs holds up no other, nor the end.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, kept := newWorld(), OnDisk(&keeptest.Map{})
		w.others["theirs"] = true
		w.describe("theirs", "http://example.org/", time.Hour)
		for i := range atOnce - 1 {
			set := fmt.Sprint("hangs", i)
			w.describe(set, "http://example.org/", time.Hour)
			w.hangs[set] = true
		}
		_, stop := w.run(t, kept)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(w.looked()); n != atOnce-1 {
			t.Errorf("%d looks", n)
		}
		w.describe("late", "http://example.org/", 10*time.Minute)
		w.want(t, 30*time.Minute, "late 1", "late 11", "late 21")
		w.set(func() { delete(w.others, "theirs") })
		w.want(t, time.Minute, "late 31", "theirs 31")
		w.set(func() { w.others["late"] = true })
		w.want(t, 20*time.Minute)
		w.set(func() { w.hangs["late"] = true; delete(w.others, "late") })
		time.Sleep(time.Minute)
		synctest.Wait()
		w.looked()
		for i := range 20 {
			w.describe(fmt.Sprint("waits", i), "http://example.org/", time.Hour)
		}
		w.want(t, 10*time.Minute) // four looks hang
		stop()
		if last, err := Last(context.Background(), kept, "hangs0", 1, "http://example.org/"); last != nil || err != nil {
			t.Errorf("a look that the end of the hub has ended has the outcome %+v, %v", last, err)
		}
	})
}
