package logtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// A ScriptRun is one run of a fixed script on a memory, for tests that break the memory at each of
// its operations in turn. The clock of the memory is ScriptRun.Now, so all runs without a fault are
// equal, to the microsecond. After each step of such a run, a test records the state of the memory
// with Dump. After a fault, the memory must be in the state after the last acknowledged step. If
// the answer to the next step is unknown, the state after that step is also correct. Any other
// state means a lost, torn or repeated change.
type ScriptRun struct {
	Open  func() (changelog.Log, error) // opens the memory; called again after the script has closed it
	Log   changelog.Log                 // nil before the first step and after a failed restart
	Acked atomic.Int64                  // number of acknowledged steps

	micros atomic.Int64
}

// begin is the start of each run. Each step is one second after the previous one.
var begin = time.Date(2026, 3, 4, 5, 6, 7, 89_000, time.UTC)

// Now returns the time of the run, which stands still during a step. Before the script runs, it is
// after the script's end.
func (l *ScriptRun) Now() time.Time {
	if at := l.micros.Load(); at > 0 {
		return time.UnixMicro(at)
	}
	return begin.Add(time.Duration(Steps()) * time.Second)
}

// A scriptStep is a step of the script: one call, or the start of the memory.
type scriptStep struct {
	name      string
	set       string
	publishes []changelog.Publish // appended publishes; nil for other steps
	do        func(ctx context.Context, l *ScriptRun) error
}

// Steps returns the number of steps of the script.
func Steps() int { return len(script()) }

// StepName returns the name of a step of the script by its number, from 0.
func StepName(n int) string { return script()[n].name }

// Run runs the script until its end, or until a step fails. It calls after when a step is
// acknowledged.
func (l *ScriptRun) Run(ctx context.Context, after func(step int)) error { return l.run(ctx, 0, after) }

// Resume runs the script from a step on, on an open memory. Another ScriptRun may already have
// executed that step, see Repeatable. So a set that the step deletes may not exist.
func (l *ScriptRun) Resume(ctx context.Context, from int) error {
	err := l.run(ctx, from, func(int) {})
	if errors.Is(err, feed.ErrNoSet) && l.Acked.Load() == 0 {
		err = l.run(ctx, from+1, func(int) {})
	}
	return err
}

// Repeatable reports whether a step may be repeated if its answer is unknown: it adds nothing, or
// only publishes with keys.
func Repeatable(step int) bool {
	return !slices.ContainsFunc(script()[step].publishes, func(p changelog.Publish) bool { return p.Key == "" })
}

func (l *ScriptRun) run(ctx context.Context, from int, after func(step int)) error {
	for i, s := range script() {
		l.micros.Store(begin.Add(time.Duration(i) * time.Second).UnixMicro())
		if i < from {
			continue
		}
		if err := s.do(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		l.Acked.Store(int64(i) + 1)
		after(i)
	}
	return nil
}

// script returns the steps, which include everything that changes a memory and its inventories.
func script() []scriptStep {
	random := rand.New(rand.NewPCG(1, 2))
	changes := func(name string, n int) []resourcesync.Change {
		c := make([]resourcesync.Change, n)
		for i := range c {
			c[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s/%d/%x", name, i, random.Uint64()), Change: resourcesync.Created}
		}
		return c
	}
	open := scriptStep{name: "open", do: func(_ context.Context, l *ScriptRun) (err error) {
		l.Log, err = l.Open()
		return err
	}}
	restart := scriptStep{name: "restart", do: func(_ context.Context, l *ScriptRun) error {
		log := l.Log
		l.Log = nil
		err := log.Close()
		if err == nil {
			l.Log, err = l.Open()
		}
		return err
	}}
	makeSet := func(set string, listSize int) scriptStep {
		return scriptStep{name: "make " + set, set: set, do: func(ctx context.Context, l *ScriptRun) error {
			return l.Log.Make(ctx, set, feed.Description{Title: fmt.Sprint(set, listSize)}, listSize)
		}}
	}
	describe := func(set string) scriptStep {
		return scriptStep{name: "describe " + set, do: func(ctx context.Context, l *ScriptRun) error {
			return l.Log.Describe(ctx, set, feed.Description{Title: "described", ChangeList: "https://example.org/list"})
		}}
	}
	trim := func(set string, count uint64) scriptStep {
		return scriptStep{name: "trim " + set, do: func(ctx context.Context, l *ScriptRun) error {
			_, err := l.Log.Trim(ctx, set, changelog.Retention{Count: count})
			return err
		}}
	}
	remove := func(set string) scriptStep {
		return scriptStep{name: "delete " + set, set: set, do: func(ctx context.Context, l *ScriptRun) error { return l.Log.Delete(ctx, set) }}
	}
	add := func(set string, publishes ...changelog.Publish) scriptStep {
		return scriptStep{name: "append to " + set, set: set, publishes: publishes, do: func(ctx context.Context, l *ScriptRun) error {
			_, err := l.Log.Append(ctx, set, publishes...)
			return err
		}}
	}
	commit := func(set string) scriptStep {
		return scriptStep{name: "commit " + set, do: func(ctx context.Context, l *ScriptRun) error { return l.commit(ctx, set) }}
	}
	complete := func(set string) scriptStep {
		return scriptStep{name: "complete " + set, do: func(ctx context.Context, l *ScriptRun) error {
			s, err := l.Log.State(ctx, set)
			if err != nil {
				return err
			}
			return l.inventoryOf(set).SetComplete(ctx, s.Head, "")
		}}
	}
	first := changelog.Publish{Changes: changes("first", 3), Key: "first", Hash: [32]byte{1}}
	gone := resourcesync.Change{Loc: first.Changes[0].Loc, Change: resourcesync.Deleted}
	last := changelog.Publish{Changes: changes("last", 5), Key: "last", Hash: [32]byte{4}}
	return []scriptStep{
		open,
		makeSet("a", 5),
		add("a", first),
		commit("a"),
		add("a", changelog.Publish{Changes: changes("plain", 4)}, changelog.Publish{Changes: changes("second", 2), Key: "second"}),
		makeSet("b", 100),
		add("b", changelog.Publish{Changes: changes("large", 700), Key: "first"}),
		commit("b"),
		describe("a"),
		restart,
		add("a", changelog.Publish{Changes: append(changes("third", 7), gone), Key: "third"}),
		commit("a"),
		trim("a", 6),
		add("b", changelog.Publish{Changes: changes("larger", 900)}),
		commit("b"),
		complete("b"),
		remove("a"),
		makeSet("a", 4),
		add("a", changelog.Publish{Changes: changes("anew", 6), Key: "first", Hash: [32]byte{3}}),
		commit("a"),
		restart,
		trim("b", 500),
		add("a", last),
		add("a", last), // a repetition with its key, which adds nothing
		add("b", changelog.Publish{Changes: changes("end", 2)}),
		commit("b"),
	}
}

var base = feed.Base("https://hub.example.org")

// Dump returns all visible state of the sets of the script as a string. It also checks that the
// Change Lists list the same entries as the pages.
func (l *ScriptRun) Dump(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	lists := documents.New(l.Log, base, documents.Options{Now: l.Now})
	for _, set := range []string{"a", "b"} {
		s, err := l.Log.State(t.Context(), set)
		if errors.Is(err, feed.ErrNoSet) {
			fmt.Fprintf(&b, "%s does not exist\n", set)
			continue
		} else if err != nil {
			t.Fatalf("State: %v", err)
		}
		fmt.Fprintf(&b, "%s: %+v, lists of %d, %d %v %v %v\n", set, s.Description, s.ListSize, s.Begin, s.Floor, s.BeforeLatest, s.Head)
		var paged []string
		for c := s.Floor; c != s.Head; {
			batch, err := l.Log.Since(t.Context(), set, c, 0)
			if err != nil || batch.Diverged || batch.After != c || len(batch.Entries) == 0 {
				t.Fatalf("Since(%q, %v) = %+v, %v", set, c, batch, err)
			}
			for _, e := range batch.Entries {
				paged = append(paged, fmt.Sprint(e.Cursor, " ", e.Change.Loc))
			}
			c = batch.Cursor
		}
		if listed := listedEntries(t, lists, set); !slices.Equal(paged, listed) {
			t.Fatalf("lists of %s =\n\t%q, pages =\n\t%q", set, listed, paged)
		}
		fmt.Fprintln(&b, strings.Join(paged, "\n"))
	}
	return b.String()
}

var (
	listLoc  = regexp.MustCompile(`<sitemap><loc>([^<]*)</loc>`)
	listItem = regexp.MustCompile(`<url><loc>([^<]*)</loc><rs:md [^>]*datetime="([^"]*)"[^>]* h:position="([^"]*)"`)
)

// listedEntries returns the entries in the numbered Change Lists of a set.
func listedEntries(t testing.TB, d *documents.Server, set string) (all []string) {
	t.Helper()
	get := func(name string) string {
		w := httptest.NewRecorder()
		if err := d.ServeSet(w, httptest.NewRequest("GET", base.Document(set, name), nil), set, name); err != nil || w.Code != 200 {
			t.Fatalf("GET %s of %s = %d, %v", name, set, w.Code, err)
		}
		return w.Body.String()
	}
	for _, loc := range listLoc.FindAllStringSubmatch(get("changelist-index.xml"), -1) {
		list := get(strings.TrimPrefix(loc[1], base.Document(set, "")))
		for _, item := range listItem.FindAllStringSubmatch(list, -1) {
			at, err := resourcesync.ParseTime(item[2])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s-%d %s", item[3], at.UnixMicro(), item[1]))
		}
	}
	return all
}

// CheckKeys checks that the memory knows the idempotency keys of all publishes in the first steps
// of the script whose sets still exist. It adds nothing.
func (l *ScriptRun) CheckKeys(t testing.TB, steps int) {
	t.Helper()
	known := make(map[string]map[string]changelog.Publish)
	for _, s := range script()[:steps] {
		if s.set != "" && len(s.publishes) == 0 {
			delete(known, s.set) // created or deleted
		}
		for _, p := range s.publishes {
			if known[s.set] == nil {
				known[s.set] = make(map[string]changelog.Publish)
			}
			if p.Key != "" {
				known[s.set][p.Key] = p
			}
		}
	}
	for set, keys := range known {
		for key, p := range keys {
			a, err := l.Log.Append(t.Context(), set, p)
			if err != nil || a[0].Err != nil || !a[0].Replayed {
				t.Errorf("Append with key %q to %s = %+v, %v, want it replayed", key, set, a, err)
			}
		}
	}
}
