package subscribe

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// checkSift compares what sift finds with what each filter says by itself.
func checkSift(t *testing.T, all *audiences, b *feed.Batch) {
	t.Helper()
	got := map[*audience][]byte{}
	all.sift(b, func(a *audience, cut *feed.Batch) {
		if _, again := got[a]; again {
			t.Errorf("%+v is found twice", a.filter)
		}
		got[a] = cut.JSON()
	})
	for key, a := range all.byKey {
		want := a.filter.Apply(b)
		switch {
		case len(want.Entries) == 0:
			if got[a] != nil {
				t.Errorf("%s: found with %s", key, got[a])
			}
		case !bytes.Equal(got[a], want.JSON()):
			t.Errorf("%s: found with %s, want %s", key, got[a], want.JSON())
		}
		delete(got, a)
	}
	if len(got) > 0 {
		t.Errorf("%d were found that are gone", len(got))
	}
}

// checkPrefixes compares what is kept with what it should be.
func checkPrefixes(t *testing.T, all *audiences) {
	t.Helper()
	for i, p := range all.prefixes {
		var parent *prefix
		for _, q := range all.prefixes {
			if q != p && strings.HasPrefix(p.text, q.text) && (parent == nil || len(q.text) > len(parent.text)) {
				parent = q
			}
		}
		if p.parent != parent || len(p.wanted) > 0 || len(p.audiences)+len(p.words) == 0 || i > 0 && all.prefixes[i-1].text >= p.text {
			t.Errorf("%d: %+v", i, p)
		}
	}
}

func batchOf(changes ...resourcesync.Change) *feed.Batch {
	n := uint64(len(changes))
	return feed.NewBatch("a", feed.Cursor{Position: 7, Micros: 7}, feed.Cursor{Position: 7 + n, Micros: 7 + int64(n)}, changes)
}

// FuzzSift lets audiences come and go, and sifts changes. Each line of script is the loc
// of a change, or a filter that comes (+) or goes (-): a prefix, and perhaps a type of
// change behind a space, tags behind a "#", as of a change, and relation types behind a "!".
func FuzzSift(f *testing.F) {
	f.Add("+a\n+ab\n+\nab\nb\n-a\nabc\n+a created\na\n+a\na\n- \nb")
	f.Add("+abc\n+a\n+ab\nabd\n-ab\nabc\nabcd\n+ab deleted\nab\nac")
	f.Add("+a#x\n+a\n+#x y\nab#y\nb#x y\nb\na#x z\n-#x y\na#x\n+a deleted#x x\na#x\na#x\na#x")
	f.Add("+a!x\n+a\n+#x!y\nab!x\na#x\na#x!y\na!y y x\n-#x!y\na#x!y\n+!x y\na!y x\n-a!x\na!x#x")
	f.Fuzz(func(t *testing.T, script string) {
		var all audiences
		var changes []resourcesync.Change
		kinds := []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}
		for line := range strings.Lines(script) {
			line = strings.TrimSuffix(line, "\n")
			line, rels, _ := strings.Cut(line, "!")
			line, tags, _ := strings.Cut(line, "#")
			text, kind, _ := strings.Cut(strings.TrimLeft(line, "+-"), " ")
			filter := feed.Filter{Prefix: text, Tags: strings.Fields(tags), Rels: strings.Fields(rels)}
			if kind != "" {
				filter.Changes = []resourcesync.ChangeType{resourcesync.ChangeType(kind)}
			}
			switch {
			case strings.HasPrefix(line, "+"):
				all.of(filter)
			case strings.HasPrefix(line, "-"):
				if a := all.byKey[filter.Key()]; a != nil {
					all.remove(a)
				}
			default:
				c := resourcesync.Change{Loc: line, Change: kinds[len(changes)%3]}
				c.SetTags(tags)
				c.Links = linksOf(strings.Fields(rels))
				changes = append(changes, c)
				checkSift(t, &all, batchOf(changes[max(0, len(changes)-4):]...))
			}
			checkPrefixes(t, &all)
		}
		for _, a := range all.byKey {
			all.remove(a)
		}
		if len(all.prefixes) > 0 {
			t.Errorf("%d prefixes are left", len(all.prefixes))
		}
	})
}

// linksOf returns links with relation types.
func linksOf(rels []string) (links []resourcesync.Link) {
	for _, rel := range rels {
		links = append(links, resourcesync.Link{Rel: rel, Href: "urn:x:a"})
	}
	return links
}

// Many audiences come and go at random, with prefixes that begin with each other.
func TestSift(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	word := func(n int) string {
		b := make([]byte, random.IntN(n+1))
		for i := range b {
			b[i] = "ab/"[random.IntN(3)]
		}
		return string(b)
	}
	words := func() []string {
		if random.IntN(2) == 0 {
			return nil
		}
		return [][]string{{"x"}, {"y"}, {"x", "y"}, {"y", "z"}}[random.IntN(4)]
	}
	var all audiences
	for range 2_000 {
		f := feed.Filter{Prefix: word(5)}
		if random.IntN(3) == 0 {
			f.Changes = []resourcesync.ChangeType{resourcesync.Created}
		}
		f.Tags, f.Rels = words(), words()
		if a := all.byKey[f.Key()]; a != nil {
			all.remove(a)
		} else {
			all.of(f)
		}
		var changes []resourcesync.Change
		for i := range 1 + random.IntN(5) {
			c := resourcesync.Change{Loc: word(8), Change: []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated}[i%2]}
			c.SetTags(words()...)
			c.Links = linksOf(words())
			changes = append(changes, c)
		}
		checkPrefixes(t, &all)
		checkSift(t, &all, batchOf(changes...))
	}
}

// A batch costs the connections nothing whose filters leave all of it out. They are told
// of it all the same, when they next need to know.
func TestNotTouched(t *testing.T) {
	s := New(silentLog{}, silentLog{}, Options{})
	g := &group{key: groupKey{set: "a", format: feed.JSON, filtered: true}, cancel: func() {}, cursor: feed.Cursor{Position: 5, Micros: 5}, delivered: func(*tally) {}}
	seen := g.cursor
	g.seen.Store(&seen)
	var conns []*conn
	for i := range 3 {
		c := testConn(t, s, 5)
		c.key = g.key
		c.filter = feed.Filter{Prefix: fmt.Sprintf("https://example.org/%d/", i)}
		if joined, _ := g.join(c); !joined {
			t.Fatal("not joined")
		}
		conns = append(conns, c)
	}
	b := feed.NewBatch("a", g.cursor, feed.Cursor{Position: 6, Micros: 6}, []resourcesync.Change{{Loc: "https://example.org/x", Change: resourcesync.Created}})
	conns[0].mu.Lock() // who touches it waits for ever
	g.deliverFiltered(b)
	conns[0].mu.Unlock()
	for i, look := range []func(*conn){
		func(c *conn) { c.beatLocked() },
		func(c *conn) { c.settleLocked() },
		func(c *conn) { c.detachLocked(); c.closeLocked() },
	} {
		c := conns[i]
		c.mu.Lock()
		look(c)
		if c.cursor != b.Cursor || (c.told == b.Cursor) != (i == 0) {
			t.Errorf("%d: it is at %v, and was told %v", i, c.cursor, c.told)
		}
		c.mu.Unlock()
	}
	s.wg.Wait()
	early := testConn(t, s, 5)
	if joined, _ := g.join(early); joined {
		t.Error("a connection that has not seen the batch is taken in")
	}
	for _, c := range conns {
		c.end()
	}
	if !g.ended || members(g) != 0 || !slices.Equal(g.audiences.prefixes, nil) {
		t.Errorf("%d are left", members(g))
	}
}

// A change is looked at for nobody whose words it does not have, however many there are.
func TestSiftByWords(t *testing.T) {
	for _, kind := range []struct {
		name   string
		filter func(words ...string) feed.Filter
		give   func(c *resourcesync.Change, words ...string)
	}{
		{"tags", func(words ...string) feed.Filter { return feed.Filter{Tags: words} }, func(c *resourcesync.Change, words ...string) { c.SetTags(words...) }},
		{"rels", func(words ...string) feed.Filter { return feed.Filter{Rels: words} }, func(c *resourcesync.Change, words ...string) { c.Links = linksOf(words) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			var all, few audiences
			for i := range 10_000 {
				f := kind.filter(fmt.Sprint("word", i), "other")
				all.of(f)
				if i == 7 || i == 8 {
					few.of(f)
				}
			}
			c := resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Updated}
			plain := batchOf(c)
			kind.give(&c, "word7", "word8", "unknown")
			b := batchOf(c)
			checkSift(t, &all, b)
			cost := func(all *audiences, b *feed.Batch) float64 {
				return testing.AllocsPerRun(10, func() { all.sift(b, func(*audience, *feed.Batch) {}) })
			}
			if many, two := cost(&all, b), cost(&few, b); many != two || many > 20 {
				t.Errorf("%v allocations for two audiences of 10,000, and %v for two of two", many, two)
			}
			if n := cost(&all, plain); n > 0 {
				t.Errorf("%v allocations for a change without %s", n, kind.name)
			}
		})
	}
}

// BenchmarkSift is what a batch costs beside many audiences, each with words of its own.
func BenchmarkSift(b *testing.B) {
	c := resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Updated, Links: linksOf([]string{"word7", "via"})}
	c.SetTags("word7", "via")
	batch := batchOf(c)
	for _, n := range []int{10, 10_000} {
		for _, kind := range []string{"tags", "rels"} {
			b.Run(fmt.Sprint(kind, "/", n), func(b *testing.B) {
				var all audiences
				for i := range n {
					f := feed.Filter{Tags: []string{fmt.Sprint("word", i)}}
					if kind == "rels" {
						f = feed.Filter{Rels: f.Tags}
					}
					all.of(f)
				}
				b.ReportAllocs()
				for b.Loop() {
					all.sift(batch, func(*audience, *feed.Batch) {})
				}
			})
		}
	}
}
