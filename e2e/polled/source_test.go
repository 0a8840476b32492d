package polled

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// hash returns the hash of a content in the form of lists.
func hash(content string) string { return fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(content))) }

// A version is a content of a resource from some time on. The empty content means that it did not exist.
type version struct {
	content string
	at      time.Time
}

// A part is a Change List.
type part struct {
	from, until time.Time
	entries     []string
}

// A source is a web server with resources, and lists of them that are published periodically.
// Each list is correct as of its publication, except for datetimes in ahead.
type source struct {
	*httptest.Server

	indexed      bool // whether the Change Lists have an index
	wholeSeconds bool // whether datetimes have a precision of seconds
	short        bool // whether the Change Lists may start after the Resource List

	mu        sync.Mutex
	faults    *rand.Rand // nil means no faults
	files     map[string]string
	versions  map[string][]version
	ahead     map[string]bool // names that were dated ahead at some time
	parts     []part
	listed    time.Time // publication time of the Resource List
	list      []byte
	place     int // number in the URLs of the lists; changes when they move
	first     int // number of parts[0]
	documents map[string][]byte
	served    map[string]int // number of requests by fault
}

func newSource(t testing.TB) *source {
	s := &source{files: map[string]string{}, versions: map[string][]version{}, ahead: map[string]bool{}, documents: map[string][]byte{}, served: map[string]int{}}
	s.parts = []part{{from: time.Now()}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *source) base() string { return s.URL + "/files/" }

func (s *source) stamp(t time.Time) string {
	if s.wholeSeconds {
		t = t.Truncate(time.Second)
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z")
}

func (s *source) entry(name, md string) string {
	content, ok := s.files[name]
	if ok {
		md += fmt.Sprintf(` hash="%s" length="%d"`, hash(content), len(content))
	}
	return fmt.Sprintf("<url><loc>%s%s</loc><rs:md%s/></url>\n", s.base(), name, md)
}

// put sets the content of a resource; the empty content deletes it. The Change List dates the
// change with an offset.
func (s *source) put(name, content string, off time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	_, had := s.files[name]
	change := "updated"
	switch {
	case content == "" && !had:
		return
	case content == "":
		delete(s.files, name)
		change = "deleted"
	default:
		s.files[name] = content
		if !had {
			change = "created"
		}
	}
	s.versions[name] = append(s.versions[name], version{content, now})
	s.ahead[name] = s.ahead[name] || off > 0
	open := &s.parts[len(s.parts)-1]
	open.entries = append(open.entries, s.entry(name, fmt.Sprintf(` change="%s" datetime="%s"`, change, s.stamp(now.Add(off)))))
}

func document(root, md, body string) []byte {
	return fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?><%[1]s xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md %[2]s/>%[3]s</%[1]s>`,
		root, md, body)
}

// publishList publishes the Resource List.
func (s *source) publishList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = time.Now()
	var b strings.Builder
	for name := range s.files {
		b.WriteString(s.entry(name, ""))
	}
	s.list = document("urlset", fmt.Sprintf(`capability="resourcelist" at="%s"`, s.stamp(s.listed)), b.String())
	s.publish()
}

// republishChanges publishes the Change Lists.
func (s *source) republishChanges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.documents {
		if strings.Contains(path, "change") {
			delete(s.documents, path)
		}
	}
	s.publishChanges()
}

func (s *source) path(name string) string { return fmt.Sprintf("/%d/%s.xml", s.place, name) }

func (s *source) publishChanges() {
	times := func(from, until time.Time) string {
		md := fmt.Sprintf(`capability="changelist" from="%s"`, s.stamp(from))
		if !until.IsZero() {
			md += fmt.Sprintf(` until="%s"`, s.stamp(until))
		}
		return md
	}
	from := s.parts[0].from
	var all, index strings.Builder
	for i, p := range s.parts {
		path := s.path(fmt.Sprintf("change-%d", s.first+i))
		body := strings.Join(p.entries, "")
		all.WriteString(body)
		fmt.Fprintf(&index, "<sitemap><loc>%s%s</loc><rs:md %s/></sitemap>\n", s.URL, path, times(p.from, p.until))
		if s.indexed {
			s.documents[path] = document("urlset", times(p.from, p.until), body)
		}
	}
	if s.documents[s.path("changes")] = document("urlset", times(from, time.Time{}), all.String()); s.indexed {
		s.documents[s.path("changes")] = document("sitemapindex", times(from, time.Time{}), index.String())
	}
}

// publish updates the documents that link to the lists.
func (s *source) publish() {
	s.documents[s.path("list")] = s.list
	s.documents["/capabilitylist.xml"] = document("urlset", `capability="capabilitylist"`, fmt.Sprintf(
		`<url><loc>%s%s</loc><rs:md capability="resourcelist"/></url><url><loc>%[1]s%[3]s</loc><rs:md capability="changelist"/></url>`,
		s.URL, s.path("list"), s.path("changes")))
}

// rotate starts another Change List, and drops old ones. If short is true, it keeps only the last
// keep lists, even if the Resource List is older.
func (s *source) rotate(keep int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.parts[len(s.parts)-1].until = now
	s.parts = append(s.parts, part{from: now})
	for len(s.parts) > 1 && (s.parts[0].until.Before(s.listed) || s.short && len(s.parts) > keep) {
		s.parts = s.parts[1:]
		s.first++
	}
}

// move moves the lists to other URLs.
func (s *source) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place++
	clear(s.documents)
	s.publish()
	s.publishChanges()
}

// changeRandomly makes one random change to the source or its lists.
func (s *source) changeRandomly(r *rand.Rand, ahead bool) {
	switch n := r.IntN(1000); {
	case n < 3:
		s.move()
	case n < 8:
		s.publishList()
	case n < 20:
		s.rotate(1 + r.IntN(4))
	case n < 120:
		s.republishChanges()
	default:
		name, content, off := fmt.Sprintf("r%d", r.IntN(60)), fmt.Sprintf("%d of %d", r.Uint64(), n), time.Duration(0)
		if r.IntN(4) == 0 {
			content = ""
		}
		if ahead && r.IntN(30) == 0 {
			off = []time.Duration{wrongHour, 365 * 24 * time.Hour}[r.IntN(2)]
		}
		s.put(name, content, off)
	}
}

// state returns the state of the source: hashes by loc, and contents by name.
func (s *source) state() (hashes, contents map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hashes = map[string]string{}
	for name, content := range s.files {
		hashes[s.base()+name] = hash(content)
	}
	return hashes, maps.Clone(s.files)
}

// fault chooses the fault of a request, and counts it.
func (s *source) fault(path string) (fault string, b []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok = s.documents[path]; !ok {
		var content string
		content, ok = s.files[strings.TrimPrefix(path, "/files/")]
		b = []byte(content)
	}
	switch {
	case s.faults == nil || !ok:
	default:
		switch n := s.faults.IntN(100); {
		case n < 3:
			fault = "cut"
		case n < 8:
			fault = "503"
		case n < 12:
			fault = "slow"
		}
	}
	s.served[fault]++
	return fault, b, ok
}

// count returns the number of requests with a fault.
func (s *source) count(fault string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[fault]
}

// setFaults sets the source of random faults, and returns the previous one.
func (s *source) setFaults(r *rand.Rand) (before *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.faults = s.faults, r
	return before
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault, b, ok := s.fault(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", `"`+hash(string(b))[8:24]+`"`)
	switch fault {
	case "503":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case "cut":
		w.Header().Set("Content-Length", fmt.Sprint(len(b)+1))
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "slow":
		for i := range 10 {
			_, _ = w.Write(b[i*len(b)/10 : (i+1)*len(b)/10])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond) // a slow server
		}
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}
