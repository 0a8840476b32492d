package dump

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Resource Dump has the contents of all resources of the Resource List, byte for byte, and
// names those that could not be fetched, and why.
func TestResourceDump(t *testing.T) {
	w := newWorld(t)
	large := strings.Repeat("large ", 100_000)
	cut := func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "100")
		fmt.Fprint(rw, "short")
	}
	w.serves("/broken", cut)
	w.has("/other", "what is another")
	w.has("/long", "too long")
	long := w.change(resourcesync.Updated, "/long", "")
	two := int64(2)
	long.Length = &two
	w.serves("/away", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	bare := w.put("/bare.txt?q=<1>", "bare")
	w.has("/bare.txt", "bare")
	bare.Hash, bare.Length = "", nil
	w.publish(
		w.put("/a.pdf", "a"), w.put("/dir/b", "b"), w.put("/empty.", ""), w.put("/large.bin", large), bare, w.put("/gone", "gone"),
		w.change(resourcesync.Updated, "/broken", ""), w.change(resourcesync.Updated, "/other", "what was said!!"), long,
	)
	w.publish(w.change(resourcesync.Updated, "/away", ""), w.change(resourcesync.Updated, "/none", ""), w.change(resourcesync.Deleted, "/gone", ""),
		resourcesync.Change{Loc: "urn:isbn:0451450523", Change: resourcesync.Created})
	if rec := w.get("resourcedump.xml"); rec.Code != 404 || !strings.Contains(rec.Body.String(), "not made yet") {
		t.Errorf("before the first dump: %d %s", rec.Code, rec.Body)
	}
	w.listed()
	w.ok(w.make())

	d := w.document("resourcedump.xml")
	l, err := w.live.ResourceList(t.Context(), set, feed.Cursor{})
	w.ok(err)
	if d.Capability != resourcesync.ResourceDump || !d.At.Equal(l.Cursor().Time()) || len(d.Items) != 1 || d.Links[0].Rel != "up" {
		t.Errorf("the dump is %+v", d.Header)
	}
	texts, whys := w.contents(d)
	want := map[string]string{"/a.pdf": "a", "/dir/b": "b", "/empty.": "", "/large.bin": large, "/bare.txt?q=<1>": "bare"}
	if !maps.Equal(texts, want) {
		t.Errorf("it holds %.300v", texts)
	}
	for loc, why := range map[string]string{
		"/broken": "broke off after 5 bytes", "/other": "the source says sha-256", "/long": "more than the 2 bytes", "/away": "500", "/none": "404", "urn:isbn:0451450523": "not a URL of http",
	} {
		if !strings.Contains(whys[loc], why) {
			t.Errorf("%s is missing because %q, want %q", loc, whys[loc], why)
		}
		delete(whys, loc)
	}
	if len(whys) > 0 {
		t.Errorf("missing besides: %v", whys)
	}
	if n := w.requests("/away"); n != 2 {
		t.Errorf("a server that is away was asked %d times", n)
	}
	if n := w.requests("/none"); n != 1 {
		t.Errorf("what is not there was asked for %d times", n)
	}
	for _, it := range w.open(&d.Items[0]).manifest.Items {
		if it.Length == nil || it.Hash == "" || it.Change.Change != "" || strings.HasSuffix(it.Loc, ".pdf") && !strings.HasSuffix(it.Path, ".pdf") ||
			it.Type != "text/plain" {
			t.Errorf("the manifest has %+v", it)
		}
	}
	w.idle()

	// Nothing changed, so nothing is made.
	before := w.requests("/a.pdf")
	w.ok(w.make())
	if n := w.requests("/a.pdf"); n != before {
		t.Error("a dump of nothing new was made")
	}
}

// A package is cut by count and by bytes. All packages together are the dump.
func TestPackages(t *testing.T) {
	for _, test := range []struct {
		count    int
		bytes    int64
		packages int
	}{{3, 0, 4}, {1, 0, 10}, {100, 0, 1}, {0, 6_000, 10}, {0, 30_000, 2}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			w := newWorld(t, func(o *Options) { o.PackageCount, o.PackageBytes = test.count, test.bytes })
			want := map[string]string{}
			for i := range 10 {
				path, text := fmt.Sprintf("/%d.png", i), strings.Repeat(fmt.Sprint(i), 4_000)
				want[path] = text
				w.publish(w.put(path, text))
			}
			w.listed()
			w.ok(w.make())
			d := w.document("resourcedump.xml")
			if len(d.Items) != test.packages {
				t.Errorf("there are %d packages", len(d.Items))
			}
			for _, it := range d.Items {
				if test.bytes > 0 && *it.Length > test.bytes {
					t.Errorf("a package has %d bytes", *it.Length)
				}
			}
			if texts, whys := w.contents(d); !maps.Equal(texts, want) || len(whys) > 0 {
				t.Errorf("they hold %d texts, and %v is missing", len(texts), whys)
			}
		})
	}
}

// What is larger than a package is missing, whether its length is known or not.
func TestTooLarge(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.PackageBytes = 5_000 })
	known, unknown := w.put("/known", strings.Repeat("k", 6_000)), w.put("/unknown", strings.Repeat("u", 6_000))
	unknown.Length = nil
	w.publish(w.put("/a", "a"), known, unknown)
	w.listed()
	w.ok(w.make())
	texts, whys := w.contents(w.document("resourcedump.xml"))
	if len(texts) != 1 || !strings.Contains(whys["/known"], "at most 5000") || !strings.Contains(whys["/unknown"], "more than the 5000 bytes") {
		t.Errorf("%v, missing %v", texts, whys)
	}
	if w.requests("/known") != 0 {
		t.Error("what is too large was asked for")
	}
}

// A dump that failed in the middle is gone on with: what is packed is not fetched again. Until
// it is whole, nobody sees any of it.
func TestGoesOn(t *testing.T) {
	for _, other := range []bool{false, true} {
		w := newWorld(t, func(o *Options) { o.PackageCount = 2 })
		want := map[string]string{}
		for i := range 9 {
			path := fmt.Sprintf("/%d", i)
			want[path] = fmt.Sprint(i)
			w.publish(w.put(path, fmt.Sprint(i)))
		}
		w.listed()
		packages := 0
		w.place.fail = func(name string) error {
			if strings.HasSuffix(name, zipEnd) {
				if packages++; packages == 3 {
					return syscall.ENOSPC
				}
			}
			return nil
		}
		if err := w.make(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("a full place: %v", err)
		}
		w.idle()
		if rec := w.get("resourcedump.xml"); rec.Code != 404 {
			t.Errorf("half a dump is served: %s", rec.Body)
		}
		for _, name := range w.files() {
			if rec := w.get("content/" + name); rec.Code != 404 {
				t.Errorf("%s of half a dump is served", name)
			}
		}
		w.restart()
		if other { // the root is gone: everything begins anew
			want["/new"] = "new"
			for _, text := range []string{"x", "y", "new"} {
				w.publish(w.put("/new", text))
				w.listed()
			}
		}
		w.ok(w.make())
		if texts, whys := w.contents(w.document("resourcedump.xml")); !maps.Equal(texts, want) || len(whys) > 0 {
			t.Errorf("it holds %v, and %v is missing", texts, whys)
		}
		if n := w.requests("/0"); n != 1 && !other || n != 2 && other { // with another root a Change List is closed, and its dump asks, too
			t.Errorf("what was packed was asked for %d times, with another root %v", n, other)
		}
		w.idle()
	}
}

// Retention keeps two Resource Dumps. What older ones, and dumps that were given up, have left is
// removed when it is old.
func TestTwoAreKept(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Grace = 1 })
	var names []string
	for i := range 4 {
		w.publish(w.put("/a", fmt.Sprint(i)))
		w.listed()
		w.ok(w.make())
		d := w.document("resourcedump.xml")
		names = append(names, w.nameOf(d.Items[0].Loc))
		for j, name := range names {
			if rec := w.get(name); (rec.Code == 200) != (j >= i-1) {
				t.Errorf("after dump %d, package %d is %d", i, j, rec.Code)
			}
		}
	}
	if n := len(w.files()); n != 5 { // the record, and two packages with manifests
		t.Errorf("the place has %v", w.files())
	}

	w.ok(w.memory.Describe(t.Context(), set, feed.Description{}))
	w.ok(w.make())
	if n := len(w.files()); n != 0 {
		t.Errorf("dumps are off, and the place has %v", w.files())
	}
	if rec := w.get(names[3]); rec.Code != 404 {
		t.Errorf("dumps are off, and a package is %d", rec.Code)
	}
}

// What has not changed is taken from the dump before, and its source is not asked again.
func TestFormer(t *testing.T) {
	w := newWorldOf(t, 1_000, func(o *Options) { o.PackageCount = 3 })
	want := map[string]string{}
	put := func(path, text string) {
		want[path] = text
		w.publish(w.put(path, text))
	}
	for i := range 20 {
		put(fmt.Sprintf("/%02d", i), fmt.Sprintf("content %d", i))
	}
	bare := w.put("/bare", "bare")
	bare.Hash, bare.Length, want["/bare"] = "", nil, "bare"
	w.publish(bare, w.change(resourcesync.Created, "/none", ""))
	w.listed()
	w.ok(w.make())
	dumped := func(round int) (asked int) {
		t.Helper()
		d := w.document("resourcedump.xml")
		if texts, whys := w.contents(d); !maps.Equal(texts, want) || len(whys) != 1 {
			t.Errorf("round %d: it holds %v, missing %v", round, texts, whys)
		}
		for i := range d.Items {
			for _, it := range w.open(&d.Items[i]).manifest.Items {
				if it.Type != "text/plain" || it.Hash == "" {
					t.Errorf("round %d: the manifest has %+v", round, it)
				}
			}
		}
		w.idle()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, n := range w.asked {
			asked += n
		}
		return asked
	}
	before := dumped(0)
	for round, step := range []struct {
		change func()
		asked  int // /none each time
	}{
		{func() { put("/07", "new") }, 2},
		{func() { put("/00", "new"); put("/zz", "last"); put("/0", "first") }, 4},
		{func() { w.publish(w.change(resourcesync.Deleted, "/05", "")); delete(want, "/05") }, 1},
		{func() { // a package is lost, and another one is damaged
			put("/19", "new")
			rec, err := readRecord(t.Context(), w.Maker.place, set)
			w.ok(err)
			last := rec.resourceDump()
			w.ok(w.Maker.place.Remove(t.Context(), dirOf(set)+last.name(&last.Packages[0], zipEnd)))
			f, err := w.place.Create(t.Context(), dirOf(set)+last.name(&last.Packages[1], zipEnd))
			w.ok(err)
			_, err = f.Write(make([]byte, last.Packages[1].Zip.Size))
			w.ok(errors.Join(err, f.Commit()))
		}, 2 + 6},
	} {
		step.change()
		w.listed()
		w.ok(w.make())
		after := dumped(round + 1)
		if n := after - before; n != step.asked {
			t.Errorf("round %d: contents were asked for %d times, want %d", round+1, n, step.asked)
		}
		before = after
	}
}
