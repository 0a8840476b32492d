package documents

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
)

var (
	etagList = regexp.MustCompile(`^[ \t,]*(?:(?:W/)?"[^"]*"[ \t,]*)*`)
	oneETag  = regexp.MustCompile(`(?:W/)?("[^"]*")`)
)

// A precondition holds if and only if the valid prefix of the list of ETags contains the ETag.
func FuzzNotModified(f *testing.F) {
	const etag, modified = `"a,b"`, 1_700_000_000
	for _, s := range []string{``, `*`, ` * `, `"a,b"`, `W/"a,b"`, `"x", W/"a,b"`, `"x"W/"a,b"`, `"a`, `a,b`, `"a", "b"`, `,,"a,b"`, `"x" y "a,b"`, `w/"a,b"`, `W/ "a,b"`, "\"\x00\",\t\"a,b\""} {
		f.Add(s, "Tue, 14 Nov 2023 22:13:20 GMT")
	}
	f.Add(``, "Tue, 14 Nov 2023 22:13:19 GMT")
	f.Add(``, "Tuesday, 14-Nov-23 22:13:20 GMT")
	f.Add(``, "9999")
	f.Fuzz(func(t *testing.T, list, since string) {
		want := strings.TrimSpace(list) == "*"
		for _, found := range oneETag.FindAllStringSubmatch(etagList.FindString(list), -1) {
			want = want || found[1] == etag
		}
		at := time.Unix(modified, 0)
		if got := notModified(http.Header{"If-None-Match": {list}, "If-Modified-Since": {since}}, etag, at); got != want {
			t.Errorf("notModified with If-None-Match %q = %t, want %t", list, got, want)
		}
		if got := notModified(http.Header{"If-None-Match": {`"x"`, etag, list}}, etag, at); !got {
			t.Errorf("notModified with the ETag before %q = false, want true", list)
		}
		parsed, err := http.ParseTime(since)
		if got, want := notModified(http.Header{"If-Modified-Since": {since}}, etag, at), err == nil && parsed.Unix() >= modified; got != want {
			t.Errorf("notModified with If-Modified-Since %q = %t, want %t", since, got, want)
		}
		if notModified(http.Header{"If-Modified-Since": {since}}, etag, time.Time{}) {
			t.Errorf("notModified with If-Modified-Since %q of a document without time = true, want false", since)
		}
	})
}

// The name built from a parsed name is parsed to the same values.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"changelist-1-2-from-3.xml", "changelist--1-until-2-seconds.xml", "changelist-1-18446744073709551615-until-9223372036854775808.xml", "changelist-1-2-from-3-4.xml", "changelist-1-02-from-3.xml", "resourcelist-1-1700000000000000-1.xml",
		"resourcelist-1-1700000000000000-1.2.xml", "resourcelist-1-1700000000000000-01.xml", "resourcelist-1-1700000000000000-1.1.xml", "resourcelist-1-1-0.xml", "resourcelist--1-1-1.xml", "resourcelist-9999999999999999999-1-1.-1.xml"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if at, block, piece, ok := parsePartName(name); ok {
			name := partName(feed.State{Description: feed.Description{Lastmod: feed.LastmodSeconds}}, at, time.Unix(1_700_000_000, 0), block, piece)
			if a, b, p, ok := parsePartName(name); !ok || a != at || b != block || p != max(piece, 1) {
				t.Errorf("parsePartName(%q) = %v, %d, %d, want %v, %d, %d", name, a, b, p, at, block, max(piece, 1))
			}
		}
		if id, ok := parseListName(name); ok {
			name := id.name(feed.State{Description: feed.Description{Lastmod: feed.LastmodSeconds}})
			if again, ok := parseListName(name); !ok || again != id {
				t.Errorf("parseListName(%q) = %v, want %v", name, again, id)
			}
		}
	})
}
