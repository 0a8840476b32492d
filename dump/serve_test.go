package dump

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/until"
)

// Packages are served with ranges and strong ETags, and are cached for ever. Documents are
// asked for again.
func TestServe(t *testing.T) {
	w := newWorld(t)
	w.publish(w.put("/a", strings.Repeat("a", 1000)))
	w.listed()
	w.ok(w.make())
	d := w.document("resourcedump.xml")
	name := w.nameOf(d.Items[0].Loc)
	whole := w.get(name)
	h := whole.Header()
	tag := h.Get("Etag")
	if h.Get("Content-Type") != "application/zip" || len(tag) < 20 || !strings.HasPrefix(h.Get("Cache-Control"), "public") || !strings.Contains(h.Get("Cache-Control"), "immutable") ||
		!strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || len(h.Get("Repr-Digest")) < 40 {
		t.Errorf("a package has %v", h)
	}
	for _, test := range []struct {
		headers []string
		status  int
		body    string
	}{
		{[]string{"Range", "bytes=1-3"}, 206, whole.Body.String()[1:4]},
		{[]string{"Range", "bytes=-5"}, 206, whole.Body.String()[whole.Body.Len()-5:]},
		{[]string{"Range", "bytes=1-3", "If-Range", tag}, 206, whole.Body.String()[1:4]},
		{[]string{"Range", "bytes=1-3", "If-Range", `"other"`}, 200, whole.Body.String()},
		{[]string{"Range", "bytes=9999999-"}, 416, "invalid range: failed to overlap\n"},
		{[]string{"If-None-Match", tag}, 304, ""},
		{[]string{"If-None-Match", `"other"`}, 200, whole.Body.String()},
	} {
		if rec := w.get(name, test.headers...); rec.Code != test.status || rec.Body.String() != test.body {
			t.Errorf("%v: %d %q", test.headers, rec.Code, rec.Body)
		}
	}
	doc := w.get("resourcedump.xml")
	if again := w.get("resourcedump.xml", "If-None-Match", doc.Header().Get("Etag")); again.Code != 304 || doc.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("the document: %d %v", again.Code, doc.Header())
	}
	rec := httptest.NewRecorder()
	w.ok(w.Serve(rec, httptest.NewRequest("GET", "/", nil), set, name, false))
	if got := rec.Header().Get("Cache-Control"); !strings.HasPrefix(got, "private") {
		t.Errorf("an answer that is not for everybody has %q", got)
	}
	for _, other := range []string{"content/", "content/dumps.json", "content/../dumps.json", name + "x", strings.Replace(name, "-1-", "-2-", 1), strings.Replace(name, ".zip", "-missing.xml", 1), "content/" + strings.TrimPrefix(name, "content/resource")} {
		if rec := w.get(other); rec.Code != http.StatusNotFound {
			t.Errorf("%s: %d", other, rec.Code)
		}
	}
	w.ok(w.Maker.place.Remove(t.Context(), dirOf(set)+strings.TrimPrefix(name, "content/")))
	if rec := w.get(name); rec.Code != http.StatusGone {
		t.Errorf("a package that somebody removed: %d", rec.Code)
	}
}

// A Resource Dump with many packages is an index of parts.
func TestParts(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.PackageCount, o.most = 1, 2 })
	want := map[string]string{}
	for i := range 5 {
		path := fmt.Sprintf("/%d", i)
		want[path] = path
		w.publish(w.put(path, path))
	}
	w.listed()
	w.ok(w.make())
	d := w.document("resourcedump.xml")
	if !d.Index || len(d.Items) != 3 {
		t.Fatalf("it is %+v", d)
	}
	all := map[string]string{}
	for _, it := range d.Items {
		part := w.document(w.nameOf(it.Loc))
		texts, _ := w.contents(part)
		maps.Copy(all, texts)
		if !part.At.Equal(d.At) || part.Links[1].Rel != "index" {
			t.Errorf("a part is %+v", part.Header)
		}
	}
	if !maps.Equal(all, want) {
		t.Errorf("the parts hold %v", all)
	}
	if rec := w.get(strings.Replace(w.nameOf(d.Items[0].Loc), "part1", "part4", 1)); rec.Code != 404 {
		t.Errorf("a part that there is not: %d", rec.Code)
	}
}

// Two hubs that make the same dumps at once, as when a shard moves, serve whole ones only.
func TestTwoHubs(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.PackageCount = 2 })
	other := New(w.memory, w.place, w.base, w.opts)
	want := map[string]string{}
	for round := range 5 {
		for i := range 7 {
			path := fmt.Sprintf("/%d", i)
			want[path] = fmt.Sprint(round, i)
			w.publish(w.put(path, want[path]))
		}
		w.listed()
		var wg sync.WaitGroup
		for _, m := range []*Maker{w.Maker, other} {
			wg.Go(func() {
				if _, err := m.work(context.WithoutCancel(t.Context()), set, &job{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		w.restart() // it reads the record anew
		if texts, whys := w.contents(w.document("resourcedump.xml")); !maps.Equal(texts, want) || len(whys) > 0 {
			t.Errorf("round %d: it holds %v, missing %v", round, texts, whys)
		}
		if round > 0 {
			w.contents(w.document("changedump.xml"))
		}
	}
}

// A Maker makes dumps by itself, and removes those of sets that are gone.
func TestRun(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Grace = 1 })
	w.publish(w.put("/a", "a"))
	w.listed()
	other, err := w.place.Create(t.Context(), "gone/x.zip")
	w.ok(err)
	w.ok(other.Commit())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	until.Done(t, "there is a dump", func() bool { return w.get("resourcedump.xml").Code == 200 })
	until.Done(t, "the file of a set that is gone is removed", func() bool { _, err := w.place.Open(t.Context(), "gone/x.zip"); return err != nil })
	w.ok(w.memory.Describe(t.Context(), set, feed.Description{}))
	st, err := w.memory.State(t.Context(), set)
	w.ok(err)
	w.Described(t.Context(), st)
	until.Done(t, "the files are removed", func() bool { return len(w.files()) == 0 })
	cancel()
	w.ok(<-done)
	w.idle()
}

// While the place cannot be read, what was read a moment ago still counts. Without that, clients
// are told to come again.
func TestPlaceIsAway(t *testing.T) {
	w := newWorld(t)
	w.publish(w.put("/a", "a"))
	w.listed()
	w.ok(w.make())
	name := w.nameOf(w.document("resourcedump.xml").Items[0].Loc)
	w.place.away = true
	w.views[set] = view{w.views[set].rec, time.Time{}}
	if rec := w.get("resourcedump.xml"); rec.Code != http.StatusOK {
		t.Errorf("the document: %d", rec.Code)
	}
	if rec := w.get(name); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("a package: %d", rec.Code)
	}
	w.restart()
	if rec := w.get("resourcedump.xml"); rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
		t.Errorf("after a restart: %d", rec.Code)
	}
	if err := w.make(); err == nil {
		t.Error("a dump is made without a place")
	}
}
