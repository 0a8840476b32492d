package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// A line is the way between two ends. It counts what goes over it.
type line struct {
	asked, up, down int
	busy            time.Duration // of the answering end
}

// to returns an AskFunc that a state answers, all in JSON.
func (l *line) to(s *inventory.State) AskFunc {
	return func(ctx context.Context, q Question) (Reply, error) {
		l.asked++
		question := q.AppendJSON(nil)
		l.up += len(question)
		began := time.Now()
		read, err := ReadQuestion(bytes.NewReader(question))
		if err != nil {
			return Reply{}, fmt.Errorf("%w in %s", err, question)
		}
		read.Details = q.Details
		reply, err := Answer(ctx, s, read)
		if err != nil {
			return Reply{}, err
		}
		reply.Set = "peps"
		text := reply.AppendJSON(nil)
		l.busy += time.Since(began)
		l.down += len(text)
		if strings.ContainsAny(string(text), "\n") {
			return Reply{}, errors.New("the reply is more than a line")
		}
		return ReadReply(bytes.NewReader(text))
	}
}

// differences returns what Compare yields as one text for each, sorted.
func differences(t *testing.T, own *inventory.State, by digest.By, r inventory.Range, ask AskFunc) []string {
	t.Helper()
	var all []string
	for d, err := range Compare(context.Background(), own, by, r, ask) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(d.Kind)+" "+d.Loc)
		if (d.Own != nil) != (d.Kind != Missing) || (d.Theirs != nil) != (d.Kind != Extra) {
			t.Fatalf("%s %s: own %v, theirs %v", d.Kind, d.Loc, d.Own, d.Theirs)
		}
		for _, e := range []*feed.Entry{d.Own, d.Theirs} {
			if e != nil && (e.Change.Loc != d.Loc || e.Change.Change == "" || e.Micros == 0) {
				t.Fatalf("%s %s: %+v is no whole entry", d.Kind, d.Loc, e)
			}
		}
	}
	slices.Sort(all)
	return all
}

func wantDifferences(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("the differences are\n%q, want\n%q", got, want)
	}
}

// plant makes random faults in own, and returns them as differences names them.
func plant(src *sourcetest.Source, own sourcetest.Set, theirs sourcetest.Set, n int) (faults []string) {
	touched := map[string]bool{}
	for range n {
		loc := src.Loc()
		if touched[loc] {
			continue
		}
		touched[loc] = true
		switch _, ok := theirs[loc]; {
		case !ok:
			own[loc] = src.Existing(loc)
			faults = append(faults, "extra "+loc)
		case src.IntN(2) == 0:
			delete(own, loc)
			faults = append(faults, "missing "+loc)
		default:
			own[loc] = src.Existing(loc)
			faults = append(faults, "stale "+loc)
		}
	}
	return faults
}

// compareRandom compares two random inventories, and each with itself.
func compareRandom(t *testing.T, seed uint64, locs, faults int) {
	src := sourcetest.New(seed, 1+locs)
	theirs := sourcetest.Set{}
	for range src.IntN(3*locs + 1) {
		if e := src.Existing(src.Loc()); src.IntN(4) > 0 {
			theirs.Add(e)
		}
	}
	own := maps.Clone(theirs)
	want := plant(src, own, theirs, faults)
	at := src.Head
	hub, mirror := holding(t, at, theirs.Entries()), holding(t, at, own.Entries())
	prefix := inventory.Prefix("https://example.org/pep-0")
	var within []string
	for _, d := range want {
		if _, loc, _ := strings.Cut(d, " "); prefix.Has(loc) {
			within = append(within, d)
		}
	}
	for _, by := range []digest.By{digest.ByPosition, digest.ByContent} {
		l := new(line)
		wantDifferences(t, differences(t, mirror, by, inventory.Range{}, l.to(hub)), want)
		if l.asked > 6+len(want)/10 {
			t.Fatalf("asked %d times about %d differences", l.asked, len(want))
		}
		wantDifferences(t, differences(t, mirror, by, prefix, l.to(hub)), within)
		*l = line{}
		wantDifferences(t, differences(t, hub, by, inventory.Range{}, l.to(hub)), nil)
		if l.asked != 1 {
			t.Fatalf("asked %d times about what is equal", l.asked)
		}
	}
}

func TestCompare(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for _, locs := range []int{0, 1, 2, 10, 64, 65, 66, 300, 3000} {
		for seed := range seeds {
			compareRandom(t, seed, locs, 0)
			compareRandom(t, seed, locs, 10)
			compareRandom(t, seed, locs, locs)
		}
	}
}

func FuzzCompare(f *testing.F) {
	f.Add(uint64(1), uint16(1000), uint16(20))
	f.Fuzz(func(t *testing.T, seed uint64, locs, faults uint16) {
		compareRandom(t, seed, int(locs%5000), int(faults%5000))
	})
}

// TestCompareFew finds ten faults in many resources, in few and small questions.
// BenchmarkCompare does it in a million.
func TestCompareFew(t *testing.T) {
	ctx := context.Background()
	n, seeds := 100_000, uint64(3)
	if testing.Short() {
		n, seeds = 20_000, 1
	}
	all := sourcetest.PEPs(n)
	head := feed.Cursor{Position: uint64(n + 20), Micros: 1_800_000_000_000_000}
	hub := holding(t, head, all)
	for seed := range seeds {
		src := sourcetest.New(seed, 1)
		src.Head = feed.Cursor{Position: uint64(n), Micros: 1_790_000_000_000_000}
		o := holding(t, src.Head, all).Overlay()
		var want []string
		for i := range 10 {
			e := src.Existing(all[src.IntN(n)].Change.Loc)
			kind := "stale "
			switch i % 3 {
			case 1:
				kind, e.Change = "missing ", resourcesync.Change{Loc: e.Change.Loc, Change: resourcesync.Deleted}
			case 2:
				kind, e.Change.Loc = "extra ", e.Change.Loc+"more"
			}
			want = append(want, kind+e.Change.Loc)
			if err := o.Add(ctx, []feed.Entry{e}); err != nil {
				t.Fatal(err)
			}
		}
		own := o.State(head)
		for _, by := range []digest.By{digest.ByPosition, digest.ByContent} {
			l := new(line)
			wantDifferences(t, differences(t, own, by, inventory.Range{}, l.to(hub)), slices.Clone(want))
			t.Logf("by %s: asked %d times, %d bytes up and %d down, the hub was busy for %v", by, l.asked, l.up, l.down, l.busy)
			if l.asked > 4 { // the Summary is a round trip too
				t.Errorf("asked %d times", l.asked)
			}
			if l.up+l.down > 200_000 {
				t.Errorf("%d bytes", l.up+l.down)
			}
		}
	}
}

// TestCompareAll compares a state with an empty one, both ways: everything differs.
func TestCompareAll(t *testing.T) {
	at := feed.Cursor{Position: 1, Micros: 1}
	const n = 5_000
	all, none := holding(t, at, sourcetest.PEPs(n)), holding(t, at, nil)
	for _, test := range []struct {
		own, theirs *inventory.State
		kind        string
		asked       int
	}{{all, none, "extra ", 1}, {none, all, "missing ", 15}} {
		l := new(line)
		got := differences(t, test.own, digest.ByPosition, inventory.Range{}, l.to(test.theirs))
		if len(got) != n || !strings.HasPrefix(got[0], test.kind) || !strings.HasPrefix(got[n-1], test.kind) || l.asked > test.asked {
			t.Errorf("%d differences like %s after %d questions, %d bytes down", len(got), got[0], l.asked, l.down)
		}
	}
}

// TestCompareEvidence shows what is said of resources whose digests differ, by what both
// ends know of them.
func TestCompareEvidence(t *testing.T) {
	at := feed.Cursor{Position: 1, Micros: 1}
	n, m := int64(10), int64(11)
	noon := time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name   string
		own    resourcesync.Change
		theirs resourcesync.Change
		want   Kind
	}{
		{"hash and length", resourcesync.Change{Length: &n}, resourcesync.Change{Hash: "sha-256:aa", Length: &n}, ""},
		{"hash and other length", resourcesync.Change{Length: &m}, resourcesync.Change{Hash: "sha-256:aa", Length: &n}, Stale},
		{"another algorithm", resourcesync.Change{Hash: "md5:00"}, resourcesync.Change{Hash: "sha-256:aa"}, Unknown},
		{"another algorithm, and length", resourcesync.Change{Hash: "md5:00", Length: &n}, resourcesync.Change{Hash: "sha-256:aa", Length: &n}, ""},
		{"one algorithm in common", resourcesync.Change{Hash: "MD5:0A"}, resourcesync.Change{Hash: "sha-256:aa md5:0a"}, ""},
		{"one in common that differs", resourcesync.Change{Hash: "md5:00", Length: &n}, resourcesync.Change{Hash: "sha-256:aa md5:01", Length: &n}, Stale},
		{"the strongest decides", resourcesync.Change{Hash: "md5:00 sha-512:bb sha-256:aa"}, resourcesync.Change{Hash: "md5:01 sha-512:bb sha-256:cc"}, ""},
		{"unknown algorithms", resourcesync.Change{Hash: "x-a:00"}, resourcesync.Change{Hash: "x-a:01 sha-256:aa"}, Stale},
		{"nothing", resourcesync.Change{}, resourcesync.Change{Hash: "sha-256:aa"}, Unknown},
		{"lastmod and length", resourcesync.Change{Lastmod: noon}, resourcesync.Change{Length: &n}, Unknown},
		{"lastmod", resourcesync.Change{Lastmod: noon}, resourcesync.Change{Lastmod: noon, Length: &n}, ""},
		{"lastmod, and other length", resourcesync.Change{Lastmod: noon, Length: &m}, resourcesync.Change{Lastmod: noon, Length: &n, Hash: "sha-256:aa"}, Stale},
		{"other lastmod", resourcesync.Change{Lastmod: noon, Length: &n}, resourcesync.Change{Lastmod: noon.Add(1), Length: &n, Hash: "sha-256:aa"}, Stale},
	} {
		t.Run(test.name, func(t *testing.T) {
			const loc = "https://example.org/a"
			one := func(c resourcesync.Change) *inventory.State {
				c.Loc, c.Change = loc, resourcesync.Updated
				return holding(t, at, []feed.Entry{{Cursor: at, Change: c}})
			}
			var want []string
			if test.want != "" {
				want = []string{string(test.want) + " " + loc}
			}
			wantDifferences(t, differences(t, one(test.own), digest.ByContent, inventory.Range{}, new(line).to(one(test.theirs))), want)
			wantDifferences(t, differences(t, one(test.theirs), digest.ByContent, inventory.Range{}, new(line).to(one(test.own))), want)
		})
	}
}

// TestCompareWithoutDetails asks an end that has room for the details of one resource in
// each answer, and one that never gives any.
func TestCompareWithoutDetails(t *testing.T) {
	src := sourcetest.New(1, 1000)
	theirs := sourcetest.Set{}
	for range 1000 {
		theirs.Add(src.Existing(src.Loc()))
	}
	own := maps.Clone(theirs)
	want := plant(src, own, theirs, 10)
	hub, mirror := holding(t, src.Head, theirs.Entries()), holding(t, src.Head, own.Entries())
	ask := new(line).to(hub)
	some := func(ctx context.Context, q Question) (Reply, error) {
		reply, err := ask(ctx, q)
		given := false
		for _, a := range reply.Ranges {
			for i := range a.Resources {
				if given {
					a.Resources[i].Entry = nil
				}
				given = true
			}
		}
		return reply, err
	}
	wantDifferences(t, differences(t, mirror, digest.ByContent, inventory.Range{}, some), slices.Clone(want))
	never := func(ctx context.Context, q Question) (Reply, error) {
		q.Details = false
		return ask(ctx, q)
	}
	var got []string
	for d, err := range Compare(context.Background(), mirror, digest.ByContent, inventory.Range{}, never) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Theirs != nil && (d.Theirs.Change.Loc != d.Loc || d.Theirs.Position == 0) {
			t.Errorf("%+v", d.Theirs)
		}
		got = append(got, strings.Replace(string(d.Kind), "unknown", "stale", 1)+" "+d.Loc)
	}
	slices.Sort(got)
	wantDifferences(t, got, want)
}

// TestCompareLiars asks ends that answer what was not asked, or never come closer.
func TestCompareLiars(t *testing.T) {
	at := feed.Cursor{Position: 5, Micros: 5}
	own := holding(t, at, sourcetest.PEPs(1000))
	part := func(from, to string, count uint64) RangeAnswer {
		return RangeAnswer{Range: inventory.Range{From: from, To: to}, Count: count}
	}
	listed := func(from, to string, count uint64, locs ...string) RangeAnswer {
		a := RangeAnswer{Range: inventory.Range{From: from, To: to}, Count: count, Listed: true}
		for _, loc := range locs {
			a.Resources = append(a.Resources, Resource{Loc: loc})
		}
		return a
	}
	for _, test := range []struct {
		name   string
		ranges func(q Question) []RangeAnswer
		want   string
	}{
		{"the same range", func(q Question) []RangeAnswer { return []RangeAnswer{part(q.Ranges[0].From, q.Ranges[0].To, 9)} }, "does not split"},
		{"halves for ever", func(q Question) []RangeAnswer {
			r := q.Ranges[len(q.Ranges)-1]
			return []RangeAnswer{part(r.From, r.From+"~", 0), part(r.From+"~", r.To, 1<<40)}
		}, "does not split"},
		{"a part only", func(q Question) []RangeAnswer {
			r := q.Ranges[1]
			return []RangeAnswer{part(r.From, r.From+"0", 9), part(r.From+"0", r.From+"1", 9)}
		}, "gap"},
		{"a hole", func(q Question) []RangeAnswer {
			r := q.Ranges[1]
			return []RangeAnswer{part(r.From, r.From+"0", 9), part(r.From+"1", r.To, 9)}
		}, "gap"},
		{"backwards", func(q Question) []RangeAnswer {
			r := q.Ranges[1]
			return []RangeAnswer{part(r.From, r.From+"1", 9), part(r.From+"1", r.From+"0", 9), part(r.From+"0", r.To, 9)}
		}, "gap"},
		{"too far", func(q Question) []RangeAnswer {
			r := q.Ranges[1]
			return []RangeAnswer{part(r.From, r.From+"1", 9), part(r.From+"1", q.Ranges[2].To, 9)}
		}, "gap"},
		{"beyond the end", func(q Question) []RangeAnswer {
			r := q.Ranges[len(q.Ranges)-1]
			return []RangeAnswer{part(r.From, "", 9), part("", "", 9)}
		}, "gap"},
		{"out of order", func(q Question) []RangeAnswer {
			return []RangeAnswer{listed(q.Ranges[2].From, q.Ranges[2].To, 0), listed(q.Ranges[0].From, q.Ranges[0].To, 0)}
		}, ""},
		{"another count", func(q Question) []RangeAnswer { return []RangeAnswer{listed("", q.Ranges[0].To, 3, "a")} }, "lists 1"},
		{"no such resource", func(q Question) []RangeAnswer { return []RangeAnswer{listed("", q.Ranges[0].To, 1, "z")} }, "out of order or out of range"},
		{"twice", func(q Question) []RangeAnswer { return []RangeAnswer{listed("", q.Ranges[0].To, 2, "a", "a")} }, "out of order or out of range"},
		{"without loc", func(q Question) []RangeAnswer { return []RangeAnswer{listed("", q.Ranges[0].To, 1, "")} }, "out of order or out of range"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rounds := 0
			ask := func(_ context.Context, q Question) (Reply, error) {
				if rounds++; rounds > 100 {
					t.Fatal("asked without end")
				}
				return Reply{Cursor: at, Ranges: test.ranges(q)}, nil
			}
			var last error
			for _, err := range Compare(context.Background(), own, digest.ByPosition, inventory.Range{}, ask) {
				last = err
			}
			if !errors.Is(last, resourcesync.ErrInvalid) || !strings.Contains(last.Error(), test.want) {
				t.Fatalf("err = %v", last)
			}
		})
	}
}

// TestCompareEnds shows how a comparison ends early.
func TestCompareEnds(t *testing.T) {
	at := feed.Cursor{Position: 5, Micros: 5}
	hub, empty := holding(t, at, sourcetest.PEPs(1000)), holding(t, at, nil)
	broken := errors.New("broken")
	failing := func(context.Context, Question) (Reply, error) { return Reply{}, broken }
	n := 0
	for d, err := range Compare(context.Background(), empty, digest.ByPosition, inventory.Range{}, failing) {
		if n++; !errors.Is(err, broken) || n > 1 {
			t.Errorf("%v, %v", d, err)
		}
	}
	if n == 0 {
		t.Error("no word of a question that failed")
	}
	n = 0
	for _, err := range Compare(context.Background(), empty, digest.ByPosition, inventory.Range{}, new(line).to(hub)) {
		if n++; err != nil || n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("ended after %d differences", n)
	}
	moved := func(_ context.Context, q Question) (Reply, error) {
		return Reply{Cursor: feed.Cursor{Position: 6, Micros: 6}}, nil
	}
	var last error
	for _, err := range Compare(context.Background(), empty, digest.ByPosition, inventory.Range{}, moved) {
		last = err
	}
	if !errors.Is(last, resourcesync.ErrInvalid) {
		t.Errorf("an answer about another cursor: %v", last)
	}
	// Who never saw the log takes any cursor, but only one.
	foreign, asked := holding(t, feed.Cursor{}, nil), uint64(0)
	moving := func(ctx context.Context, q Question) (Reply, error) {
		q.At = at
		reply, err := new(line).to(hub)(ctx, q)
		reply.Cursor.Position += asked
		asked++
		return reply, err
	}
	last = nil
	for _, err := range Compare(context.Background(), foreign, digest.ByContent, inventory.Range{}, moving) {
		last = err
	}
	if !errors.Is(last, resourcesync.ErrInvalid) {
		t.Errorf("answers about two cursors: %v", last)
	}
}

// TestConfirm takes a second look at candidates while both ends change.
func TestConfirm(t *testing.T) {
	ctx := context.Background()
	src := sourcetest.New(3, 1)
	loc := func(i int) string { return fmt.Sprintf("https://example.org/%04d", i) }
	theirs := sourcetest.Set{}
	for i := range 500 {
		theirs.Add(src.Existing(loc(i)))
	}
	own := maps.Clone(theirs)
	delete(own, loc(10))                 // a fault that stays
	own[loc(20)] = src.Existing(loc(20)) // a fault that stays
	own.Add(src.Existing(loc(600)))      // a fault that stays
	own[loc(30)] = src.Existing(loc(30)) // the hub hears of it between the looks
	own[loc(40)] = src.Existing(loc(40)) // the hub hears of it, and of a newer one
	delete(own, loc(50))                 // own catches up
	own[loc(60)] = src.Existing(loc(60)) // own changes once more
	delete(own, loc(70))                 // own gets another version than the hub's
	var candidates []Difference
	for d, err := range Compare(ctx, holding(t, feed.Cursor{}, own.Entries()), digest.ByContent, inventory.Range{}, at(t, src.Head, theirs)) {
		if err != nil {
			t.Fatal(err)
		}
		candidates = append(candidates, d)
	}
	if len(candidates) != 8 {
		t.Fatalf("%d candidates", len(candidates))
	}

	theirs[loc(30)] = own[loc(30)]
	theirs[loc(40)] = src.Existing(loc(40))
	theirs[loc(80)] = src.Existing(loc(80)) // differs at the second look only
	own[loc(50)] = theirs[loc(50)]
	own[loc(60)] = src.Existing(loc(60))
	own[loc(70)] = src.Existing(loc(70))
	named := func(s string) bool { return s == loc(30) || s == loc(40) || s == loc(80) }
	var got []string
	for d, err := range Confirm(ctx, holding(t, feed.Cursor{}, own.Entries()), candidates, named, at(t, src.Head, theirs)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(d.Kind)+" "+d.Loc)
	}
	slices.Sort(got)
	wantDifferences(t, got, []string{"missing " + loc(10), "stale " + loc(20), "extra " + loc(600)})

	for range Confirm(ctx, holding(t, feed.Cursor{}, own.Entries()), nil, named, nil) {
		t.Error("without candidates there is a difference")
	}
}

// at returns an AskFunc for which p answers, at a cursor.
func at(t *testing.T, c feed.Cursor, p sourcetest.Set) AskFunc {
	ask := new(line).to(holding(t, c, p.Entries()))
	return func(ctx context.Context, q Question) (Reply, error) {
		q.At = c
		return ask(ctx, q)
	}
}
