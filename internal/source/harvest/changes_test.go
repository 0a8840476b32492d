package harvest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// changesOf reads the changes of a list since a day, each as "loc change day".
func changesOf(t *testing.T, o *origin, l *Lister, path, since string, seen *Seen) (all []string, err error) {
	t.Helper()
	var from time.Time
	if since != "" {
		if from, err = resourcesync.ParseTime(day(since)); err != nil {
			t.Fatal(err)
		}
	}
	if l.Getter = (&Getter{Client: http.DefaultClient, Tries: 1}); seen == nil {
		seen = new(Seen)
	}
	for c, err := range l.Changes(context.Background(), o.url+path, from, seen, nil) {
		if err != nil {
			return all, err
		}
		all = append(all, fmt.Sprint(strings.TrimPrefix(c.Loc, "https://example.org/"), " ", c.Change, " ", c.Datetime.Day()))
	}
	return all, nil
}

// The lists of an index are read oldest first, and lists that end before since are not read.
func TestChangesOfIndex(t *testing.T) {
	o, l := newOrigin(t), new(Lister)
	want := func(since string, changes, requests []string) {
		t.Helper()
		got, err := changesOf(t, o, l, "/index", since, nil)
		if asked := o.requests(); err != nil || !slices.Equal(got, changes) || !slices.Equal(asked, requests) {
			t.Errorf("got changes %q, %v with requests %q", got, err, asked)
		}
	}
	o.put("/index", indexOf(o.url, "/1 1 3", "/3 5", "/2 3 5"))
	o.put("/1", listOf(` from="`+day("1")+`" until="`+day("3")+`"`, "a created 1", "b created 2"))
	o.put("/2", listOf(` from="`+day("3")+`" until="`+day("5")+`"`, "c created 4"))
	o.put("/3", listOf(` from="`+day("5")+`"`, "d created 6"))
	want("", []string{"a created 1", "b created 2", "c created 4", "d created 6"}, []string{"/index", "/1", "/2", "/3"})
	want("6", []string{"d created 6"}, []string{"/index", "/3"})
	o.put("/index", indexOf(o.url, "/2", "/3", "/4")) // without from and until
	o.put("/4", listOf("", "e created 7"))
	want("6", []string{"d created 6", "e created 7"}, []string{"/index", "/2", "/3", "/4"})

	o.put("/4", listOf("", "g created 9", "h created"))
	got, err := changesOf(t, o, l, "/index", "6", nil)
	if !slices.Equal(got, []string{"d created 6", "g created 9"}) || err == nil || !strings.Contains(err.Error(), "list 3 of the index") || !strings.Contains(err.Error(), "entry 2 (https://example.org/h)") {
		t.Errorf("with a bad list: got %q, %v", got, err)
	}
	o.put("/index", indexOf(o.url, "/other"))
	o.put("/other", indexOf(o.url, "/1"))
	if _, err = changesOf(t, o, l, "/index", "", nil); err == nil || !strings.Contains(err.Error(), "an index names another index") {
		t.Errorf("index in an index: got error %v", err)
	}
}

// A list of version 1.0 has the time of a change in lastmod.
func TestChangesOfVersion10(t *testing.T) {
	text, err := os.ReadFile("../../../resourcesync/testdata/examples/resourcesync_ex_19.xml")
	if err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t)
	o.put("/list", string(text))
	got, err := changesOf(t, o, new(Lister), "/list", "", nil)
	if want := []string{"http://example.com/res1.html created 3", "http://example.com/res2.pdf updated 3", "http://example.com/res3.tiff deleted 3", "http://example.com/res2.pdf updated 3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got changes %q, %v", got, err)
	}
}

// A datetime in the future is replaced by that of the previous change, in each reading the same.
func TestChangesInTheFuture(t *testing.T) {
	far := func(list string) string { return strings.ReplaceAll(list, "2026-01-31", "2099-01-31") }
	now := func() time.Time { return time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC) }
	for _, test := range []struct{ list, since, want string }{
		{listOf(` from="`+day("1")+`"`, "a created 3", "b created 31", "c created 5"), "", "a created 3, b created 3, c created 5"},
		{listOf(` from="`+day("1")+`"`, "a created 3", "b created 31", "c created 5"), "4", "b created 3, c created 5"},
		{listOf(` from="`+day("1")+`"`, "a created 3", "b created 31", "c created 5"), "6", ""},
		{listOf(` from="`+day("1")+`"`, "a created 3", "b created 31"), "6", "b created 3"},
		{listOf(` from="`+day("1")+`"`, "b created 31", "c created 5"), "", "b created 1, c created 5"},
		{listOf(` from="`+day("31")+`"`, "b created 31", "c created 5"), "4", "b created 4, c created 5"},
		{listOf("", "b created 31"), "", "b created 1"}, // of 1970
	} {
		o := newOrigin(t)
		o.put("/list", far(test.list))
		odd := 0
		got, err := changesOf(t, o, &Lister{Now: now, Note: func(string, *resourcesync.Error) { odd++ }}, "/list", test.since, nil)
		if err != nil || strings.Join(got, ", ") != test.want || odd != 1 {
			t.Errorf("since %q: got %q, %v with %d notes, want %s", test.since, got, err, odd, test.want)
		}
	}
}

// All documents of a listing together are limited.
func TestTotal(t *testing.T) {
	o := newOrigin(t)
	o.put("/index", indexOf(o.url, "/1", "/2"))
	o.put("/1", listOf("", "a created 1", "b created 2"))
	o.put("/2", listOf("", "c created 3"))
	size := int64(len(o.docs["/index"]) + len(o.docs["/1"]) + len(o.docs["/2"]))
	for _, test := range []struct {
		total resourcesync.Limits
		want  string
	}{
		{resourcesync.Limits{Entries: 3, Bytes: size}, ""},
		{resourcesync.Limits{Entries: 2}, "list 2 of the index"},
		{resourcesync.Limits{Bytes: size - 1}, "list 2 of the index"},
	} {
		_, err := changesOf(t, o, &Lister{Total: test.total}, "/index", "", nil)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("limits %+v: got error %v", test.total, err)
		}
	}
	// An index of very many lists ends before it uses much memory.
	one := indexOf(o.url, "/1")
	entry := one[strings.Index(one, "<sitemap>"):strings.Index(one, "</sitemapindex>")]
	o.put("/index", strings.Replace(one, entry, strings.Repeat(entry, maxEntries+1), 1))
	if _, err := changesOf(t, o, &Lister{Limits: resourcesync.Limits{Entries: 10 * maxEntries, Bytes: 1 << 30}}, "/index", "", nil); err == nil || !strings.Contains(err.Error(), "an index has at most 50000 entries") {
		t.Errorf("long index: got error %v", err)
	}
}

// Little of a listing is remembered, however many documents it has.
func TestRemembered(t *testing.T) {
	o := newOrigin(t)
	var lists []string
	for i := range maxRemembered {
		path := fmt.Sprintf("/%d", i)
		lists = append(lists, path)
		o.put(path, listOf("", fmt.Sprintf("%d created 1", i)))
	}
	seen := new(Seen)
	o.put("/index", indexOf(o.url, lists...))
	if got, err := changesOf(t, o, new(Lister), "/index", "", seen); err != nil || len(got) != maxRemembered || len(seen.Documents) != 0 {
		t.Errorf("got %d changes, %v and %d remembered documents", len(got), err, len(seen.Documents))
	}
	o.put("/index", indexOf(o.url, lists[1:]...))
	if _, err := changesOf(t, o, new(Lister), "/index", "", seen); err != nil || len(seen.Documents) != maxRemembered {
		t.Errorf("got error %v and %d remembered documents", err, len(seen.Documents))
	}
}
