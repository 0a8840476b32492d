package hub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// An appendGate blocks the first Append until the test opens it, and records the arguments of
// each Append.
type appendGate struct {
	entered chan struct{} // closed when the first Append is called
	open    chan struct{}
	fail    func(call int) error

	mu    sync.Mutex
	calls [][]changelog.Publish
}

func newAppendGate(log *testLog) *appendGate {
	g := &appendGate{entered: make(chan struct{}), open: make(chan struct{})}
	log.onAppend = func(_ context.Context, publishes []changelog.Publish) error {
		g.mu.Lock()
		g.calls = append(g.calls, slices.Clone(publishes))
		n := len(g.calls)
		g.mu.Unlock()
		if n == 1 {
			close(g.entered)
			<-g.open
		}
		if g.fail != nil {
			return g.fail(n)
		}
		return nil
	}
	return g
}

// waitPending blocks until n publishes wait in the queue of a set.
func waitPending(h *Hub, set string, n int) {
	for {
		h.mu.Lock()
		q := h.queues[set]
		ready := q != nil && len(q.pending) == n
		h.mu.Unlock()
		if ready {
			return
		}
		runtime.Gosched()
	}
}

type publishResult struct {
	name string
	a    changelog.Appended
	err  error
}

// holdFirstAppend creates a set, and publishes one change whose Append is blocked by the gate.
func holdFirstAppend(ctx context.Context, t *testing.T, h *Hub, log *testLog) (*appendGate, chan publishResult) {
	t.Helper()
	if err := log.Make(t.Context(), "demo", feed.Description{}, 10_000); err != nil {
		t.Fatal(err)
	}
	g := newAppendGate(log)
	answers := make(chan publishResult, 200)
	startPublish(ctx, h, "first", changes("first", 1), answers)
	<-g.entered
	return g, answers
}

func startPublish(ctx context.Context, h *Hub, name string, cs []resourcesync.Change, answers chan<- publishResult) {
	go func() {
		a, err := h.Publish(ctx, "demo", changelog.Publish{Changes: cs})
		answers <- publishResult{name, a, err}
	}()
}

func TestGather(t *testing.T) {
	h, log := newHub(t, Options{})
	g, answers := holdFirstAppend(t.Context(), t, h, log)
	const n = 50
	for i := range n {
		startPublish(t.Context(), h, fmt.Sprint(i), changes(fmt.Sprint(i), i%3+1), answers)
	}
	waitPending(h, "demo", n)
	close(g.open)
	got := make([]publishResult, 0, n+1)
	for range n + 1 {
		got = append(got, <-answers)
	}
	h.Close()
	if len(g.calls) != 2 || len(g.calls[1]) != n {
		t.Errorf("%d calls of Append, want 2: the second for all gathered publishes", len(g.calls))
	}
	// Each publish is a batch of its own. Its receipt says exactly where its own
	// changes are.
	slices.SortFunc(got, func(a, b publishResult) int { return int(a.a.After.Position) - int(b.a.After.Position) })
	all := locs(t, log, "demo")
	end := feed.Cursor{}
	for i, a := range got {
		if a.err != nil {
			t.Fatal(a.err)
		}
		if i > 0 && a.a.After != end {
			t.Errorf("publish %s starts after %v, want %v", a.name, a.a.After, end)
		}
		end = a.a.Cursor
		for _, loc := range all[a.a.After.Position:a.a.Cursor.Position] {
			if !strings.HasPrefix(loc, "https://example.org/"+a.name+"/") {
				t.Errorf("got %s in the entries of publish %s", loc, a.name)
			}
		}
	}
	if int(end.Position) != len(all) {
		t.Errorf("the last publish ends at %v, but the log has %d entries", end, len(all))
	}
}

func TestGatherBounds(t *testing.T) {
	large := func(name string, bytes int) []resourcesync.Change {
		cs := changes(name, 1)
		cs[0].Hash = strings.Repeat("a", bytes)
		return cs
	}
	for _, test := range []struct {
		name    string
		waiting [][]resourcesync.Change
		want    []int // publishes in each call that follows
	}{
		{"entries", [][]resourcesync.Change{changes("a", 4000), changes("b", 4000), changes("c", 4000), changes("d", 1)}, []int{2, 2}},
		{"exactly", [][]resourcesync.Change{changes("a", 5000), changes("b", 5000), changes("c", 1)}, []int{2, 1}},
		{"a single one may be larger", [][]resourcesync.Change{changes("a", 1), changes("b", 20_000), changes("c", 1)}, []int{1, 1, 1}},
		{"bytes", [][]resourcesync.Change{large("a", 2<<20), large("b", 1<<20), large("c", 2<<20)}, []int{2, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{})
			g, answers := holdFirstAppend(t.Context(), t, h, log)
			for i, cs := range test.waiting {
				startPublish(t.Context(), h, "", cs, answers)
				waitPending(h, "demo", i+1) // the order matters here
			}
			close(g.open)
			for range len(test.waiting) + 1 {
				if a := <-answers; a.err != nil {
					t.Error(a.err)
				}
			}
			h.Close()
			var got []int
			for _, call := range g.calls[1:] {
				got = append(got, len(call))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("calls of Append have %v publishes, want %v", got, test.want)
			}
		})
	}
}

// A publish whose context is canceled while it waits writes nothing. If the append is already
// in progress, the publish still gets its result.
func TestPublishCanceled(t *testing.T) {
	h, log := newHub(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	g, answers := holdFirstAppend(ctx, t, h, log)
	startPublish(ctx, h, "waiting", changes("second", 1), answers)
	waitPending(h, "demo", 1)
	cancel()
	if a := <-answers; a.name != "waiting" || !errors.Is(a.err, context.Canceled) {
		t.Fatalf("first result = %+v", a)
	}
	if _, err := h.Publish(ctx, "demo", changelog.Publish{Changes: changes("third", 1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Publish with a canceled context = %v", err)
	}
	close(g.open)
	if a := <-answers; a.name != "first" || a.err != nil || a.a.Cursor.Position != 1 {
		t.Fatalf("second result = %+v", a)
	}
	h.Close()
	if got := locs(t, log, "demo"); !slices.Equal(got, []string{"https://example.org/first/0"}) {
		t.Errorf("the log has %v", got)
	}
}

func TestAppendFailsForAll(t *testing.T) {
	for _, want := range []error{feed.ErrFull, feed.ErrUnknown, feed.ErrClock, feed.ErrUnavailable} {
		t.Run(want.Error(), func(t *testing.T) {
			h, log := newHub(t, Options{})
			g, answers := holdFirstAppend(t.Context(), t, h, log)
			g.fail = func(call int) error {
				if call == 2 {
					return want
				}
				return nil
			}
			for range 5 {
				startPublish(t.Context(), h, "gathered", changes("b", 1), answers)
			}
			waitPending(h, "demo", 5)
			close(g.open)
			for range 6 {
				a := <-answers
				if a.name == "first" && a.err != nil || a.name != "first" && !errors.Is(a.err, want) {
					t.Errorf("%s: %v", a.name, a.err)
				}
			}
			mustPublish(t, h, "demo", changes("c", 1))
			h.Close()
			if n := len(locs(t, log, "demo")); n != 2 {
				t.Errorf("%d changes, want 2", n)
			}
		})
	}
}

// If the result of an append is lost but the memory has the changes, followers receive them
// without waiting for the hub's next check of the memory.
func TestUnknownAppendIsRead(t *testing.T) {
	h, log := newHub(t, Options{})
	head := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	r := startFollower(t, h, "demo", head)
	end := mustPublish(t, h, "demo", changes("b", 1)).Cursor // now the window has what the follower is at
	r.readTo(t, end)
	log.mu.Lock()
	log.onAppend = func(ctx context.Context, publishes []changelog.Publish) error {
		a, err := log.Log.Append(ctx, "demo", publishes...)
		if err != nil {
			return err
		}
		end = a[0].Cursor
		return fmt.Errorf("append: %w", feed.ErrUnknown)
	}
	log.mu.Unlock()
	if _, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: changes("c", 1)}); !errors.Is(err, feed.ErrUnknown) {
		t.Fatalf("Publish() = %v, want ErrUnknown", err)
	}
	select {
	case batches := <-r.yields:
		if got := batches[len(batches)-1].Cursor; got != end {
			t.Errorf("the follower is at %v, want %v", got, end)
		}
	case <-time.After(time.Minute):
		t.Error("the follower was not woken")
	}
	closeReaders(t, r)
}

// A publish refused because its key was used with other content does not affect the publishes
// gathered with it.
func TestKeyReusedAmongGathered(t *testing.T) {
	h, log := newHub(t, Options{})
	g, answers := holdFirstAppend(t.Context(), t, h, log)
	keyed := func(name string, hash byte) {
		go func() {
			a, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: changes(name, 1), Key: "k", Hash: [32]byte{hash}})
			answers <- publishResult{name, a, err}
		}()
	}
	keyed("a", 1)
	waitPending(h, "demo", 1)
	keyed("b", 2)
	waitPending(h, "demo", 2)
	keyed("again", 1)
	waitPending(h, "demo", 3)
	close(g.open)
	got := map[string]publishResult{}
	for range 4 {
		a := <-answers
		got[a.name] = a
	}
	h.Close()
	if !errors.Is(got["b"].err, feed.ErrKeyReused) || got["a"].err != nil || got["first"].err != nil {
		t.Errorf("results = %+v", got)
	}
	if a := got["again"]; a.err != nil || !a.a.Replayed || a.a.Cursor != got["a"].a.Cursor {
		t.Errorf("retry = %+v, want a replay of %+v", a, got["a"])
	}
	if n := len(locs(t, log, "demo")); n != 2 {
		t.Errorf("%d changes, want 2", n)
	}
}

// A deletion is executed in the order of the queue. Publishes before it are deleted with the
// set, and publishes after it create the set again.
func TestDeleteIsQueued(t *testing.T) {
	h, log := newHub(t, Options{})
	g, answers := holdFirstAppend(t.Context(), t, h, log)
	startPublish(t.Context(), h, "before", changes("before", 1), answers)
	waitPending(h, "demo", 1)
	deleted := make(chan error)
	go func() { deleted <- h.Delete(t.Context(), "demo") }()
	waitPending(h, "demo", 2)
	startPublish(t.Context(), h, "after", changes("after", 1), answers)
	waitPending(h, "demo", 3)
	close(g.open)
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	for range 3 {
		if a := <-answers; a.err != nil {
			t.Errorf("%s: %v", a.name, a.err)
		}
	}
	h.Close()
	if got := locs(t, log, "demo"); !slices.Equal(got, []string{"https://example.org/after/0"}) {
		t.Errorf("the log has %v", got)
	}
	if err := New(log, Options{}).Delete(t.Context(), "other"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("Delete of a nonexistent set = %v, want ErrNoSet", err)
	}
}

// While nothing can be added, a retry of an accepted publish is answered as a replay, even if
// it was gathered with new publishes.
func TestRetryWhileDiskIsFull(t *testing.T) {
	fs := vfs.NewMem()
	memory, err := disklog.Open(t.Context(), "data", disklog.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	log := &testLog{Log: memory}
	h := New(log, Options{Base: base})
	defer h.Close()
	kept := changelog.Publish{Key: "k", Hash: [32]byte{1}, Changes: changes("kept", 1)}
	first, err := h.Publish(t.Context(), "demo", kept)
	if err != nil {
		t.Fatal(err)
	}
	g, answers := holdFirstAppend(t.Context(), t, h, log)
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 20, TotalBytes: 1 << 40})
	startPublish(t.Context(), h, "new", changes("new", 1), answers)
	retried := make(chan changelog.Appended, 1)
	go func() {
		a, err := h.Publish(t.Context(), "demo", kept)
		if err != nil {
			t.Errorf("Publish of a retry: %v", err)
		}
		retried <- a
	}()
	waitPending(h, "demo", 2)
	close(g.open)
	for range 2 { // the one that was held found a full disk as well
		if a := <-answers; !errors.Is(a.err, feed.ErrFull) {
			t.Errorf("publish %s: got %v, want ErrFull", a.name, a.err)
		}
	}
	if a := <-retried; !a.Replayed || a.Cursor != first.Cursor {
		t.Errorf("retry = %+v, want a repeat of %v", a, first.Cursor)
	}
}
