package faults

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An origin serves the files of a directory, and documents. While it is faulty, it fails at
// random.
type origin struct {
	*httptest.Server
	root   *os.Root
	hashed bool // whether the source states hashes
	faulty atomic.Bool

	mu        sync.Mutex
	r         *rand.Rand
	documents map[string]string // by path
}

// newOrigin starts an origin. Only if hashed is true does it serve wrong contents: without a
// hash, no mirror can detect them.
func newOrigin(s *harness, dir string, hashed bool) *origin {
	root, err := os.OpenRoot(dir)
	if err != nil {
		s.Fatal(err)
	}
	o := &origin{root: root, hashed: hashed, r: s.rng(2), documents: map[string]string{}}
	o.faulty.Store(true)
	o.Server = httptest.NewServer(o)
	s.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
		_ = root.Close()
	})
	return o
}

// base returns the URL of the directory.
func (o *origin) base() string { return o.URL + "/files/" }

// loc returns the URL of a file.
func (o *origin) loc(name string) string { return o.base() + escape(name) }

// escape escapes a path for a URL (RFC 3986, section 3.3).
func escape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	text, document := o.documents[r.URL.Path]
	chance := 1000
	if o.faulty.Load() {
		chance = o.r.IntN(1000)
	}
	o.mu.Unlock()
	b := []byte(text)
	if !document {
		var err error
		if b, err = o.root.ReadFile(strings.TrimPrefix(r.URL.Path, "/files/")); err != nil {
			http.NotFound(w, r)
			return
		}
	}
	w.Header().Set("ETag", `"`+sum(b)[:16]+`"`)
	switch {
	case chance < 15:
		w.WriteHeader(http.StatusInternalServerError)
	case chance < 23:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case chance < 40: // truncated
		w.Header().Set("Content-Length", fmt.Sprint(len(b)+1))
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case chance < 50:
		for part := range slices.Chunk(b, 256) {
			_, _ = w.Write(part)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond) // a slow server
		}
	case chance < 55 && o.hashed && !document:
		_, _ = w.Write([]byte("stale content of a cache"))
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

// A site publishes ResourceSync documents for a directory, like a tool for static sites that
// runs periodically: a Resource List, and an index of the Change Lists since the last few
// Resource Lists.
type site struct {
	*origin
	dir          string
	r            *rand.Rand
	wholeSeconds bool // whether datetimes have a precision of seconds

	files  map[string]string // hashes by name as of the last run
	lists  []changeList      // newest lists; each starts with a Resource List
	number int               // number of the newest list
}

// A changeList is a Change List.
type changeList struct {
	from    string // start
	entries []string
}

func newSite(o *origin, dir string, r *rand.Rand) *site {
	s := &site{origin: o, dir: dir, r: r, wholeSeconds: r.IntN(2) == 0}
	s.write(".well-known/resourcesync", "urlset", `capability="description"`, s.item("url", "capabilitylist.xml", `capability="capabilitylist"`))
	s.write("capabilitylist.xml", "urlset", `capability="capabilitylist"`,
		s.item("url", "resourcelist.xml", `capability="resourcelist"`), s.item("url", "changelists.xml", `capability="changelist"`))
	s.run(true)
	return s
}

// write replaces a document.
func (s *site) write(path, root, md string, entries ...string) {
	const spaces = `xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"`
	s.mu.Lock()
	defer s.mu.Unlock()
	s.documents["/"+path] = fmt.Sprintf(`<%[1]s %[2]s><rs:md %[3]s/>%[4]s</%[1]s>`, root, spaces, md, strings.Join(entries, "\n"))
}

// item returns an entry for a path.
func (s *site) item(element, path, md string) string {
	return fmt.Sprintf(`<%[1]s><loc>%[2]s/%[3]s</loc><rs:md %[4]s/></%[1]s>`, element, s.URL, strings.ReplaceAll(path, "&", "&amp;"), md)
}

// file returns the entry of a file.
func (s *site) file(name, md string) string {
	if hash, ok := s.files[name]; ok {
		md += fmt.Sprintf(` hash="sha-256:%s"`, hash)
	}
	return s.item("url", "files/"+escape(name), md)
}

// now returns the time in the precision of the site.
func (s *site) now() string {
	now := time.Now().UTC()
	if s.wholeSeconds {
		now = now.Truncate(time.Second)
	}
	return now.Format("2006-01-02T15:04:05.999999Z")
}

// run scans the directory and writes the documents. It reports whether something has changed.
func (s *site) run(rotate bool) (changed bool) {
	start, before := s.now(), s.files
	if rotate {
		s.number++
		s.lists = append(s.lists, changeList{from: start})
		s.lists = s.lists[max(0, len(s.lists)-3):]
	}
	s.files = contents(s.dir)
	maps.DeleteFunc(s.files, func(name, _ string) bool { return strings.HasSuffix(name, "~") })
	newest := &s.lists[len(s.lists)-1]
	note := func(name, kind string) {
		changed = true
		newest.entries = append(newest.entries, s.file(name, fmt.Sprintf(`change="%s" datetime="%s"`, kind, s.now())))
	}
	var all []string
	for name, hash := range s.files {
		all = append(all, s.file(name, ""))
		if old, had := before[name]; !had {
			note(name, "created")
		} else if old != hash {
			note(name, "updated")
		}
	}
	for name := range before {
		if _, ok := s.files[name]; !ok {
			note(name, "deleted")
		}
	}
	if s.writeChanges(); rotate {
		s.write("resourcelist.xml", "urlset", fmt.Sprintf(`capability="resourcelist" at="%s"`, start), all...)
	}
	return changed
}

func (s *site) writeChanges() {
	var index []string
	for i, l := range s.lists {
		path, md := fmt.Sprintf("changelist-%d.xml", s.number-len(s.lists)+i), fmt.Sprintf(`capability="changelist" from="%s"`, l.from)
		if i < len(s.lists)-1 {
			md += fmt.Sprintf(` until="%s"`, s.lists[i+1].from)
		}
		s.write(path, "urlset", md, l.entries...)
		index = append(index, s.item("sitemap", path, md))
	}
	s.write("changelists.xml", "sitemapindex", fmt.Sprintf(`capability="changelist" from="%s"`, s.lists[0].from), index...)
}

// changeRandomly runs the site repeatedly until over is set, and then until nothing changes. Reading all
// resources must not take longer than several Resource Lists: no mirror could catch up.
func (s *site) changeRandomly(pace time.Duration, runs int, over *atomic.Bool) {
	for n := 1; ; n++ {
		last := over.Load()
		if changed := s.run(n%runs == 0); last && !changed {
			return
		}
		time.Sleep(upTo(s.r, 2*pace)) // pace of the site, not a wait for a condition
	}
}
