package feed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// readBack writes a batch as JSON and reads it again.
func readBack(t *testing.T, b *Batch, next string) (*Batch, string) {
	t.Helper()
	text := b.appendJSON(nil, next)
	got, gotNext, err := ReadBatch(bytes.NewReader(text), resourcesync.Limits{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return got, gotNext
}

// wantBatch fails the test unless two batches say the same.
func wantBatch(t *testing.T, got, want *Batch) {
	t.Helper()
	if got.Set != want.Set || got.After != want.After || got.Cursor != want.Cursor || got.Diverged != want.Diverged {
		t.Errorf("the batch is %s after %v up to %v, diverged %t", got.Set, got.After, got.Cursor, got.Diverged)
	}
	if len(got.Entries) != len(want.Entries) {
		t.Fatalf("%d entries, want %d", len(got.Entries), len(want.Entries))
	}
	for i := range got.Entries {
		if !reflect.DeepEqual(got.Entries[i], want.Entries[i]) {
			t.Errorf("entry %d is\n%+v, want\n%+v", i, got.Entries[i], want.Entries[i])
		}
	}
	if g, w := got.appendJSON(nil, ""), want.appendJSON(nil, ""); !bytes.Equal(g, w) {
		t.Errorf("written again it is\n%s, want\n%s", g, w)
	}
}

// everyMember returns changes in which each member is set or not, at random.
func everyMember(r *rand.Rand, n int) []resourcesync.Change {
	maybe := func(s string) string {
		if r.IntN(2) == 0 {
			return ""
		}
		return s
	}
	when := func() time.Time {
		if r.IntN(2) == 0 {
			return time.Time{}
		}
		return time.Unix(r.Int64N(4e9)-1e9, r.Int64N(2)*r.Int64N(1e9)).UTC()
	}
	size := func() *int64 {
		if r.IntN(2) == 0 {
			return nil
		}
		n := r.Int64N(1 << uint(1+r.IntN(62)))
		return &n
	}
	text := func() string {
		return []string{"", `a "b" \ c`, "ü ☃ 𝄞", "line\nline\ttab", "</rs:md>&amp;"}[r.IntN(5)]
	}
	attrs := func() (all []resourcesync.Attr) {
		for i := range r.IntN(3) {
			all = append(all, resourcesync.Attr{Namespace: "https://example.org/ns#" + fmt.Sprint(i), Name: "a-b." + fmt.Sprint(r.IntN(9)), Value: text()})
		}
		return all
	}
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		c := &changes[i]
		*c = resourcesync.Change{
			Loc: fmt.Sprintf("https://example.org/%d?a=b&c=\"%s\"", r.IntN(1000), maybe("ü")), Change: resourcesync.Updated,
			Datetime: when(), Lastmod: when(), Changefreq: maybe("daily"), Hash: maybe("md5:00 x:ff"), Length: size(),
			Type: maybe("text/html; charset=utf-8"), Encoding: maybe("gzip"), Path: maybe("/a b"), Attrs: attrs(),
		}
		for range r.IntN(3) {
			c.Links = append(c.Links, resourcesync.Link{
				Rel: "describedby", Href: "https://example.org/" + text(), Pri: r.IntN(3), Modified: when(), Hash: maybe("md5:11"), Length: size(),
				Type: maybe("a/b"), Encoding: maybe("br"), Path: maybe("/b"), Profile: maybe("urn:x:p"), Attrs: attrs(),
			})
		}
	}
	return changes
}

// What is written can be read back, whatever members a change has.
func TestReadBatch(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := r.IntN(8)
		b := NewBatch("a.set", Cursor{6, noon}, Cursor{6 + uint64(n), noon + 1000*int64(n)}, everyMember(r, n))
		b.Diverged = r.IntN(2) == 0
		if n > 1 && r.IntN(2) == 0 { // a filter left an entry out
			i := r.IntN(n)
			b.Entries = append(b.Entries[:i], b.Entries[i+1:]...)
		}
		want := []string{"", "https://hub.example.org/sets/a.set/changes?limit=2&since=8-1"}[r.IntN(2)]
		got, next := readBack(t, b, want)
		wantBatch(t, got, b)
		if next != want {
			t.Errorf("next is %q, want %q", next, want)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, b := range []*Batch{
		{Set: "s"}, // a set that is not made yet
		{Set: "s", After: Cursor{3, noon}, Cursor: Cursor{3, noon}},
		{Set: "s", After: Cursor{3, noon - 1}, Cursor: Cursor{5, noon}, Diverged: true},
		NewBatch("s", Cursor{}, Cursor{2, noon}, plain(2)),
	} {
		got, _ := readBack(t, b, "")
		wantBatch(t, got, b)
	}
}

// A later hub may say more than this program knows.
func TestReadBatchPassesOverWhatItDoesNotKnow(t *testing.T) {
	const text = `{"new":{"a":[1]},"changes":[{"loc":"urn:a","more":["x"],"ln":[{"rel":"up","href":"urn:b","more":{}}],"position":1,"datetime":"2026-01-02T03:04:05Z"}],
		"cursor":"1-1767323045000000","after":"0-0","set":"s","diverged":null,"next":null}`
	got, next, err := ReadBatch(strings.NewReader(text), resourcesync.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	wantBatch(t, got, &Batch{Set: "s", Cursor: Cursor{1, noon}, Entries: []Entry{{Cursor{1, noon}, resourcesync.Change{
		Loc: "urn:a", Links: []resourcesync.Link{{Rel: "up", Href: "urn:b"}}}}}})
	if next != "" {
		t.Errorf("next is %q", next)
	}
}

func TestReadBatchRefuses(t *testing.T) {
	const rest = `"set":"s","after":"1-1","cursor":"3-3"`
	entry := func(members string) string { return `{` + rest + `,"changes":[{"loc":"urn:a",` + members + `}]}` }
	const first = `"position":2,"datetime":"1970-01-01T00:00:00.000002Z"`
	for _, test := range []struct{ name, in, want string }{
		{"nothing", ``, "the document is empty"},
		{"half", `{"set":"s",`, "ends early"},
		{"no object", `[]`, "it is an object, not an array"},
		{"more", `{` + rest + `,"changes":[]} {}`, "after top-level value"},
		{"twice", `{"set":"s","set":"s"}`, `"set" is there twice`},
		{"no set", `{"after":"1-1","cursor":"3-3","changes":[]}`, `"" cannot name a set`},
		{"no after", `{"set":"s","cursor":"3-3","changes":[]}`, `"" is no cursor`},
		{"no cursor", `{"set":"s","after":"1-1","changes":[]}`, `"" is no cursor`},
		{"no changes", `{` + rest + `}`, `"changes" is missing`},
		{"no name of a set", `{"set":"A","after":"1-1","cursor":"3-3","changes":[]}`, `"A" cannot name a set`},
		{"after is no cursor", `{"set":"s","after":"1","cursor":"3-3","changes":[]}`, `"1" is no cursor`},
		{"cursor is no cursor", `{"set":"s","after":"1-1","cursor":"start","changes":[]}`, `"start" is no cursor`},
		{"backwards", `{"set":"s","after":"4-4","cursor":"3-3","changes":[]}`, "after, which is 4-4, lies behind cursor"},
		{"diverged is no boolean", `{` + rest + `,"diverged":"true","changes":[]}`, "diverged is a boolean, not a string"},
		{"changes are no array", `{` + rest + `,"changes":{}}`, `"changes" is an array`},
		{"no loc", `{` + rest + `,"changes":[{` + first + `}]}`, "entry 1: loc is missing"},
		{"no position", entry(`"datetime":"2026-01-02T03:04:05Z"`), "entry 1 (urn:a): an entry has a position and a datetime"},
		{"no datetime", entry(`"position":2`), "entry 1 (urn:a): an entry has a position and a datetime"},
		{"position is no number", entry(`"position":"2"`), "position is a number, not a string"},
		{"position is no whole number", entry(`"position":2.5`), "position is a whole number, not 2.5"},
		{"position is huge", entry(`"position":9007199254740992,"datetime":"2026-01-02T03:04:05Z"`), "beyond what a cursor holds"},
		{"before 1970", entry(`"position":2,"datetime":"1969-12-31T23:59:59Z"`), "beyond what a cursor holds"},
		{"sourceDatetime is none", entry(`"sourceDatetime":"yesterday",` + first), "sourceDatetime \"yesterday\""},
		{"out of order", `{` + rest + `,"changes":[{"loc":"urn:a",` + first + `},{"loc":"urn:b",` + first + `}]}`, "entry 2 (urn:b): positions and datetimes rise"},
		{"not behind after", entry(`"position":1,"datetime":"1970-01-01T00:00:00.000001Z"`), "the entries 1-1 to 1-1 do not lie between"},
		{"behind cursor", entry(`"position":4,"datetime":"1970-01-01T00:00:00.000004Z"`), "the entries 4-4 to 4-4 do not lie between"},
		{"at cursor's position", entry(`"position":3,"datetime":"1970-01-01T00:00:00.000002Z"`), "do not lie between"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, _, err := ReadBatch(strings.NewReader(test.in), resourcesync.Limits{})
			if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), test.want) || b != nil {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// ReadBatch reads no more than its limits. An error of the reader does not count
// as invalid input.
func TestReadBatchBounds(t *testing.T) {
	text := NewBatch("s", Cursor{1, noon}, Cursor{11, noon + 100}, plain(10)).JSON()
	for _, l := range []resourcesync.Limits{{Bytes: int64(len(text)) - 1}, {Entries: 9}} {
		if _, _, err := ReadBatch(bytes.NewReader(text), l); !errors.Is(err, resourcesync.ErrTooLarge) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(text)), iotest.DataErrReader(bytes.NewReader(text))} {
		if _, _, err := ReadBatch(r, resourcesync.Limits{Bytes: int64(len(text)), Entries: 10}); err != nil {
			t.Error(err)
		}
	}
	broken := errors.New("the line broke")
	_, _, err := ReadBatch(io.MultiReader(bytes.NewReader(text[:len(text)/2]), iotest.ErrReader(broken)), resourcesync.Limits{})
	if !errors.Is(err, broken) || errors.Is(err, resourcesync.ErrInvalid) {
		t.Error(err)
	}
}

// Every batch that can be read can be written, and is the same when it is read
// again.
func FuzzReadBatch(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	f.Add(NewBatch("s", Cursor{1, noon}, Cursor{9, noon + 100}, everyMember(r, 8)).JSON())
	f.Add((&Batch{Set: "s", Diverged: true}).appendJSON(nil, "https://example.org/?since=0-0"))
	f.Add([]byte(`{"x":[{}],"set":"s","after":"1-1","cursor":"3-3","changes":[{"loc":"urn:\u00fc","y":1,"position":2,"datetime":"1970-01-01T00:00:00.000002Z"}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, _, err := ReadBatch(bytes.NewReader(in), resourcesync.Limits{})
		if err != nil {
			if !errors.Is(err, resourcesync.ErrInvalid) && !errors.Is(err, resourcesync.ErrTooLarge) {
				t.Errorf("an error that is neither: %v", err)
			}
			return
		}
		again, _ := readBack(t, b, "")
		wantBatch(t, again, b)
	})
}
