package fetch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A redirect whose own text never comes leads on all the same.
func TestStalledRedirect(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{Stall: 100 * time.Millisecond, Tries: 1}, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Location", "/b")
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusFound)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	b.right(b.get(Wanted{}))
}

// What a server says beside a status is not repeated: it may control a terminal.
func TestWordsOfStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{Tries: 1}, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		fmt.Fprintf(c, "HTTP/1.1 404 \x1b[2J%s\r\nContent-Length: 0\r\n\r\n", strings.Repeat("x", 10_000))
		c.Close()
		return true
	})
	_, err := b.get(Wanted{})
	if f := fails(t, err, "404 Not Found"); len(f.Error()) > 100 || strings.Contains(f.Error(), "\x1b") {
		t.Errorf("the error is %.100q", f)
	}
}
