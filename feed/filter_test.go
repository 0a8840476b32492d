package feed

import (
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestParseFilter(t *testing.T) {
	for _, tt := range []struct {
		query string
		want  Filter
		ok    bool
	}{
		{"", Filter{}, true},
		{"prefix=&change=&type=", Filter{}, true},
		{"prefix=https://example.org/a", Filter{Prefix: "https://example.org/a"}, true},
		{"change=updated", Filter{Changes: []resourcesync.ChangeType{"updated"}}, true},
		{"change=updated,created", Filter{Changes: []resourcesync.ChangeType{"created", "updated"}}, true},
		{"change=updated&change=+deleted+,updated,", Filter{Changes: []resourcesync.ChangeType{"deleted", "updated"}}, true},
		{"change=Updated", Filter{}, false},
		{"change=moved", Filter{}, false},
		{"type=text/html", Filter{Types: []string{"text/html"}}, true},
		{"type=Text/*,application/PDF", Filter{Types: []string{"application/pdf", "text/*"}}, true},
		{"type=text", Filter{}, false},
		{"type=/html", Filter{}, false},
		{"type=text/", Filter{}, false},
		{"type=a/" + strings.Repeat("x", 254), Filter{}, false},
		{"prefix=" + strings.Repeat("x", 2049), Filter{}, false},
		{"collection=https://example.org/c?a=1", Filter{Collection: "https://example.org/c?a=1"}, true},
		{"collection=c", Filter{}, false},
		{"collection=urn:x:a&collection=urn:x:b", Filter{}, false},
	} {
		t.Run(tt.query[:min(len(tt.query), 40)], func(t *testing.T) {
			q, err := url.ParseQuery(tt.query)
			if err != nil {
				t.Fatal(err)
			}
			f, err := ParseFilter(q)
			if !tt.ok {
				if !errors.Is(err, resourcesync.ErrInvalid) {
					t.Errorf("ParseFilter: got error %v, want %v", err, resourcesync.ErrInvalid)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(f, tt.want) {
				t.Errorf("ParseFilter() = %+v, %v, want %+v", f, err, tt.want)
			}
			again, err := ParseFilter(f.Values())
			if err != nil || !reflect.DeepEqual(again, f) || again.Key() != f.Key() {
				t.Errorf("ParseFilter(Values()) = %+v, %v, want %+v", again, err, f)
			}
			if f.IsZero() != (f.Key() == "") {
				t.Errorf("IsZero() = %t, but Key() = %q", f.IsZero(), f.Key())
			}
		})
	}
}

func TestFilterKey(t *testing.T) {
	keys := make(map[string]string)
	for _, query := range []string{"", "prefix=a", "prefix=a%26change=updated", "prefix=a&change=updated", "change=updated", "change=updated,deleted", "type=a/b", "prefix=type%3Da/b", "collection=urn:x:a", "prefix=urn:x:a"} {
		q, _ := url.ParseQuery(query)
		f, err := ParseFilter(q)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := keys[f.Key()]; ok {
			t.Errorf("filters %q and %q have the same key", query, other)
		}
		keys[f.Key()] = query
	}
	a, _ := ParseFilter(url.Values{"change": {"deleted,updated"}, "type": {"A/b"}})
	b, _ := ParseFilter(url.Values{"change": {"updated", "deleted", "deleted"}, "type": {"a/B"}})
	if a.Key() != b.Key() {
		t.Errorf("equal filters have the keys %q and %q", a.Key(), b.Key())
	}
}

func TestFilterMatch(t *testing.T) {
	c := resourcesync.Change{Loc: "https://example.org/a/b", Change: resourcesync.Updated, Type: "Text/HTML; charset=utf-8"}
	for _, tt := range []struct {
		query string
		want  bool
	}{
		{"", true},
		{"prefix=https://example.org/", true},
		{"prefix=https://example.org/a/b", true},
		{"prefix=https://example.org/a/b/", false},
		{"prefix=HTTPS://example.org/", false},
		{"change=updated", true},
		{"change=created,updated", true},
		{"change=created,deleted", false},
		{"type=text/html", true},
		{"type=text/*", true},
		{"type=image/png,text/*", true},
		{"type=tex/*", false},
		{"type=text/htm", false},
		{"type=text/plain", false},
		{"prefix=https://example.org/&change=updated&type=text/*", true},
		{"prefix=https://example.org/&change=deleted&type=text/*", false},
		{"prefix=https://example.com/&change=updated&type=text/*", false},
	} {
		t.Run(tt.query, func(t *testing.T) {
			q, _ := url.ParseQuery(tt.query)
			f, err := ParseFilter(q)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Match(&c); got != tt.want {
				t.Errorf("Match() = %t, want %t", got, tt.want)
			}
		})
	}
	member := resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Updated, Links: []resourcesync.Link{
		{Rel: "describedby", Href: "urn:x:b"}, {Rel: "collection", Href: "urn:x:a"}, {Rel: "collection", Href: "urn:x:c"}}}
	deleted := resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Deleted}
	for collection, want := range map[string]bool{"urn:x:a": true, "urn:x:c": true, "urn:x:b": false, "urn:x:d": false} {
		if f := (Filter{Collection: collection}); f.Match(&member) != want || !f.Match(&deleted) {
			t.Errorf("collection %s: Match(update) = %t, Match(deletion) = %t, want %t, true", collection, f.Match(&member), f.Match(&deleted), want)
		}
	}
	if f := (Filter{Types: []string{"text/*"}}); f.Match(&resourcesync.Change{Loc: "a", Type: ""}) {
		t.Error("Match() = true for a change without a type and a filter by type")
	}
}

func TestFilterApply(t *testing.T) {
	changes := newChanges(4)
	changes[1].Change, changes[3].Change = resourcesync.Deleted, resourcesync.Deleted
	b := NewBatch("set", Cursor{6, 50}, Cursor{10, 103}, changes)
	b.Diverged = true
	if (Filter{}).Apply(b) != b {
		t.Error("Apply() of the zero filter copies the batch")
	}
	filtered := Filter{Changes: []resourcesync.ChangeType{resourcesync.Updated}}.Apply(b)
	if filtered.Set != b.Set || filtered.After != b.After || filtered.Cursor != b.Cursor || !filtered.Diverged {
		t.Errorf("Apply() = %+v, want set, cursors and diverged of %+v", filtered, b)
	}
	if len(filtered.Entries) != 2 || filtered.Entries[0].Position != 7 || filtered.Entries[1].Position != 9 {
		t.Errorf("Apply() has the entries %+v, want positions 7 and 9", filtered.Entries)
	}
	if len(b.Entries) != 4 {
		t.Error("Apply() modifies the batch")
	}
	none := Filter{Prefix: "urn:"}.Apply(b)
	if len(none.Entries) != 0 || none.After != b.After || none.Cursor != b.Cursor {
		t.Errorf("Apply() = %+v, want no entries and the cursors of %+v", none, b)
	}
}

// FuzzParseFilter checks that a parsed filter can be converted to parameters and parsed again, and
// that it selects nothing that was not asked for.
func FuzzParseFilter(f *testing.F) {
	for _, s := range []string{"", "prefix=a&change=created,updated&type=text/*", "change=created&change=,created,", "type=image/svg%2Bxml,image/svg+xml", "prefix=%ff&prefix=b", "type=*/*", "type=TEXT/html;x=y", "change=Created", "type=a/b%20c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		got, err := ParseFilter(q)
		if err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); !ok || !errors.Is(err, resourcesync.ErrInvalid) || !slices.ContainsFunc([]string{"prefix", "change", "type"}, func(name string) bool { return strings.HasPrefix(e.Msg, name) }) {
				t.Errorf("ParseFilter(%q): got error %v, want ErrInvalid that starts with a parameter", query, err)
			}
			return
		}
		again, err := ParseFilter(got.Values())
		if err != nil || again.Key() != got.Key() || got.Prefix != q.Get("prefix") || len(got.Prefix) > 2048 || got.IsZero() != (got.Key() == "") {
			t.Errorf("ParseFilter(%q) = %+v, parsed again %+v, %v", query, got, again, err)
		}
		for _, c := range []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted} {
			if has := slices.Contains(got.Changes, c); has && !strings.Contains(strings.Join(q["change"], ","), string(c)) {
				t.Errorf("ParseFilter(%q) = %+v, which has other types of change", query, got)
			}
		}
	})
}
