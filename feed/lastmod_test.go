package feed

import (
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// TestLastmodSeconds checks that an interval is rounded outwards, and that whole seconds are not
// changed.
func TestLastmodSeconds(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name        string
		t, down, up time.Time
	}{
		{"whole", at, at, at},
		{"just after", at.Add(time.Microsecond), at, at.Add(time.Second)},
		{"just before", at.Add(time.Second - time.Microsecond), at, at.Add(time.Second)},
		{"zero", time.Time{}, time.Time{}, time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &resourcesync.Header{At: tt.t, From: tt.t, Completed: tt.t, Until: tt.t}
			if got := LastmodSeconds.Header(h); got.At != tt.down || got.From != tt.down || got.Completed != tt.up || got.Until != tt.up {
				t.Errorf("Header(%v) = %+v, want %v and %v", tt.t, got, tt.down, tt.up)
			}
			if h.At != tt.t {
				t.Error("Header() modifies its argument")
			}
			for _, l := range []Lastmod{LastmodSource, LastmodDatetime} {
				if l.Header(h) != h || l.RoundDown(tt.t) != tt.t || l.RoundUp(tt.t) != tt.t {
					t.Errorf("%q rounds %v", l, tt.t)
				}
			}
		})
	}
}

// TestLastmodEntries checks that the lastmod of an entry is the source's or the hub's datetime, and
// that the source's is an attribute in the latter case.
func TestLastmodEntries(t *testing.T) {
	source := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &Entry{Cursor: Cursor{Position: 1, Micros: source.Add(time.Hour).UnixMicro() + 7}, Change: resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Created, Lastmod: source}}
	for l, want := range map[Lastmod]string{
		LastmodSource:   `<lastmod>2020-01-02T03:04:05Z</lastmod><rs:md change="created" datetime="2020-01-02T04:04:05.000007Z" h:position="1"/>`,
		LastmodDatetime: `<lastmod>2020-01-02T04:04:05.000007Z</lastmod><rs:md change="created" datetime="2020-01-02T04:04:05.000007Z" h:position="1" h:sourceLastmod="2020-01-02T03:04:05Z"/>`,
		LastmodSeconds:  `<lastmod>2020-01-02T04:04:05Z</lastmod><rs:md change="created" datetime="2020-01-02T04:04:05Z" h:position="1" h:sourceLastmod="2020-01-02T03:04:05Z"/>`,
	} {
		want = "  <url><loc>https://example.org/a</loc>" + want + "</url>\n"
		if got := string(NewListWriter(l).AppendEntry(nil, e)); got != want {
			t.Errorf("NewListWriter(%q).AppendEntry() = %s, want %s", l, got, want)
		}
	}
}
