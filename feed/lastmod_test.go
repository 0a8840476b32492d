package feed

import (
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// An interval in whole seconds includes the interval that it stands for, and what is whole
// already stays.
func TestLastmodInSeconds(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct{ t, down, up time.Time }{
		{at, at, at},
		{at.Add(time.Microsecond), at, at.Add(time.Second)},
		{at.Add(time.Second - time.Microsecond), at, at.Add(time.Second)},
		{time.Time{}, time.Time{}, time.Time{}},
	} {
		h := &resourcesync.Header{At: test.t, From: test.t, Completed: test.t, Until: test.t}
		if got := LastmodInSeconds.Header(h); got.At != test.down || got.From != test.down || got.Completed != test.up || got.Until != test.up {
			t.Errorf("of %v it is %+v", test.t, got)
		}
		if h.At != test.t {
			t.Error("the header itself was changed")
		}
		for _, l := range []Lastmod{LastmodOfSource, LastmodIsDatetime} {
			if l.Header(h) != h || l.Down(test.t) != test.t || l.Up(test.t) != test.t {
				t.Errorf("%q changes %v", l, test.t)
			}
		}
	}
}

// The lastmod of an entry is that of the source, or the datetime of the hub; then that of the
// source stands beside it.
func TestLastmodOfEntries(t *testing.T) {
	source := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &Entry{Cursor: Cursor{Position: 1, Micros: source.Add(time.Hour).UnixMicro() + 7}, Change: resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Created, Lastmod: source}}
	for l, want := range map[Lastmod]string{
		LastmodOfSource:   `<lastmod>2020-01-02T03:04:05Z</lastmod><rs:md change="created" datetime="2020-01-02T04:04:05.000007Z" h:position="1"/>`,
		LastmodIsDatetime: `<lastmod>2020-01-02T04:04:05.000007Z</lastmod><rs:md change="created" datetime="2020-01-02T04:04:05.000007Z" h:position="1" h:sourceLastmod="2020-01-02T03:04:05Z"/>`,
		LastmodInSeconds:  `<lastmod>2020-01-02T04:04:05Z</lastmod><rs:md change="created" datetime="2020-01-02T04:04:05Z" h:position="1" h:sourceLastmod="2020-01-02T03:04:05Z"/>`,
	} {
		want = "  <url><loc>https://example.org/a</loc>" + want + "</url>\n"
		if got := string(NewListWriter(l).AppendEntry(nil, e)); got != want {
			t.Errorf("%q: %s, want %s", l, got, want)
		}
	}
}
