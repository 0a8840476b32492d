package audit

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

func TestList(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name  string
		in    io.Reader
		locs  string // each with its line
		fails error
		line  int // of the error
	}{
		{"nothing", strings.NewReader(""), "", nil, 0},
		{"any order, and an empty line", strings.NewReader("{\"loc\":\"urn:b\"}\n\n{\"loc\":\"urn:a\",\"change\":\"created\"}"), "1 urn:b updated 3 urn:a created ", nil, 0},
		{"no JSON", strings.NewReader("{\"loc\":\"urn:a\"}\nurn:b\n{\"loc\":\"urn:c\"}"), "1 urn:a updated ", resourcesync.ErrInvalid, 2},
		{"a relative loc", strings.NewReader(`{"loc":"/a"}`), "", resourcesync.ErrInvalid, 1},
		{"a deletion", strings.NewReader("\n" + `{"loc":"urn:a","change":"deleted"}`), "", resourcesync.ErrInvalid, 2},
		{"a broken reader", io.MultiReader(strings.NewReader("{\"loc\":\"urn:a\"}\n"), iotest.ErrReader(broken)), "1 urn:a updated ", broken, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var locs strings.Builder
			var last error
			for e, err := range List(test.in) {
				if last = err; err != nil {
					continue
				}
				locs.WriteString(strings.Join([]string{string('0' + rune(e.Position)), e.Change.Loc, string(e.Change.Change), ""}, " "))
			}
			if locs.String() != test.locs || !errors.Is(last, test.fails) {
				t.Errorf("List() = %q, %v, want %q, %v", locs.String(), last, test.locs, test.fails)
			}
			if e, ok := errors.AsType[*resourcesync.Error](last); ok && e.Line != test.line {
				t.Errorf("line %d, want %d: %v", e.Line, test.line, e)
			}
		})
	}
	for range List(strings.NewReader("{\"loc\":\"urn:a\"}\nurn:b\n")) {
		break // List must not yield after it
	}
}

func TestDifferenceJSON(t *testing.T) {
	length := int64(3)
	own := &feed.Entry{Cursor: feed.Cursor{Position: 9}, Change: resourcesync.Change{Loc: "urn:a?\"", Change: resourcesync.Updated, Length: &length}}
	theirs := &feed.Entry{Cursor: feed.Cursor{Position: 2, Micros: 1_700_000_000_000_000}, Change: resourcesync.Change{Loc: "urn:a?\"", Change: resourcesync.Created, Lastmod: time.Unix(0, 0).UTC()}}
	const (
		ours = `"own":{"loc":"urn:a?\"","length":3}`
		hub  = `"hub":{"position":2,"datetime":"2023-11-14T22:13:20.000000Z","loc":"urn:a?\"","change":"created","lastmod":"1970-01-01T00:00:00Z"}`
	)
	for _, test := range []struct {
		d    Difference
		want string
	}{
		{Difference{Missing, "urn:a?\"", nil, theirs}, `{"difference":"missing","loc":"urn:a?\"",` + hub + `}`},
		{Difference{Extra, "urn:a?\"", own, nil}, `{"difference":"extra","loc":"urn:a?\"",` + ours + `}`},
		{Difference{Stale, "urn:a?\"", own, theirs}, `{"difference":"stale","loc":"urn:a?\"",` + ours + `,` + hub + `}`},
	} {
		if got := string(test.d.AppendJSON(nil)); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}
