package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// A localCopy holds the locs and content hashes of a program that has not followed the log.
type localCopy struct {
	t      *testing.T
	mu     sync.Mutex
	hashes map[string]string
}

// all yields the current resources.
func (h *localCopy) all(yield func(*feed.Entry, error) bool) {
	h.mu.Lock()
	all := maps.Clone(h.hashes)
	h.mu.Unlock()
	for loc, hash := range all {
		if !yield(&feed.Entry{Change: resourcesync.Change{Loc: loc, Hash: hash}}, nil) {
			return
		}
	}
}

// state returns the current resources, in a store of their own.
func (h *localCopy) state(ctx context.Context) (*inventory.State, error) {
	return inventory.Collect(ctx, inventory.NewMemory(), "own", h.all)
}

// set applies a change.
func (h *localCopy) set(change resourcesync.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hashes[change.Loc] = change.Hash; change.Change == resourcesync.Deleted {
		delete(h.hashes, change.Loc)
	}
}

// newLocalCopy publishes n resources, and returns a copy of them.
func newLocalCopy(t *testing.T, s *site, n int) *localCopy {
	t.Helper()
	h := &localCopy{t: t, hashes: map[string]string{}}
	changes := updated(locs(1, n)...)
	for i := range changes {
		changes[i].Hash = fmt.Sprintf("md5:%032x", i)
		h.set(changes[i])
	}
	if _, err := s.hub.Publish(t.Context(), "demo", changelog.Publish{Changes: changes}); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestAuditByContent checks that an audit by content yields every planted fault and nothing else,
// while a follower that is always slightly behind applies concurrent changes.
func TestAuditByContent(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	h := newLocalCopy(t, s, 900)
	if found := differences(t, c.Audit(t.Context(), "demo", h.all, client.AuditOptions{})); len(found) > 0 {
		t.Fatalf("Audit yields %v, want no differences", found)
	}
	planted, want := faults()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for b, err := range c.Follow(ctx, "demo", "start", client.FollowOptions{}) {
			if err != nil {
				t.Error(err)
				return
			}
			for i := range b.Entries {
				if want[b.Entries[i].Change.Loc] == "" {
					h.set(b.Entries[i].Change)
				}
			}
		}
	})
	for i := range planted {
		h.set(planted[i].Change)
	}
	random := testutil.Rand(t)
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			change := resourcesync.Change{Loc: fmt.Sprint("urn:", 100+random.IntN(1_500)), Change: resourcesync.Updated, Hash: fmt.Sprintf("md5:%032x", n)}
			if n%3 == 0 {
				change = resourcesync.Change{Loc: change.Loc, Change: resourcesync.Deleted}
			}
			_, _ = s.hub.Publish(ctx, "demo", changelog.Publish{Changes: []resourcesync.Change{change}})
		}
	})
	for range 2 {
		o := client.AuditOptions{Settle: time.Second}
		if found := differences(t, c.Audit(t.Context(), "demo", h.all, o)); fmt.Sprint(found) != fmt.Sprint(want) {
			t.Fatalf("Audit yields %v, want %v", found, want)
		}
	}
}

// TestAuditTally checks that an audit needs only the tally if it equals the hub's, and otherwise
// collects the state.
func TestAuditTally(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	h := newLocalCopy(t, s, 20)
	state, err := h.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	right, err := state.Tally(t.Context(), inventory.Range{})
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("failure")
	double := right
	double.Add(&right)
	for _, tt := range []struct {
		name  string
		tally digest.Tally
		err   error
		calls int // of own
	}{
		{"equal", right, nil, 0},
		{"resources counted twice", double, nil, 1},
		{"empty", digest.Tally{}, nil, 1},
		{"error", right, failure, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			own := func(ctx context.Context) (*inventory.State, error) { calls++; return h.state(ctx) }
			looked := false
			o := auditor.Options{By: digest.ByContent, OnSummary: func(audit.Summary) { looked = true }, Tally: func(context.Context) (digest.Tally, error) {
				if !looked {
					t.Error("Tally is called before Look")
				}
				return tt.tally, tt.err
			}}
			var got error
			for d, err := range c.AuditState(t.Context(), "demo", own, o) {
				if got = err; err == nil {
					t.Errorf("audit yields %+v, want no differences", d)
				}
			}
			if !errors.Is(got, tt.err) || calls != tt.calls {
				t.Errorf("audit ends with %v after %d calls of own, want %v after %d", got, calls, tt.err, tt.calls)
			}
		})
	}
}

// TestAuditSince checks that a list from before the newest changes does not differ because of them
// if the audit knows when the list was made.
func TestAuditSince(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	h := newLocalCopy(t, s, 50)
	list, err := h.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := s.publish(t, "urn:1")
	s.publish(t, "urn:2", "urn:new")
	s.change(t, resourcesync.Deleted, "urn:3")
	for since, want := range map[string]string{
		"":              "map[urn:1:unknown urn:2:unknown urn:3:extra urn:new:missing]",
		before.String(): "map[urn:1:unknown]",
		before.Time().Add(time.Microsecond).Format(time.RFC3339Nano): "map[urn:1:unknown]",
		"start": "map[]",
	} {
		o := auditor.Options{By: digest.ByContent, Since: since}
		if found := differences(t, c.AuditState(t.Context(), "demo", auditor.FixedState(list), o)); fmt.Sprint(found) != want {
			t.Errorf("audit with Since %q yields %v, want %s", since, found, want)
		}
	}
}

// TestAuditRequests checks that equal sides take one request, that a few faults among many
// resources take a few, and that the audit starts over if the hub no longer has the state.
func TestAuditRequests(t *testing.T) {
	s := newSite(t)
	var looks []audit.Summary
	c := newClient(t, s.URL, newClock().options())
	h := newLocalCopy(t, s, 5_000)
	o := auditor.Options{By: digest.ByContent, OnSummary: func(l audit.Summary) { looks = append(looks, l) }}
	if found := differences(t, c.AuditState(t.Context(), "demo", h.state, o)); len(found) > 0 || len(s.received()) != 1 || len(looks) != 1 || looks[0].Count != 5_000 {
		t.Errorf("audit of equal sides sends %d requests, yields %v, looks are %+v, want one request for 5,000 resources", len(s.received()), found, looks)
	}

	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	planted, want := faults()
	d.plant(planted...)
	d.reopen(c)
	before := len(s.received())
	if found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{})); fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("Audit yields %v, want %v", found, want)
	}
	if n := len(s.received()) - before; n > 5 {
		t.Errorf("Audit sends %d requests, want at most 5", n)
	}

	before = len(s.received())
	s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n - before {
		case 1, 3:
			problem.Write(w, r, feed.ErrOverloaded)
			return true
		case 5:
			s.inventories.dropRoots()
		}
		return false
	}
	if found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{})); fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("Audit of an unreliable hub yields %v, want %v", found, want)
	}
}

// TestAuditTooLarge checks that an audit sends fewer ranges at once to a hub that accepts only a
// few.
func TestAuditTooLarge(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	newLocalCopy(t, s, 5_000)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	planted, want := faults()
	d.plant(planted...)
	d.reopen(c)
	refused, maxRanges := 0, 7
	s.intercept = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Count(body, []byte(`"digest":`)) <= maxRanges {
			return false
		}
		refused++
		problem.Write(w, r, problem.New(http.StatusRequestEntityTooLarge, "too-large", "ask about fewer ranges at once"))
		return true
	}
	if found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{})); fmt.Sprint(found) != fmt.Sprint(want) || refused == 0 {
		t.Errorf("Audit yields %v after %d refused requests, want %v after some", found, refused, want)
	}
	maxRanges = 0
	if err := errAudit(t, d.replica); err == nil || !strings.Contains(err.Error(), "413") {
		t.Errorf("Audit of a hub that refuses all requests: got error %v, want 413", err)
	}
}

// TestAuditRefused checks the error of an audit that is impossible.
func TestAuditRefused(t *testing.T) {
	s := newSite(t)
	s.publish(t, "urn:a")
	text := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
	look := audit.Summary{Set: "demo", Cursor: feed.Cursor{Position: 5, Micros: 5}, Count: 9}
	own := &localCopy{t: t, hashes: map[string]string{"urn:b": ""}}
	failure := errors.New("failure")
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		own    auditor.StateFunc
		o      auditor.Options
		want   error
		text   string
	}{
		{"by position without a cursor", s.ServeHTTP, own.state, auditor.Options{}, resourcesync.ErrInvalid, "a state with a cursor"},
		{"error of own", s.ServeHTTP, func(context.Context) (*inventory.State, error) { return nil, failure }, auditor.Options{}, failure, ""},
		{"not a hub", text("welcome"), own.state, auditor.Options{By: digest.ByContent}, client.ErrNotHub, ""},
		{"another set", text(strings.Replace(string(look.AppendJSON(nil)), "demo", "other", 1)), own.state, auditor.Options{By: digest.ByContent}, client.ErrNotHub, `of set "other"`},
		{"look as answer", text(string(look.AppendJSON(nil))), own.state, auditor.Options{By: digest.ByContent}, client.ErrNotHub, ""},
		{"no inventory", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoInventory) }, own.state, auditor.Options{By: digest.ByContent}, feed.ErrNoInventory, "404"},
		{"unknown cursor", s.ServeHTTP, own.state, auditor.Options{By: digest.ByContent, Since: "7-7"}, feed.ErrGone, "410"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hub := httptest.NewServer(tt.answer)
			defer hub.Close()
			n := 0
			for d, err := range newClient(t, hub.URL, newClock().options()).AuditState(t.Context(), "demo", tt.own, tt.o) {
				if n++; d.Loc != "" || !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("audit yields %+v, %v, want only the error %v with %q", d, err, tt.want, tt.text)
				}
			}
			if n != 1 {
				t.Errorf("audit yields %d times, want once", n)
			}
		})
	}
}

// TestAuditGone checks that the error is feed.ErrGone if the log no longer has the destination's
// cursor.
func TestAuditGone(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 5)...)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	s.deleteSet(t)
	s.publish(t, locs(1, 9)...)
	if err := errAudit(t, d.replica); !errors.Is(err, feed.ErrGone) {
		t.Errorf("Audit: got error %v, want %v", err, feed.ErrGone)
	}
	d.catchUp(c, 0)
	d.inSync("after following")
}
