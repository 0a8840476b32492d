package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"
)

// An origin serves the files of a directory, and documents. While it is faulty, it breaks at
// random.
type origin struct {
	*httptest.Server
	root   *os.Root
	hashed bool   // somebody says the hashes of the files
	tally  *tally // of requests for files, by what came of them

	mu        sync.Mutex
	r         *rand.Rand
	faulty    bool
	documents map[string][]byte // by path
}

// newOrigin starts an origin. Only if hashed is true, it serves a wrong content as if it were
// the right one: without a hash no mirror can notice that.
func newOrigin(s *stage, dir string, hashed bool) *origin {
	root, err := os.OpenRoot(dir)
	if err != nil {
		s.Fatal(err)
	}
	o := &origin{root: root, hashed: hashed, tally: &s.tally, r: s.of(2), faulty: true, documents: map[string][]byte{}}
	o.Server = httptest.NewServer(o)
	s.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
		_ = root.Close()
	})
	return o
}

// base is the URL of the directory.
func (o *origin) base() string { return o.URL + "/files/" }

// loc is the URL of a file.
func (o *origin) loc(name string) string { return o.base() + escape(name) }

// escape writes a path as the path of a URL (RFC 3986, section 3.3).
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

// mend ends the faults.
func (o *origin) mend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faulty = false
}

// publish replaces a document.
func (o *origin) publish(path string, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.documents[path] = b
}

// open returns what is at a path, if there is anything, and chooses what happens to the
// request.
func (o *origin) open(path string) (b []byte, fault string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, document := o.documents[path]
	if !document {
		var err error
		if b, err = o.root.ReadFile(strings.TrimPrefix(path, "/files/")); err != nil {
			return nil, "", false
		}
	}
	n := o.r.IntN(1000)
	switch {
	case !o.faulty:
	case n < 15:
		fault = "broken"
	case n < 23:
		fault = "busy"
	case n < 40:
		fault = "cut"
	case n < 50:
		fault = "slow"
	case n < 55 && o.hashed && !document:
		fault = "wrong"
	}
	return b, fault, true
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, fault, ok := o.open(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	o.tally.add("requests to the origin "+fault, 1)
	w.Header().Set("ETag", `"`+sum(b)[:16]+`"`)
	switch fault {
	case "broken":
		w.WriteHeader(http.StatusInternalServerError)
	case "busy":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case "cut":
		w.Header().Set("Content-Length", fmt.Sprint(len(b)+1))
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "slow":
		for len(b) > 0 {
			n := min(len(b), 256)
			_, _ = w.Write(b[:n])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond) // this is what the fault is
			b = b[n:]
		}
	case "wrong":
		_, _ = w.Write([]byte("what a cache still had"))
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}
