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

// A holding is what somebody has who never saw the log: locs, and hashes of their content.
type holding struct {
	t  *testing.T
	mu sync.Mutex
	of map[string]string
}

// all yields what it holds now.
func (h *holding) all(yield func(*feed.Entry, error) bool) {
	h.mu.Lock()
	all := maps.Clone(h.of)
	h.mu.Unlock()
	for loc, hash := range all {
		if !yield(&feed.Entry{Change: resourcesync.Change{Loc: loc, Hash: hash}}, nil) {
			return
		}
	}
}

// state returns what it holds now, in a store of its own.
func (h *holding) state(ctx context.Context) (*inventory.State, error) {
	return inventory.Collect(ctx, inventory.NewMemory(), "own", h.all)
}

func (h *holding) set(change resourcesync.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[change.Loc] = change.Hash; change.Change == resourcesync.Deleted {
		delete(h.of, change.Loc)
	}
}

// holdingOf publishes n resources, and returns who holds them.
func holdingOf(t *testing.T, s *site, n int) *holding {
	t.Helper()
	h := &holding{t: t, of: map[string]string{}}
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

// Every fault is named by content, and nothing else, while a destination that follows is
// always a little behind.
func TestAuditByContent(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	h := holdingOf(t, s, 900)
	if found := differences(t, c.Audit(t.Context(), "demo", h.all, client.AuditOptions{})); len(found) > 0 {
		t.Fatalf("the audit finds %v", found)
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
			t.Fatalf("the audit finds %v, want %v", found, want)
		}
	}
}

// A tally that is the hub's is all that an audit needs; any other is only a hint.
func TestAuditTally(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	h := holdingOf(t, s, 20)
	state, err := h.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	right, err := state.Tally(t.Context(), inventory.Range{})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	twice := right
	twice.Add(&right)
	for _, test := range []struct {
		name  string
		tally digest.Tally
		err   error
		asked int
	}{
		{"equal", right, nil, 0},
		{"of resources that are there twice", twice, nil, 1},
		{"none", digest.Tally{}, nil, 1},
		{"an error", right, broken, 0},
	} {
		asked := 0
		own := func(ctx context.Context) (*inventory.State, error) { asked++; return h.state(ctx) }
		looked := false
		o := auditor.Options{By: digest.ByContent, Look: func(audit.Look) { looked = true }, Tally: func(context.Context) (digest.Tally, error) {
			if !looked {
				t.Errorf("%s: the tally is asked for before the look", test.name)
			}
			return test.tally, test.err
		}}
		var failed error
		for d, err := range c.AuditState(t.Context(), "demo", own, o) {
			if failed = err; err == nil {
				t.Errorf("%s: %+v differs", test.name, d)
			}
		}
		if !errors.Is(failed, test.err) || asked != test.asked {
			t.Errorf("%s: own is asked %d times, %v", test.name, asked, failed)
		}
	}
}

// A list that was made before the newest changes is not blamed for them, if the audit
// knows since when.
func TestAuditSince(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	h := holdingOf(t, s, 50)
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
		if found := differences(t, c.AuditState(t.Context(), "demo", auditor.Always(list), o)); fmt.Sprint(found) != want {
			t.Errorf("since %q the audit finds %v, want %s", since, found, want)
		}
	}
}

// Equal ends ask once, and a few faults among many resources cost a few questions. A hub
// that does not have the state any more is looked at anew.
func TestAuditAsks(t *testing.T) {
	s := newSite(t)
	var looks []audit.Look
	c := newClient(t, s.URL, newClock().options())
	h := holdingOf(t, s, 5_000)
	o := auditor.Options{By: digest.ByContent, Look: func(l audit.Look) { looks = append(looks, l) }}
	if found := differences(t, c.AuditState(t.Context(), "demo", h.state, o)); len(found) > 0 || len(s.asked()) != 1 || len(looks) != 1 || looks[0].Count != 5_000 {
		t.Errorf("equal ends ask %d times, find %v, look at %+v", len(s.asked()), found, looks)
	}

	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	planted, want := faults()
	d.plant(planted...)
	d.reopen(c)
	before := len(s.asked())
	if found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{})); fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("the audit finds %v, want %v", found, want)
	}
	if n := len(s.asked()) - before; n > 5 {
		t.Errorf("the audit asks %d times", n)
	}

	before = len(s.asked())
	s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n - before {
		case 1, 3:
			problem.Write(w, r, feed.ErrOverloaded)
			return true
		case 5:
			s.shelf.forget()
		}
		return false
	}
	if found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{})); fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("through trouble the audit finds %v, want %v", found, want)
	}
}

// A hub that answers about few ranges only is asked about fewer.
func TestAuditTooLarge(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	holdingOf(t, s, 5_000)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	planted, want := faults()
	d.plant(planted...)
	d.reopen(c)
	refused, most := 0, 7
	s.trouble = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Count(body, []byte(`"digest":`)) <= most {
			return false
		}
		refused++
		problem.Write(w, r, problem.New(http.StatusRequestEntityTooLarge, "too-large", "ask about fewer ranges at once"))
		return true
	}
	if found := differences(t, d.replica.Audit(t.Context(), client.AuditOptions{})); fmt.Sprint(found) != fmt.Sprint(want) || refused == 0 {
		t.Errorf("the audit finds %v, want %v; %d questions were refused", found, want, refused)
	}
	most = 0
	if err := errAudit(t, d.replica); err == nil || !strings.Contains(err.Error(), "413") {
		t.Errorf("if no answer is small enough the audit yields %v", err)
	}
}

// An audit that cannot be made says why.
func TestAuditRefused(t *testing.T) {
	s := newSite(t)
	s.publish(t, "urn:a")
	text := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
	look := audit.Look{Set: "demo", Cursor: feed.Cursor{Position: 5, Micros: 5}, Count: 9}
	own := &holding{t: t, of: map[string]string{"urn:b": ""}}
	broken := errors.New("broken")
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		own    auditor.Own
		o      auditor.Options
		want   error
		text   string
	}{
		{"by position, without one", s.ServeHTTP, own.state, auditor.Options{}, resourcesync.ErrInvalid, "a state with a cursor"},
		{"a state that cannot be had", s.ServeHTTP, func(context.Context) (*inventory.State, error) { return nil, broken }, auditor.Options{}, broken, ""},
		{"no hub", text("welcome"), own.state, auditor.Options{By: digest.ByContent}, client.ErrNoHub, ""},
		{"another set", text(strings.Replace(string(look.AppendJSON(nil)), "demo", "other", 1)), own.state, auditor.Options{By: digest.ByContent}, client.ErrNoHub, `the set "other"`},
		{"no answer", text(string(look.AppendJSON(nil))), own.state, auditor.Options{By: digest.ByContent}, client.ErrNoHub, ""},
		{"no inventory", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoInventory) }, own.state, auditor.Options{By: digest.ByContent}, feed.ErrNoInventory, "404"},
		{"no such place", s.ServeHTTP, own.state, auditor.Options{By: digest.ByContent, Since: "7-7"}, feed.ErrGone, "410"},
	} {
		t.Run(test.name, func(t *testing.T) {
			hub := httptest.NewServer(test.answer)
			defer hub.Close()
			n := 0
			for d, err := range newClient(t, hub.URL, newClock().options()).AuditState(t.Context(), "demo", test.own, test.o) {
				if n++; d.Loc != "" || !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("it yields %+v, %v", d, err)
				}
			}
			if n != 1 {
				t.Errorf("it yields %d times", n)
			}
		})
	}
}

// A destination whose place is not in the log any more has to follow first.
func TestAuditGone(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 5)...)
	d := newDestination(t, c, inventory.NewMemory(), client.ReplicaOptions{})
	d.catchUp(c, 0)
	s.deleteSet(t)
	s.publish(t, locs(1, 9)...)
	if err := errAudit(t, d.replica); !errors.Is(err, feed.ErrGone) {
		t.Errorf("the audit yields %v", err)
	}
	d.catchUp(c, 0)
	d.inSync("after it followed")
}
