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

// A world is some sets and what was done to their sources.
type world struct {
	mu     sync.Mutex
	sets   map[string]feed.State
	looks  []string // the sets that were looked at, with the time in minutes
	fails  map[string]error
	hangs  map[string]bool // looks that end with ctx only, or with release
	free   chan struct{}
	begun  time.Time
	others map[string]bool // sets that another hub polls
}

func newWorld() *world {
	return &world{sets: map[string]feed.State{}, fails: map[string]error{}, hangs: map[string]bool{}, others: map[string]bool{}, free: make(chan struct{}), begun: time.Now()}
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

func (w *world) look(ctx context.Context, set string, out *Outcome) error {
	w.mu.Lock()
	w.looks = append(w.looks, fmt.Sprintf("%s %d", set, time.Since(w.begun)/time.Minute))
	err, hangs, free := w.fails[set], w.hangs[set], w.free
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

// release ends the looks that hang.
func (w *world) release() {
	close(w.free)
	w.free = make(chan struct{})
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

func (w *world) run(t *testing.T, o Outcomes, others ...Pings) (p *Poller, stop func()) {
	opts := Options{Mine: func(set string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.others[set]
	}}
	if len(others) > 0 {
		opts.Pings = others[0]
	}
	p = New(w, o, w.look, opts)
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

// after lets time pass, and returns the looks since the last call.
func (w *world) after(d time.Duration) []string {
	time.Sleep(d) // in fake time
	synctest.Wait()
	return w.looked()
}

func (w *world) want(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	if got := w.after(after); !slices.Equal(got, want) {
		t.Errorf("looks %q, want %q", got, want)
	}
}

func ping(t *testing.T, p *Poller, set string) {
	t.Helper()
	if err := p.Ping(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// TestTimes shows when a source is looked at: soon after it is described, at its interval,
// also over a restart; sooner after a failure, but not before a server allows it.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, kept := newWorld(), OnDisk(&testutil.Map{})
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
		failed := w.after(14*time.Minute + 10*time.Second)
		if len(failed) != 1 {
			t.Fatalf("looks %q", failed)
		}
		if n := len(w.after(15 * time.Minute)); n < 3 || n > 5 { // after one minute, two, four, eight, more or less
			t.Errorf("%d looks in the quarter of an hour after a failure", n)
		}
		if n := len(w.after(time.Hour)); n < 4 || n > 6 {
			t.Errorf("%d looks in an hour when it has failed for long", n)
		}
		if last, err = Last(t.Context(), kept, "a", 1, "http://example.org/other"); err != nil || last.Failures < 7 || last.Error != "away" {
			t.Errorf("the outcome is %+v, %v", last, err)
		}

		w.set(func() { w.fails["a"] = &harvest.Busy{Status: 503, After: 10 * time.Hour} })
		w.after(16 * time.Minute)
		w.want(t, 9*time.Hour)
		w.set(func() { delete(w.fails, "a") })
		if n := len(w.after(time.Hour)); n != 1 && n != 2 && n != 3 {
			t.Errorf("%d looks in the hour in which the server may be asked again", n)
		}
		if last, err = Last(t.Context(), kept, "a", 1, "http://example.org/other"); err != nil || last.Failures != 0 || last.Error != "" {
			t.Errorf("the outcome is %+v, %v", last, err)
		}

		w.set(func() { delete(w.sets, "a") })
		w.after(time.Minute) // one more look may begin before the poller sees it
		w.want(t, time.Hour)
		if text, err := kept.Get(t.Context(), "a"); text != nil || err != nil {
			t.Errorf("of a set that was deleted, %s is kept, %v", text, err)
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

// TestPing shows that a ping begins a look, that one more follows for those that come during
// a look, and that a look which fails is tried again a few times.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p, stop := w.run(t, OnDisk(&testutil.Map{}))
		for range 2 {
			if err := p.Ping(t.Context(), "a"); !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), `/a with {"changelist"`) {
				t.Errorf("without a list: %v", err)
			}
			w.set(func() { w.sets["a"] = feed.State{Set: "a", Begin: 1} })
		}
		w.set(func() {
			w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
			w.hangs["a"] = true
		})
		w.want(t, time.Hour)
		ping(t, p, "a")
		w.want(t, time.Second, "a 60")
		for range 20 {
			ping(t, p, "a")
		}
		time.Sleep(time.Second)
		w.set(func() { w.hangs["a"] = false; w.release() })
		w.want(t, time.Second, "a 60")
		w.want(t, time.Hour)

		w.set(func() { w.fails["a"] = errors.New("away") })
		for range 2 {
			ping(t, p, "a")
			if n := len(w.after(time.Hour)); n != 1+len(pingAgain) {
				t.Errorf("%d looks for a ping", n)
			}
		}
		// The set is described with another list, and then with a source that is polled.
		w.set(func() {
			delete(w.fails, "a")
			w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://b.example/"}}
		})
		ping(t, p, "a")
		w.want(t, time.Hour, "a 240")
		w.describe("a", "http://c.example/", 30*time.Minute)
		p.Described()
		w.want(t, 10*time.Minute, "a 300")
		ping(t, p, "a")
		w.want(t, 35*time.Minute, "a 310", "a 340")
		stop()
		if err := p.Ping(context.Background(), "a"); !errors.Is(err, feed.ErrUnavailable) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A ping that was answered is looked at, even if the hub ends before the look has: by the same
// hub later, or by another one. A look that has ended is not made again.
func TestPingOutlivesTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, kept := newWorld(), OnDisk(&testutil.Map{})
		w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
		w.hangs["a"] = true
		p, stop := w.run(t, kept)
		ping(t, p, "a")
		w.want(t, time.Second, "a 0")
		stop()
		w.set(func() { w.hangs["a"] = false; w.others["a"] = true })
		_, stop = w.run(t, kept)
		w.want(t, time.Hour)
		w.set(func() { delete(w.others, "a") })
		w.want(t, time.Minute, "a 60")
		w.want(t, time.Hour)
		stop()
		p, stop = w.run(t, kept)
		w.want(t, time.Hour)
		ping(t, p, "a")
		w.want(t, time.Second, "a 181")
		w.want(t, time.Hour)
		stop()
	})
}

// A ping that another hub got reaches the hub that looks at the source.
func TestPingOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, shared := newWorld(), &pinged{}
		w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
		w.others["a"] = true
		p, stop := w.run(t, OnDisk(&testutil.Map{}), shared)
		ping(t, p, "a")
		w.want(t, time.Hour)
		w.set(func() { delete(w.others, "a") }) // what another hub would do
		w.want(t, 2*time.Second, "a 60")
		w.want(t, time.Hour)
		stop()
	})
}

// A ping that comes before this hub has its sets waits for them.
func TestPingAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.sets["a"] = feed.State{Set: "a", Begin: 1, Description: feed.Description{ChangeList: "http://a.example/"}}
		w.others["a"] = true
		p, stop := w.run(t, OnDisk(&testutil.Map{}))
		ping(t, p, "a")
		w.want(t, time.Minute)
		w.set(func() { delete(w.others, "a") })
		w.want(t, 2*scanEvery, "a 1")
		w.want(t, time.Hour)
		stop()
	})
}

// A pinged is Pings in memory.
type pinged struct {
	mu   sync.Mutex
	sets []string
}

func (p *pinged) Add(_ context.Context, set string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sets = append(p.sets, set)
	return nil
}

func (p *pinged) Take(_ context.Context, mine func(string) bool) (taken []string, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sets = slices.DeleteFunc(p.sets, func(set string) bool {
		if mine(set) {
			taken = append(taken, set)
			return true
		}
		return false
	})
	return taken, nil
}

// Sources that let the hub wait delay the look at another by two seconds at most. Those of one
// place, or of one maker, delay it not at all.
func TestSlow(t *testing.T) {
	for name, test := range map[string]struct {
		url, by func(i int) string
		n       int
		most    time.Duration
	}{
		"hostile":      {func(i int) string { return fmt.Sprintf("http://slow%d.org/", i) }, func(i int) string { return fmt.Sprint("maker", i) }, 40, 20 * time.Second},
		"few":          {func(i int) string { return fmt.Sprintf("http://slow%d.org/", i) }, func(i int) string { return fmt.Sprint("maker", i) }, 4, quickTime},
		"of one place": {func(i int) string { return fmt.Sprintf("http://slow%d.example.org/", i) }, func(i int) string { return fmt.Sprint("maker", i) }, 40, 0},
		"of one maker": {func(i int) string { return fmt.Sprintf("http://slow%d.org/", i) }, func(int) string { return "maker" }, 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				for i := range test.n {
					set := fmt.Sprint("slow", i)
					w.sets[set] = feed.State{Set: set, Begin: 1, Description: feed.Description{By: test.by(i), Source: test.url(i), Every: time.Minute}}
					w.hangs[set] = true
				}
				_, stop := w.run(t, OnDisk(&testutil.Map{}))
				defer stop()
				time.Sleep(scanEvery)
				synctest.Wait()
				w.set(func() {
					w.sets["good"] = feed.State{Set: "good", Begin: 1, Description: feed.Description{By: "good", Source: "http://good.example/", Every: 15 * time.Minute}}
				})
				begin := time.Now()
				found := func() bool {
					return slices.ContainsFunc(w.looked(), func(look string) bool { return strings.HasPrefix(look, "good") })
				}
				for !found() {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					if time.Since(begin) > time.Hour {
						t.Fatal("nobody looked at the good source")
					}
				}
				if waited := time.Since(begin); waited > test.most+scanEvery+200*time.Millisecond {
					t.Errorf("the good source waited for %v", waited)
				}
			})
		})
	}
}

// While a look that was ended takes its time to end, the poller does nothing. It went round and
// round: the set that waits for the same place shows each round.
func TestEndedLookIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range slowLooks {
			set := fmt.Sprint("hangs", i)
			w.describe(set, fmt.Sprintf("http://example%d.org/", i), time.Hour)
			w.hangs[set] = true
		}
		rounds, free := 0, make(chan struct{})
		look := func(ctx context.Context, set string, out *Outcome) error {
			if w.hangs[set] {
				return w.look(ctx, set, out)
			}
			<-ctx.Done()
			<-free
			return ctx.Err()
		}
		p := New(w, OnDisk(&testutil.Map{}), look, Options{Mine: func(set string) bool {
			if !w.hangs[set] {
				if rounds++; rounds == 1000 {
					close(free) // otherwise the fake time stands still
				}
			}
			return true
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		time.Sleep(time.Minute) // the room for slow looks is full
		w.describe("tough", "http://tough.example/", time.Hour)
		w.describe("waits", "http://tough.example/", time.Hour)
		time.Sleep(time.Minute)
		synctest.Wait()
		if rounds > 100 {
			t.Errorf("the poller looked %d times within a minute whether there is something to do", rounds)
		} else {
			close(free)
		}
		cancel()
		<-done
	})
}

// TestShare shows that a hub leaves the sets of other hubs alone, that few looks are under
// way at a time, and that one that hangs holds up no other, nor the end.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, kept := newWorld(), OnDisk(&testutil.Map{})
		w.others["theirs"] = true
		w.describe("theirs", "http://theirs.example/", time.Hour)
		for i := range slowLooks {
			set := fmt.Sprint("hangs", i)
			w.describe(set, fmt.Sprintf("http://example%d.org/", i), time.Hour)
			w.hangs[set] = true
		}
		_, stop := w.run(t, kept)
		if n := len(w.after(time.Minute)); n != slowLooks {
			t.Errorf("%d looks", n)
		}
		w.describe("late", "http://late.example/", 10*time.Minute)
		w.want(t, 30*time.Minute, "late 1", "late 11", "late 21")
		w.set(func() { delete(w.others, "theirs") })
		w.want(t, time.Minute, "late 31", "theirs 31")
		w.set(func() { w.others["late"] = true })
		w.want(t, 20*time.Minute)
		w.set(func() { w.hangs["late"] = true; delete(w.others, "late") })
		w.after(time.Minute)
		// Another one that hangs finds no room among the slow ones, and keeps nobody waiting.
		w.describe("next", "http://next.example/", 10*time.Minute)
		w.want(t, 25*time.Minute, "next 53", "next 63", "next 73")
		w.want(t, 20*time.Minute, "next 83", "next 93", "theirs 91")
		stop()
		if last, err := Last(context.Background(), kept, "hangs0", 1, "http://example0.org/"); last != nil || err != nil {
			t.Errorf("a look that the end of the hub has ended has the outcome %+v, %v", last, err)
		}
	})
}
