package ends

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// An origin serves the files of a directory, and documents. While it is faulty, it breaks at
// random.
type origin struct {
	*httptest.Server
	dir *os.Root

	unhashed bool // its source says no hashes, so nobody could notice a wrong content

	mu        sync.Mutex
	r         *rand.Rand
	faulty    bool
	served    map[string]int    // requests for files, by what came of them
	documents map[string][]byte // by path
}

func newOrigin(t testing.TB, r *rand.Rand, dir string) *origin {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{dir: root, r: r, faulty: true, served: map[string]int{}, documents: map[string][]byte{}}
	o.Server = httptest.NewServer(o)
	t.Cleanup(func() {
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

// fault chooses what happens to a request; empty: nothing.
func (o *origin) fault() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.faulty {
		return ""
	}
	switch n := o.r.IntN(1000); {
	case n < 15:
		return "500"
	case n < 20:
		return "503"
	case n < 23:
		return "429"
	case n < 40:
		return "cut"
	case n < 50:
		return "slow"
	case n < 55:
		return "wrong"
	}
	return ""
}

func (o *origin) count(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.served[what]++
}

func (o *origin) document(path string) (b []byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, ok = o.documents[path]
	return b, ok
}

// publish replaces a document.
func (o *origin) publish(path string, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.documents[path] = b
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := o.fault()
	b, document := o.document(r.URL.Path)
	if !document {
		var err error
		if b, err = o.dir.ReadFile(strings.TrimPrefix(r.URL.Path, "/files/")); err != nil {
			o.count("404")
			http.NotFound(w, r)
			return
		}
		o.count(cmp.Or(fault, "200"))
	}
	if fault == "wrong" && (document || o.unhashed) {
		fault = "cut"
	}
	w.Header().Set("ETag", `"`+sum(b)[:16]+`"`)
	switch fault {
	case "500", "503":
		code, _ := strconv.Atoi(fault)
		w.WriteHeader(code)
	case "429":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case "cut":
		w.Header().Set("Content-Length", fmt.Sprint(len(b)+1))
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "slow":
		for part := range len(b) {
			_, _ = w.Write(b[part : part+1])
			if part%256 == 0 {
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond) // this is what the fault is
			}
		}
	case "wrong":
		_, _ = w.Write([]byte("what a cache still had"))
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}
