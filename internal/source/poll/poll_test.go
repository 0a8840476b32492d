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
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// A world is a set of sets whose polls are recorded.
type world struct {
	mu     sync.Mutex
	sets   map[string]feed.State
	polls  []string // polled sets, with the time in minutes
	fails  map[string]error
	hangs  map[string]bool // sets whose polls end only with ctx or release
	freed  chan struct{}
	start  time.Time
	others map[string]bool // sets polled by another hub
}

func newWorld() *world {
	return &world{sets: map[string]feed.State{}, fails: map[string]error{}, hangs: map[string]bool{}, others: map[string]bool{}, freed: make(chan struct{}), start: time.Now()}
}

func (w *world) Sets(_ context.Context, names ...string) (states []feed.State, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if st, ok := w.sets[name]; ok {
			states = append(states, st)
		}
	}
	if len(names) > 0 {
		return states, nil
	}
	return slices.Collect(maps.Values(w.sets)), nil
}

func (w *world) describe(set, source string, every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sets[set] = feed.State{Set: set, Begin: 1, Description: feed.Description{Source: source, Every: every}}
}

func (w *world) poll(ctx context.Context, set string, out *Outcome) error {
	w.mu.Lock()
	w.polls = append(w.polls, fmt.Sprintf("%s %d", set, time.Since(w.start)/time.Minute))
	err, hangs, free := w.fails[set], w.hangs[set], w.freed
	w.mu.Unlock()
	if hangs {
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	out.Created = 1
	return err
}

// release ends the polls that hang.
func (w *world) release() {
	close(w.freed)
	w.freed = make(chan struct{})
}

func (w *world) set(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// takePolls returns the polls since the last call.
func (w *world) takePolls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	polls := w.polls
	w.polls = nil
	slices.SortStableFunc(polls, func(a, b string) int { // by set: polls at the same time come in any order
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return polls
}

func (w *world) run(t *testing.T, o Outcomes, others ...Pings) (p *Poller, stop func()) {
	opts := Options{Owns: func(set string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.others[set]
	}}
	if len(others) > 0 {
		opts.Pings = others[0]
	}
	p = New(w, o, w.poll, opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	return p, func() {
		cancel()
		<-done
	}
}

// pollsAfter lets time pass, and returns the polls since the last call.
func (w *world) pollsAfter(d time.Duration) []string {
	time.Sleep(d) // in fake time
	synctest.Wait()
	return w.takePolls()
}

func (w *world) wantPolls(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	if got := w.pollsAfter(after); !slices.Equal(got, want) {
		t.Errorf("got polls %q, want %q", got, want)
	}
}

func ping(t *testing.T, p *Poller, set string) {
	t.Helper()
	if err := p.Ping(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// A source is polled soon after it is described, then at its interval, also over a restart. After
// a failure it is polled sooner, but not before the server allows it.
func TestPollSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, outcomes := newWorld(), DiskOutcomes(&testutil.Map{})
		p, stop := w.run(t, outcomes)
		w.wantPolls(t, 10*time.Minute)
		w.describe("a", "http://example.org/a", 15*time.Minute)
		p.Rescan()
		w.wantPolls(t, time.Second, "a 10")
		w.wantPolls(t, 30*time.Minute, "a 25", "a 40")
		stop()

		_, stop = w.run(t, outcomes)
		w.wantPolls(t, 5*time.Minute)
		w.wantPolls(t, 15*time.Minute, "a 55")
		w.describe("a", "http://example.org/other", 15*time.Minute) // this hub is not notified
		w.wantPolls(t, time.Minute, "a 60")

		last, err := Last(t.Context(), outcomes, "a", 1, "http://example.org/other")
		if err != nil || last == nil || last.Created != 1 || last.Error != "" || last.Next.Sub(last.Time) != 15*time.Minute {
			t.Errorf("Last() = %+v, %v, want one created resource, and the next poll after 15 minutes", last, err)
		}
		for _, other := range []struct {
			begin  int64
			source string
		}{{2, "http://example.org/other"}, {1, "http://example.org/a"}} {
			if last, err := Last(t.Context(), outcomes, "a", other.begin, other.source); last != nil || err != nil {
				t.Errorf("Last() of another set or source = %+v, %v, want nil", last, err)
			}
		}

		w.set(func() { w.fails["a"] = errors.New("away") })
		failed := w.pollsAfter(14*time.Minute + 10*time.Second)
		if len(failed) != 1 {
			t.Fatalf("got polls %q, want 1", failed)
		}
		if n := len(w.pollsAfter(15 * time.Minute)); n < 3 || n > 5 { // after about 1, 2, 4 and 8 minutes
			t.Errorf("got %d polls in 15 minutes after a failure, want 3 to 5", n)
		}
		if n := len(w.pollsAfter(time.Hour)); n < 4 || n > 6 {
			t.Errorf("got %d polls in an hour after many failures, want 4 to 6", n)
		}
		if last, err = Last(t.Context(), outcomes, "a", 1, "http://example.org/other"); err != nil || last.Failures < 7 || last.Error != "away" {
			t.Errorf("Last() = %+v, %v, want at least 7 failures with the error \"away\"", last, err)
		}

		w.set(func() { w.fails["a"] = &harvest.Busy{Status: 503, After: 10 * time.Hour} })
		w.pollsAfter(16 * time.Minute)
		w.wantPolls(t, 9*time.Hour)
		w.set(func() { delete(w.fails, "a") })
		if n := len(w.pollsAfter(time.Hour)); n != 1 && n != 2 && n != 3 {
			t.Errorf("got %d polls in the hour after Retry-After, want 1 to 3", n)
		}
		if last, err = Last(t.Context(), outcomes, "a", 1, "http://example.org/other"); err != nil || last.Failures != 0 || last.Error != "" {
			t.Errorf("Last() = %+v, %v, want no failure", last, err)
		}

		w.set(func() { delete(w.sets, "a") })
		w.pollsAfter(time.Minute) // one more poll may start before the poller sees it
		w.wantPolls(t, time.Hour)
		if text, err := outcomes.Get(t.Context(), "a"); text != nil || err != nil {
			t.Errorf("Get() of a deleted set = %s, %v, want nil", text, err)
		}
		stop()
	})
}

func TestRedactURLs(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"path and query", "list 2 of the index (https://a.example:81/secret?…): entry 1 (http://b.example/c): the answer is 404",
			"list 2 of the index (https://a.example:81/…): entry 1 (http://b.example/…): the answer is 404"},
		{"query without a path", "entry 1 (https://a.example?token=secret): change: got deleted", "entry 1 (https://a.example/…): change: got deleted"},
		{"fragment without a path", "read https://a.example#secret: no", "read https://a.example/…: no"},
		{"user and password", "read https://user:secret@a.example: no", "read https://a.example: no"},
		{"user, password and query", "read https://user:secret@a.example?secret: no", "read https://a.example/…: no"},
		{"parentheses in the path", "entry 1 (https://a.example/a(1)?token=secret): no", "entry 1 (https://a.example/…): no"},
		{"quoted", `read "https://a.example/secret": no`, `read "https://a.example/…": no`},
		{"upper case", "read HTTPS://a.example?secret", "read HTTPS://a.example/…"},
		{"only a host", "read http://a.example: no", "read http://a.example: no"},
		{"no URL", "away", "away"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := redactURLs(tt.text); got != tt.want {
				t.Errorf("redactURLs(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

// A ping starts a poll, pings during a poll start one more, and a failed poll is retried a few
// times.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p, stop := w.run(t, DiskOutcomes(&testutil.Map{}))
		for range 2 {
			if err := p.Ping(t.Context(), "a"); !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), `/a with {"changelist"`) {
				t.Errorf("Ping() of a set without a list = %v, want ErrInvalid with advice", err)
			}
			w.set(func() { w.sets["a"] = feed.State{Set: "a", Begin: 1} })
		}
		w.set(func() {
			w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
			w.hangs["a"] = true
		})
		w.wantPolls(t, time.Hour)
		ping(t, p, "a")
		w.wantPolls(t, time.Second, "a 60")
		for range 20 {
			ping(t, p, "a")
		}
		time.Sleep(time.Second)
		w.set(func() { w.hangs["a"] = false; w.release() })
		w.wantPolls(t, time.Second, "a 60")
		w.wantPolls(t, time.Hour)

		w.set(func() { w.fails["a"] = errors.New("away") })
		for range 2 {
			ping(t, p, "a")
			if n := len(w.pollsAfter(time.Hour)); n != 1+len(pingRetries) {
				t.Errorf("got %d polls for a ping, want %d", n, 1+len(pingRetries))
			}
		}
		// The set is described with another list, and then with a source that is polled.
		w.set(func() {
			delete(w.fails, "a")
			w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://b.example/"}}
		})
		ping(t, p, "a")
		w.wantPolls(t, time.Hour, "a 240")
		w.describe("a", "http://c.example/", 30*time.Minute)
		p.Rescan()
		w.wantPolls(t, 10*time.Minute, "a 300")
		ping(t, p, "a")
		w.wantPolls(t, 35*time.Minute, "a 310", "a 340")
		stop()
		if err := p.Ping(context.Background(), "a"); !errors.Is(err, feed.ErrUnavailable) {
			t.Errorf("Ping() after Run = %v, want ErrUnavailable", err)
		}
	})
}

// An answered ping leads to a poll, even if the hub stops before the poll has succeeded: by the
// same hub later, or by another one. A successful poll is not repeated.
func TestPingSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, outcomes := newWorld(), DiskOutcomes(&testutil.Map{})
		w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
		w.hangs["a"] = true
		p, stop := w.run(t, outcomes)
		ping(t, p, "a")
		w.wantPolls(t, time.Second, "a 0")
		stop()
		w.set(func() { w.hangs["a"] = false; w.others["a"] = true })
		_, stop = w.run(t, outcomes)
		w.wantPolls(t, time.Hour)
		w.set(func() { delete(w.others, "a") })
		w.wantPolls(t, time.Minute, "a 60")
		w.wantPolls(t, time.Hour)
		stop()
		p, stop = w.run(t, outcomes)
		w.wantPolls(t, time.Hour)
		ping(t, p, "a")
		w.wantPolls(t, time.Second, "a 181")
		w.wantPolls(t, time.Hour)
		stop()
	})
}

// A ping that another hub received reaches the hub that polls the source.
func TestPingAtAnotherHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, shared := newWorld(), &memoryPings{}
		w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
		w.others["a"] = true
		p, stop := w.run(t, DiskOutcomes(&testutil.Map{}), shared)
		ping(t, p, "a")
		w.wantPolls(t, time.Hour)
		w.set(func() { delete(w.others, "a") }) // as at another hub
		w.wantPolls(t, 2*time.Second, "a 60")
		w.wantPolls(t, time.Hour)
		stop()
	})
}

// A ping that arrives before this hub owns its sets waits until then.
func TestPingBeforeOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
		w.others["a"] = true
		p, stop := w.run(t, DiskOutcomes(&testutil.Map{}))
		ping(t, p, "a")
		w.wantPolls(t, time.Minute)
		w.set(func() { delete(w.others, "a") })
		w.wantPolls(t, 2*scanEvery, "a 1")
		w.wantPolls(t, time.Hour)
		stop()
	})
}

// A memoryPings is Pings in memory.
type memoryPings struct {
	mu   sync.Mutex
	sets []string
}

func (p *memoryPings) Add(_ context.Context, set string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sets = append(p.sets, set)
	return nil
}

func (p *memoryPings) TakeOwned(_ context.Context, owned func(string) bool) (taken []string, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sets = slices.DeleteFunc(p.sets, func(set string) bool {
		if owned(set) {
			taken = append(taken, set)
			return true
		}
		return false
	})
	return taken, nil
}

// The poll of another source waits at most until the slow polls before it are demoted. Slow
// sources of one host or one creator do not delay it at all.
func TestSlowSources(t *testing.T) {
	for name, test := range map[string]struct {
		url, by func(i int) string
		n       int
		most    time.Duration
	}{
		"hostile":        {func(i int) string { return fmt.Sprintf("http://slow%d.org/", i) }, func(i int) string { return fmt.Sprint("maker", i) }, 40, 20 * time.Second},
		"few":            {func(i int) string { return fmt.Sprintf("http://slow%d.org/", i) }, func(i int) string { return fmt.Sprint("maker", i) }, 4, quickTime},
		"of one host":    {func(i int) string { return fmt.Sprintf("http://slow%d.example.org/", i) }, func(i int) string { return fmt.Sprint("maker", i) }, 40, 0},
		"of one creator": {func(i int) string { return fmt.Sprintf("http://slow%d.org/", i) }, func(int) string { return "maker" }, 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				for i := range test.n {
					set := fmt.Sprint("slow", i)
					w.sets[set] = feed.State{Set: set, Begin: 1, Description: feed.Description{By: test.by(i), Source: test.url(i), Every: time.Minute}}
					w.hangs[set] = true
				}
				_, stop := w.run(t, DiskOutcomes(&testutil.Map{}))
				defer stop()
				time.Sleep(scanEvery)
				synctest.Wait()
				w.set(func() {
					w.sets["good"] = feed.State{Set: "good", Begin: 1, Description: feed.Description{By: "good", Source: "http://good.example/", Every: 15 * time.Minute}}
				})
				begin := time.Now()
				found := func() bool {
					return slices.ContainsFunc(w.takePolls(), func(poll string) bool { return strings.HasPrefix(poll, "good") })
				}
				for !found() {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					if time.Since(begin) > time.Hour {
						t.Fatal("good source was not polled within an hour")
					}
				}
				if waited := time.Since(begin); waited > test.most+scanEvery+200*time.Millisecond {
					t.Errorf("good source waited for %v, want at most %v", waited, test.most+scanEvery)
				}
			})
		})
	}
}

// While a canceled poll has not ended, Run sleeps instead of spinning. The set that waits for the
// same host shows each iteration.
func TestCanceledPollIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range maxSlow {
			set := fmt.Sprint("hangs", i)
			w.describe(set, fmt.Sprintf("http://example%d.org/", i), time.Hour)
			w.hangs[set] = true
		}
		rounds, unblock := 0, make(chan struct{})
		poll := func(ctx context.Context, set string, out *Outcome) error {
			if w.hangs[set] {
				return w.poll(ctx, set, out)
			}
			<-ctx.Done()
			<-unblock
			return ctx.Err()
		}
		p := New(w, DiskOutcomes(&testutil.Map{}), poll, Options{Owns: func(set string) bool {
			if !w.hangs[set] {
				if rounds++; rounds == 1000 {
					close(unblock) // otherwise the fake time does not advance
				}
			}
			return true
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		time.Sleep(time.Minute) // all slow slots are taken
		w.describe("tough", "http://tough.example/", time.Hour)
		w.describe("waits", "http://tough.example/", time.Hour)
		time.Sleep(time.Minute)
		synctest.Wait()
		if rounds > 100 {
			t.Errorf("got %d iterations of Run within a minute, want at most 100", rounds)
		} else {
			close(unblock)
		}
		cancel()
		<-done
	})
}

// A hub does not poll the sets of other hubs. The number of concurrent polls is limited, and one
// that hangs delays neither the others nor the end of Run.
func TestConcurrentPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, outcomes := newWorld(), DiskOutcomes(&testutil.Map{})
		w.others["theirs"] = true
		w.describe("theirs", "http://theirs.example/", time.Hour)
		for i := range maxSlow {
			set := fmt.Sprint("hangs", i)
			w.describe(set, fmt.Sprintf("http://example%d.org/", i), time.Hour)
			w.hangs[set] = true
		}
		_, stop := w.run(t, outcomes)
		if n := len(w.pollsAfter(time.Minute)); n != maxSlow {
			t.Errorf("got %d polls, want %d", n, maxSlow)
		}
		w.describe("late", "http://late.example/", 10*time.Minute)
		w.wantPolls(t, 30*time.Minute, "late 1", "late 11", "late 21")
		w.set(func() { delete(w.others, "theirs") })
		w.wantPolls(t, time.Minute, "late 31", "theirs 31")
		w.set(func() { w.others["late"] = true })
		w.wantPolls(t, 20*time.Minute)
		w.set(func() { w.hangs["late"] = true; delete(w.others, "late") })
		w.pollsAfter(time.Minute)
		// Another poll that hangs finds no slow slot, and delays no other.
		w.describe("next", "http://next.example/", 10*time.Minute)
		w.wantPolls(t, 25*time.Minute, "next 53", "next 63", "next 73")
		w.wantPolls(t, 20*time.Minute, "next 83", "next 93", "theirs 91")
		stop()
		if last, err := Last(context.Background(), outcomes, "hangs0", 1, "http://example0.org/"); last != nil || err != nil {
			t.Errorf("Last() of a canceled poll = %+v, %v, want nil", last, err)
		}
	})
}
