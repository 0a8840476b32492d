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

// An origin is a web server with the contents of resources, and faults for requests.
type origin struct {
	*httptest.Server

	mu       sync.Mutex
	files    map[string][]byte
	faults   map[string]fault // by path
	requests map[string]int   // number of requests by path
}

// A fault handles request n for a path, counted from 1. If it returns false, the origin responds.
type fault func(n int, w http.ResponseWriter, content []byte) bool

func newOrigin(t *testing.T) *origin {
	o := &origin{files: map[string][]byte{}, faults: map[string]fault{}, requests: map[string]int{}}
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
	o.requests[name]++
	n, fault := o.requests[name], o.faults[name]
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

// set sets a file, or removes it if content is nil, and returns the change.
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

// random returns n random bytes.
func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// same returns an error unless the mirror in a directory has exactly the files of the origin.
func (o *origin) same(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[string]bool{}
	err := hubtest.EachFile(dir, func(name string, b []byte) error {
		content, ok := o.files["/"+name]
		if !ok || !bytes.Equal(b, content) {
			return fmt.Errorf("%s: got %d bytes, want the %d of the origin", name, len(b), len(content))
		}
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.ModTime().UTC().Year() != 2020 {
			return fmt.Errorf("modification time of %s = %v, %v, want 2020", name, info.ModTime(), err)
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

// first limits a fault to the first requests.
func first(limit int, f fault) fault {
	return func(n int, w http.ResponseWriter, content []byte) bool { return n <= limit && f(n, w, content) }
}

// truncate aborts the connection in the middle of the content.
func truncate(_ int, w http.ResponseWriter, content []byte) bool {
	w.Header().Set("ETag", `"`+sum(content)[:16]+`"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content[:len(content)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func reply(text string) fault {
	return func(_ int, w http.ResponseWriter, _ []byte) bool {
		_, _ = w.Write([]byte(text))
		return true
	}
}

// rsmirror runs rsmirror, and fails the test unless it exits with code.
func rsmirror(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, args...)
	if got != code {
		t.Fatalf("rsmirror %q exited with %d, want %d: %s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// publish publishes changes of the set demo with rspublish.
func publish(t *testing.T, h *hubtest.Hub, lines ...[]byte) {
	t.Helper()
	code, _, stderr := hubtest.Run(t, nil, bytes.NewReader(bytes.Join(lines, nil)), hubtest.Rspublish, "-hub", h.URL, "-set", "demo", "-")
	if code != 0 {
		t.Fatalf("rspublish exited with %d: %s", code, stderr)
	}
}

// complete declares that a hub knows all resources.
func complete(t *testing.T, h *hubtest.Hub) {
	t.Helper()
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/demo", []byte(`{"complete":true}`), hubtest.AsJSON)
}

// fill publishes n files, f0 and so on, and declares that these are all.
func fill(t *testing.T, h *hubtest.Hub, o *origin, n int) {
	t.Helper()
	var lines [][]byte
	for i := range n {
		lines = append(lines, o.set(fmt.Sprintf("/f%d", i), fmt.Appendf(nil, "%d of %d", i, n), nil))
	}
	publish(t, h, lines...)
	complete(t, h)
}

// problems returns the problems that an audit printed, in the form "damaged file /a".
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
