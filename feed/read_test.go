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

// readBack encodes a batch as JSON and decodes it.
func readBack(t *testing.T, b *Batch, next string) (*Batch, string) {
	t.Helper()
	text := b.appendJSON(nil, next)
	got, gotNext, err := ReadBatch(bytes.NewReader(text), resourcesync.Limits{})
	if err != nil {
		t.Fatalf("ReadBatch: %v in\n%s", err, text)
	}
	return got, gotNext
}

// wantBatch reports an error unless two batches are equal.
func wantBatch(t *testing.T, got, want *Batch) {
	t.Helper()
	if got.Set != want.Set || got.After != want.After || got.Cursor != want.Cursor || got.Diverged != want.Diverged {
		t.Errorf("got a batch of %s after %v up to %v, diverged %t, want %+v", got.Set, got.After, got.Cursor, got.Diverged, want)
	}
	if len(got.Entries) != len(want.Entries) {
		t.Fatalf("got %d entries, want %d", len(got.Entries), len(want.Entries))
	}
	for i := range got.Entries {
		if !reflect.DeepEqual(got.Entries[i], want.Entries[i]) {
			t.Errorf("entry %d =\n%+v, want\n%+v", i, got.Entries[i], want.Entries[i])
		}
	}
	if g, w := got.appendJSON(nil, ""), want.appendJSON(nil, ""); !bytes.Equal(g, w) {
		t.Errorf("encoded again:\n%s, want\n%s", g, w)
	}
}

// randomChanges returns n changes, each with a random selection of members.
func randomChanges(r *rand.Rand, n int) []resourcesync.Change {
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

// TestReadBatch checks that ReadBatch decodes what is encoded, for all members of changes.
func TestReadBatch(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := r.IntN(8)
		b := NewBatch("a.set", Cursor{6, noon}, Cursor{6 + uint64(n), noon + 1000*int64(n)}, randomChanges(r, n))
		b.Diverged = r.IntN(2) == 0
		if n > 1 && r.IntN(2) == 0 { // a filter omitted an entry
			i := r.IntN(n)
			b.Entries = append(b.Entries[:i], b.Entries[i+1:]...)
		}
		want := []string{"", "https://hub.example.org/sets/a.set/changes?limit=2&since=8-1"}[r.IntN(2)]
		got, next := readBack(t, b, want)
		wantBatch(t, got, b)
		if next != want {
			t.Errorf("next = %q, want %q", next, want)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, b := range []*Batch{
		{Set: "s"}, // a set that does not exist yet
		{Set: "s", After: Cursor{3, noon}, Cursor: Cursor{3, noon}},
		{Set: "s", After: Cursor{3, noon - 1}, Cursor: Cursor{5, noon}, Diverged: true},
		NewBatch("s", Cursor{}, Cursor{2, noon}, newChanges(2)),
	} {
		got, _ := readBack(t, b, "")
		wantBatch(t, got, b)
	}
}

// TestReadBatchUnknownMembers checks that members that a later version may add are skipped.
func TestReadBatchUnknownMembers(t *testing.T) {
	const text = `{"new":{"a":[1]},"changes":[{"loc":"urn:a","more":["x"],"ln":[{"rel":"up","href":"urn:b","more":{}}],"position":1,"datetime":"2026-01-02T03:04:05Z"}],
		"cursor":"1-1767323045000000","after":"0-0","set":"s","diverged":null,"next":null}`
	got, next, err := ReadBatch(strings.NewReader(text), resourcesync.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	wantBatch(t, got, &Batch{Set: "s", Cursor: Cursor{1, noon}, Entries: []Entry{{Cursor{1, noon}, resourcesync.Change{
		Loc: "urn:a", Links: []resourcesync.Link{{Rel: "up", Href: "urn:b"}}}}}})
	if next != "" {
		t.Errorf("next = %q, want none", next)
	}
}

func TestReadBatchInvalid(t *testing.T) {
	const rest = `"set":"s","after":"1-1","cursor":"3-3"`
	entry := func(members string) string { return `{` + rest + `,"changes":[{"loc":"urn:a",` + members + `}]}` }
	const first = `"position":2,"datetime":"1970-01-01T00:00:00.000002Z"`
	for _, tt := range []struct{ name, in, want string }{
		{"empty", ``, "document is empty"},
		{"truncated", `{"set":"s",`, "ends early"},
		{"not an object", `[]`, "JSON value: got an array, want an object"},
		{"trailing object", `{` + rest + `,"changes":[]} {}`, "after top-level value"},
		{"duplicate member", `{"set":"s","set":"s"}`, `duplicate member "set"`},
		{"no set", `{"after":"1-1","cursor":"3-3","changes":[]}`, `invalid set name ""`},
		{"no after", `{"set":"s","cursor":"3-3","changes":[]}`, `invalid cursor ""`},
		{"no cursor", `{"set":"s","after":"1-1","changes":[]}`, `invalid cursor ""`},
		{"no changes", `{` + rest + `}`, `"changes" is missing`},
		{"invalid set", `{"set":"A","after":"1-1","cursor":"3-3","changes":[]}`, `invalid set name "A"`},
		{"invalid after", `{"set":"s","after":"1","cursor":"3-3","changes":[]}`, `invalid cursor "1"`},
		{"invalid cursor", `{"set":"s","after":"1-1","cursor":"start","changes":[]}`, `invalid cursor "start"`},
		{"backwards", `{"set":"s","after":"4-4","cursor":"3-3","changes":[]}`, "after 4-4 is later than cursor 3-3"},
		{"diverged not a boolean", `{` + rest + `,"diverged":"true","changes":[]}`, "diverged: got a string, want a boolean"},
		{"changes not an array", `{` + rest + `,"changes":{}}`, `"changes": got an object, want an array`},
		{"no loc", `{` + rest + `,"changes":[{` + first + `}]}`, "entry 1: loc is missing"},
		{"no position", entry(`"datetime":"2026-01-02T03:04:05Z"`), "entry 1 (urn:a): position or datetime is missing"},
		{"no datetime", entry(`"position":2`), "entry 1 (urn:a): position or datetime is missing"},
		{"position not a number", entry(`"position":"2"`), "position: got a string, want a number"},
		{"position not an integer", entry(`"position":2.5`), "position: got 2.5, want a whole number"},
		{"position too large", entry(`"position":9007199254740992,"datetime":"2026-01-02T03:04:05Z"`), "out of the range of a cursor"},
		{"before 1970", entry(`"position":2,"datetime":"1969-12-31T23:59:59Z"`), "out of the range of a cursor"},
		{"invalid sourceDatetime", entry(`"sourceDatetime":"yesterday",` + first), `sourceDatetime: got "yesterday"`},
		{"out of order", `{` + rest + `,"changes":[{"loc":"urn:a",` + first + `},{"loc":"urn:b",` + first + `}]}`, "entry 2 (urn:b): position and datetime must be greater"},
		{"not after after", entry(`"position":1,"datetime":"1970-01-01T00:00:00.000001Z"`), "entries 1-1 to 1-1 are not between"},
		{"after cursor", entry(`"position":4,"datetime":"1970-01-01T00:00:00.000004Z"`), "entries 4-4 to 4-4 are not between"},
		{"at position of cursor", entry(`"position":3,"datetime":"1970-01-01T00:00:00.000002Z"`), "are not between"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _, err := ReadBatch(strings.NewReader(tt.in), resourcesync.Limits{})
			if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), tt.want) || b != nil {
				t.Errorf("ReadBatch() = %v, %v, want an error with %q", b, err, tt.want)
			}
		})
	}
}

// TestReadBatchLimits checks that ReadBatch reads no more than its limits, and that an error of the
// reader is not reported as invalid input.
func TestReadBatchLimits(t *testing.T) {
	text := NewBatch("s", Cursor{1, noon}, Cursor{11, noon + 100}, newChanges(10)).JSON()
	for _, l := range []resourcesync.Limits{{Bytes: int64(len(text)) - 1}, {Entries: 9}} {
		if _, _, err := ReadBatch(bytes.NewReader(text), l); !errors.Is(err, resourcesync.ErrTooLarge) {
			t.Errorf("ReadBatch with %+v: got error %v, want ErrTooLarge", l, err)
		}
	}
	for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(text)), iotest.DataErrReader(bytes.NewReader(text))} {
		if _, _, err := ReadBatch(r, resourcesync.Limits{Bytes: int64(len(text)), Entries: 10}); err != nil {
			t.Error(err)
		}
	}
	lost := errors.New("connection lost")
	_, _, err := ReadBatch(io.MultiReader(bytes.NewReader(text[:len(text)/2]), iotest.ErrReader(lost)), resourcesync.Limits{})
	if !errors.Is(err, lost) || errors.Is(err, resourcesync.ErrInvalid) {
		t.Errorf("ReadBatch of a broken reader: got error %v, want %v", err, lost)
	}
}

// FuzzReadBatch checks that a decoded batch can be encoded, and is equal when it is decoded again.
func FuzzReadBatch(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	f.Add(NewBatch("s", Cursor{1, noon}, Cursor{9, noon + 100}, randomChanges(r, 8)).JSON())
	f.Add((&Batch{Set: "s", Diverged: true}).appendJSON(nil, "https://example.org/?since=0-0"))
	f.Add([]byte(`{"x":[{}],"set":"s","after":"1-1","cursor":"3-3","changes":[{"loc":"urn:\u00fc","y":1,"position":2,"datetime":"1970-01-01T00:00:00.000002Z"}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, _, err := ReadBatch(bytes.NewReader(in), resourcesync.Limits{})
		if err != nil {
			if !errors.Is(err, resourcesync.ErrInvalid) && !errors.Is(err, resourcesync.ErrTooLarge) {
				t.Errorf("got error %v, want ErrInvalid or ErrTooLarge", err)
			}
			return
		}
		again, _ := readBack(t, b, "")
		wantBatch(t, again, b)
	})
}
