package mirror

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// An origin is a web server with the contents of resources. It does to a request what its
// faults say.
type origin struct {
	*httptest.Server

	mu     sync.Mutex
	files  map[string][]byte
	faults map[string]fault // by path
	asked  map[string]int   // requests by path
}

// A fault answers request n for a path, from 1. It returns false if it leaves the answer to
// the origin.
type fault func(n int, w http.ResponseWriter, content []byte) bool

func newOrigin(t *testing.T) *origin {
	o := &origin{files: map[string][]byte{}, faults: map[string]fault{}, asked: map[string]int{}}
	o.Server = httptest.NewServer(o)
	t.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.RequestURI()
	o.mu.Lock()
	o.asked[name]++
	n, fault := o.asked[name], o.faults[name]
	content, ok := o.files[name]
	o.mu.Unlock()
	if fault != nil && fault(n, w, content) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", `"`+sum(content)[:16]+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// set gives the origin a file, nil: removes it, and returns the change that says so.
func (o *origin) set(name string, content []byte, f fault) (line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, had := o.files[name]
	change := map[string]any{"loc": o.URL + name, "change": "created"}
	switch {
	case content == nil:
		delete(o.files, name)
		change["change"] = "deleted"
	default:
		if had {
			change["change"] = "updated"
		}
		o.files[name] = content
		change["hash"], change["length"], change["lastmod"] = "sha-256:"+sum(content), len(content), "2020-02-03T04:05:06Z"
	}
	if o.faults[name] = f; f == nil {
		delete(o.faults, name)
	}
	line, err := json.Marshal(change)
	if err != nil {
		panic(err)
	}
	return append(line, '\n')
}

// random returns content.
func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// same returns nil if the mirror in a directory has just the files of the origin.
func (o *origin) same(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[string]bool{}
	err := hubtest.EachFile(dir, func(name string, b []byte) error {
		content, ok := o.files["/"+name]
		if !ok || !bytes.Equal(b, content) {
			return fmt.Errorf("%s has %d bytes; the origin has %d", name, len(b), len(content))
		}
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.ModTime().UTC().Year() != 2020 {
			return fmt.Errorf("%s was modified %v, %v", name, info.ModTime(), err)
		}
		found["/"+name] = true
		return nil
	})
	if err != nil {
		return err
	}
	for name := range o.files {
		if !found[name] {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}

// The faults.

func status(code int, header ...string) fault {
	return func(_ int, w http.ResponseWriter, _ []byte) bool {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		return true
	}
}

// first is a fault of the first requests only.
func first(most int, f fault) fault {
	return func(n int, w http.ResponseWriter, content []byte) bool { return n <= most && f(n, w, content) }
}

// cut breaks the connection in the middle of the content.
func cut(_ int, w http.ResponseWriter, content []byte) bool {
	w.Header().Set("ETag", `"`+sum(content)[:16]+`"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content[:len(content)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func says(text string) fault {
	return func(_ int, w http.ResponseWriter, _ []byte) bool {
		_, _ = w.Write([]byte(text))
		return true
	}
}

// rsmirror runs rsmirror, which has to end with a code.
func rsmirror(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, args...)
	if got != code {
		t.Fatalf("rsmirror %q ended with %d, not %d: %s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// publish publishes changes of the set demo with rspublish.
func publish(t *testing.T, h *hubtest.Hub, lines ...[]byte) {
	t.Helper()
	code, _, stderr := hubtest.Run(t, nil, bytes.NewReader(bytes.Join(lines, nil)), hubtest.Rspublish, "-hub", h.URL, "-set", "demo", "-")
	if code != 0 {
		t.Fatalf("rspublish ended with %d: %s", code, stderr)
	}
}

// complete says that a hub knows all resources.
func complete(t *testing.T, h *hubtest.Hub) {
	t.Helper()
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/demo", []byte(`{"complete":true}`), hubtest.AsJSON)
}

// fill publishes n files, f0 and so on, and says that these are all.
func fill(t *testing.T, h *hubtest.Hub, o *origin, n int) {
	t.Helper()
	var lines [][]byte
	for i := range n {
		lines = append(lines, o.set(fmt.Sprintf("/f%d", i), fmt.Appendf(nil, "%d of %d", i, n), nil))
	}
	publish(t, h, lines...)
	complete(t, h)
}

// problems returns what an audit has printed, in the form "damaged file /a".
func problems(t *testing.T, o *origin, stdout string) (all []string) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var p struct {
			Problem, In, Loc, Path, Reason string
			Repaired                       bool
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		text := p.Problem + " " + p.In + " "
		if loc := strings.TrimPrefix(p.Loc, o.URL); loc != "" {
			text += loc
		} else {
			text += p.Path
		}
		if p.Repaired {
			text += " repaired"
		}
		all = append(all, text)
	}
	return all
}
