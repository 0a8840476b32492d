package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
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

// A line connects two ends, and counts the questions and the bytes in both directions.
type line struct{ asked, bytes int }

// to returns an AskFunc that sends JSON to a state.
func (l *line) to(s *inventory.State) AskFunc {
	return func(ctx context.Context, q Question) (Reply, error) {
		l.asked++
		question := q.AppendJSON(nil)
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
		l.bytes += len(question) + len(text)
		if strings.ContainsAny(string(text), "\n") {
			return Reply{}, errors.New("the reply has more than one line")
		}
		return ReadReply(bytes.NewReader(text))
	}
}

// texts calls check with each difference, and returns their kinds and locs, sorted.
func texts(t *testing.T, all iter.Seq2[Difference, error], check func(Difference)) (got []string) {
	t.Helper()
	for d, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		check(d)
		got = append(got, string(d.Kind)+" "+d.Loc)
	}
	slices.Sort(got)
	return got
}

// differences returns the texts of all differences, which must have whole entries.
func differences(t *testing.T, own *inventory.State, by digest.By, r inventory.Range, ask AskFunc) []string {
	t.Helper()
	return texts(t, Compare(t.Context(), own, by, r, ask), func(d Difference) {
		if (d.Own != nil) != (d.Kind != Missing) || (d.Theirs != nil) != (d.Kind != Extra) {
			t.Fatalf("%s %s: own %v, theirs %v", d.Kind, d.Loc, d.Own, d.Theirs)
		}
		for _, e := range []*feed.Entry{d.Own, d.Theirs} {
			if e != nil && (e.Change.Loc != d.Loc || e.Change.Change == "" || e.Micros == 0) {
				t.Fatalf("%s %s: %+v is not a whole entry", d.Kind, d.Loc, e)
			}
		}
	})
}

func wantDifferences(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("differences = %q, want %q", got, want)
	}
}

// plant makes random faults in own, and returns their texts.
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
	hub, mirror, none := holding(t, at, theirs.Entries()), holding(t, at, own.Entries()), holding(t, at, nil)
	all := func(kind string) (all []string) {
		for loc := range theirs {
			all = append(all, kind+loc)
		}
		return all
	}
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
		for kind, ends := range map[string][2]*inventory.State{"extra ": {hub, none}, "missing ": {none, hub}} {
			wantDifferences(t, differences(t, ends[0], by, inventory.Range{}, l.to(ends[1])), all(kind))
		}
		if l.asked > 5+len(theirs)/300 {
			t.Fatalf("asked %d times about %d resources that all differ", l.asked, len(theirs))
		}
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

// TestCompareFew finds ten faults among many resources with few and small questions.
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
			if l.asked > 4 || l.bytes > 200_000 {
				t.Errorf("by %s: got %d questions with %d bytes, want at most 4 with 200,000", by, l.asked, l.bytes)
			}
		}
	}
}

// TestCompareEvidence checks the kinds of differences by the evidence that both ends have.
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

// TestCompareWithoutDetails asks an end that sends the details of one resource in each answer, and
// one that never sends any.
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
	askForOne := func(ctx context.Context, q Question) (Reply, error) {
		reply, err := ask(ctx, q)
		for i, a := range reply.Ranges {
			for k := range a.Resources {
				if i > 0 || k > 0 {
					a.Resources[k].Entry = nil
				}
			}
		}
		return reply, err
	}
	wantDifferences(t, differences(t, mirror, digest.ByContent, inventory.Range{}, askForOne), slices.Clone(want))
	askForNone := func(ctx context.Context, q Question) (Reply, error) {
		q.Details = false
		return ask(ctx, q)
	}
	got := texts(t, Compare(t.Context(), mirror, digest.ByContent, inventory.Range{}, askForNone), func(d Difference) {
		if d.Theirs != nil && (d.Theirs.Change.Loc != d.Loc || d.Theirs.Position == 0) {
			t.Errorf("Theirs = %+v, want loc and position", d.Theirs)
		}
	})
	for i := range got {
		got[i] = strings.Replace(got[i], "unknown ", "stale ", 1)
	}
	slices.Sort(got)
	wantDifferences(t, got, want)
}

// TestCompareLiars asks ends that answer other questions, or never make progress.
func TestCompareLiars(t *testing.T) {
	at := feed.Cursor{Position: 5, Micros: 5}
	own := holding(t, at, sourcetest.PEPs(1000))
	part := func(from, to string, count uint64) RangeAnswer {
		return RangeAnswer{Range: inventory.Range{From: from, To: to}, Count: count}
	}
	listed := func(from, to string, count uint64, locs ...string) RangeAnswer {
		a := part(from, to, count)
		a.Listed = true
		for _, loc := range locs {
			a.Resources = append(a.Resources, Resource{Loc: loc})
		}
		return a
	}
	type (
		ranges  = []RangeQuestion
		answers = []RangeAnswer
	)
	last := func(q ranges) inventory.Range { return q[len(q)-1].Range }
	for _, tt := range []struct {
		name   string
		answer func(q ranges) answers
		want   string
	}{
		{"the same range", func(q ranges) answers { return answers{part(q[0].From, q[0].To, 9)} }, "does not split"},
		{"halves forever", func(q ranges) answers {
			return answers{part(last(q).From, last(q).From+"~", 0), part(last(q).From+"~", last(q).To, 1<<40)}
		}, "does not split"},
		{"a part only", func(q ranges) answers {
			return answers{part(q[1].From, q[1].From+"0", 9), part(q[1].From+"0", q[1].From+"1", 9)}
		}, "gap"},
		{"a hole", func(q ranges) answers {
			return answers{part(q[1].From, q[1].From+"0", 9), part(q[1].From+"1", q[1].To, 9)}
		}, "gap"},
		{"backwards", func(q ranges) answers {
			return answers{part(q[1].From, q[1].From+"1", 9), part(q[1].From+"1", q[1].From+"0", 9), part(q[1].From+"0", q[1].To, 9)}
		}, "gap"},
		{"too far", func(q ranges) answers {
			return answers{part(q[1].From, q[1].From+"1", 9), part(q[1].From+"1", q[2].To, 9)}
		}, "gap"},
		{"beyond the end", func(q ranges) answers { return answers{part(last(q).From, "", 9), part("", "", 9)} }, "gap"},
		{"out of order", func(q ranges) answers { return answers{listed(q[2].From, q[2].To, 0), listed(q[0].From, q[0].To, 0)} }, ""},
		{"another count", func(q ranges) answers { return answers{listed("", q[0].To, 3, "a")} }, "lists 1"},
		{"out of range", func(q ranges) answers { return answers{listed("", q[0].To, 1, "z")} }, "out of order or out of range"},
		{"twice", func(q ranges) answers { return answers{listed("", q[0].To, 2, "a", "a")} }, "out of order or out of range"},
		{"without loc", func(q ranges) answers { return answers{listed("", q[0].To, 1, "")} }, "out of order or out of range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rounds := 0
			ask := func(_ context.Context, q Question) (Reply, error) {
				if rounds++; rounds > 100 {
					t.Fatal("Compare asks without end")
				}
				return Reply{Cursor: at, Ranges: tt.answer(q.Ranges)}, nil
			}
			_, err := count(Compare(t.Context(), own, digest.ByPosition, inventory.Range{}, ask))
			if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Compare() = %v, want %q", err, tt.want)
			}
		})
	}
}

// count returns the number of differences before the end, and the error.
func count(all iter.Seq2[Difference, error]) (n int, last error) {
	for _, err := range all {
		if last = err; err == nil {
			n++
		}
	}
	return n, last
}

// TestCompareEnds checks how a comparison ends early.
func TestCompareEnds(t *testing.T) {
	at := feed.Cursor{Position: 5, Micros: 5}
	hub, empty := holding(t, at, sourcetest.PEPs(1000)), holding(t, at, nil)
	failure := errors.New("failure")
	asked := uint64(0)
	for _, tt := range []struct {
		name string
		own  *inventory.State
		ask  AskFunc
		want error
	}{
		{"failed question", empty, func(context.Context, Question) (Reply, error) { return Reply{}, failure }, failure},
		{"another cursor", empty, func(context.Context, Question) (Reply, error) {
			return Reply{Cursor: feed.Cursor{Position: 6, Micros: 6}}, nil
		}, resourcesync.ErrInvalid},
		{"two cursors", holding(t, feed.Cursor{}, nil), func(ctx context.Context, q Question) (Reply, error) {
			q.At = at
			reply, err := new(line).to(hub)(ctx, q)
			reply.Cursor.Position += asked
			asked++
			return reply, err
		}, resourcesync.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if n, err := count(Compare(t.Context(), tt.own, digest.ByContent, inventory.Range{}, tt.ask)); n > 0 || !errors.Is(err, tt.want) {
				t.Errorf("Compare() = %d differences, %v, want %v", n, err, tt.want)
			}
		})
	}
	n := 0
	for _, err := range Compare(t.Context(), empty, digest.ByPosition, inventory.Range{}, new(line).to(hub)) {
		if n++; err != nil || n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("Compare() yields %d differences, want 3", n)
	}
}

// TestConfirm checks candidates again after both ends have changed.
func TestConfirm(t *testing.T) {
	src := sourcetest.New(3, 1)
	loc := func(i int) string { return fmt.Sprintf("https://example.org/%04d", i) }
	theirs := sourcetest.Set{}
	for i := range 500 {
		theirs.Add(src.Existing(loc(i)))
	}
	own := maps.Clone(theirs)
	delete(own, loc(10))                 // a fault that remains
	own[loc(20)] = src.Existing(loc(20)) // a fault that remains
	own.Add(src.Existing(loc(600)))      // a fault that remains
	own[loc(30)] = src.Existing(loc(30)) // the hub receives it before the second check
	own[loc(40)] = src.Existing(loc(40)) // the hub receives it, and a newer one
	delete(own, loc(50))                 // own catches up
	own[loc(60)] = src.Existing(loc(60)) // own changes again
	delete(own, loc(70))                 // own gets another version than the hub's
	var candidates []Difference
	first := Compare(t.Context(), holding(t, feed.Cursor{}, own.Entries()), digest.ByContent, inventory.Range{}, askAt(t, src.Head, theirs))
	texts(t, first, func(d Difference) { candidates = append(candidates, d) })
	if len(candidates) != 8 {
		t.Fatalf("Compare() = %d differences, want 8", len(candidates))
	}

	theirs[loc(30)] = own[loc(30)]
	theirs[loc(40)] = src.Existing(loc(40))
	theirs[loc(80)] = src.Existing(loc(80)) // differs only now
	own[loc(50)] = theirs[loc(50)]
	own[loc(60)] = src.Existing(loc(60))
	own[loc(70)] = src.Existing(loc(70))
	named := func(s string) bool { return s == loc(30) || s == loc(40) || s == loc(80) }
	state := holding(t, feed.Cursor{}, own.Entries())
	got := texts(t, Confirm(t.Context(), state, candidates, named, askAt(t, src.Head, theirs)), func(Difference) {})
	wantDifferences(t, got, []string{"missing " + loc(10), "stale " + loc(20), "extra " + loc(600)})
	if n, err := count(Confirm(t.Context(), state, nil, named, nil)); n > 0 || err != nil {
		t.Errorf("Confirm() without candidates = %d differences, %v", n, err)
	}
}

// askAt returns an AskFunc that asks about a set, at a cursor.
func askAt(t *testing.T, at feed.Cursor, set sourcetest.Set) AskFunc {
	ask := new(line).to(holding(t, at, set.Entries()))
	return func(ctx context.Context, q Question) (Reply, error) {
		q.At = at
		return ask(ctx, q)
	}
}
