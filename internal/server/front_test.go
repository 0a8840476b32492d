package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil"
)

// A client that does not read a large response is disconnected.
func TestSlowReader(t *testing.T) {
	failed := make(chan error, 1)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = newHTTPServer(wrapResponse(20*time.Millisecond)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 1<<20); ; { // more than the buffers of the connection hold
			if _, err := w.Write(piece); err != nil {
				failed <- err
				return
			}
		}
	})), 20*time.Millisecond, slog.New(slog.DiscardHandler))
	if srv.Config.ReadTimeout == 0 || srv.Config.ReadHeaderTimeout == 0 || srv.Config.IdleTimeout == 0 {
		t.Errorf("server = %+v, want read and idle timeouts", srv.Config)
	}
	srv.Start()
	defer srv.Close()
	testutil.Dial(t, "", srv.Listener.Addr().String(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write() = %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

// Errors of net/http that an operator must know are logged above DEBUG, at most once a minute.
func TestNetHTTPLog(t *testing.T) {
	log := &testutil.Log{}
	srv := newHTTPServer(nil, time.Second, log.Logger(slog.LevelInfo))
	srv.ErrorLog.Print("http: URL query contains semicolon")
	for range 10 {
		srv.ErrorLog.Print("http: Accept error: accept tcp: too many open files; retrying in 5ms")
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"level":"ERROR"`) || !strings.Contains(text, "too many open files") {
		t.Errorf("got the log %s, want one error", text)
	}
}

// A recorder records the pieces of a response, and the number of deadlines set before each.
type recorder struct {
	*httptest.ResponseRecorder
	deadlines int
	calls     [][2]int // size of each piece, and the number of deadlines before
}

func (r *recorder) SetWriteDeadline(time.Time) error { r.deadlines++; return nil }

func (r *recorder) Write(p []byte) (int, error) {
	r.calls = append(r.calls, [2]int{len(p), r.deadlines})
	return r.ResponseRecorder.Write(p)
}

// Each piece of a large response has its own write deadline; the whole response has none.
func TestWriteDeadlineOfEachPiece(t *testing.T) {
	body := strings.Repeat("0123456789", 20_000)
	r := &recorder{ResponseRecorder: httptest.NewRecorder()}
	wrapResponse(time.Second)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		if n, err := io.WriteString(w, body); n != len(body) || err != nil {
			t.Errorf("Write() = %d, %v, want %d, nil", n, err, len(body))
		}
		if n, err := w.Write(nil); n != 0 || err != nil {
			t.Errorf("Write(nil) = %d, %v, want 0, nil", n, err)
		}
	})).ServeHTTP(r, httptest.NewRequest("GET", "/", nil))
	if r.Body.String() != body || len(r.calls) != 5 {
		t.Errorf("got %d bytes in %d pieces, want %d in 5", r.Body.Len(), len(r.calls), len(body))
	}
	for i, call := range r.calls {
		if call[0] > maxPiece || call[1] != i+2 { // one is for the header
			t.Errorf("piece %d: got %d bytes after %d deadlines, want at most %d after %d", i+1, call[0], call[1], maxPiece, i+2)
		}
	}
}

// A client that sends a large body before it reads still receives the refusal.
func TestRefusedUpload(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	body := strings.Repeat("0", 12<<20)
	for _, test := range []struct {
		method, path, header string
		status               int
	}{
		{"POST", "/sets/Bad/changes", "", 400},
		{"POST", "/hub", "Content-Type: application/x-www-form-urlencoded\r\n", 413},
		{"PUT", "/sets/demo", "", 413},
		{"POST", "/nowhere", "", 404},
	} {
		t.Run(test.path+fmt.Sprint(test.status), func(t *testing.T) {
			t.Parallel()
			conn := testutil.Dial(t, "", strings.TrimPrefix(h.URL, "http://"), fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n", test.method, test.path, test.header, len(body)))
			if _, err := io.WriteString(conn, body); err != nil {
				t.Fatalf("send the body: %v", err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("read the response: %v", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != test.status {
				t.Errorf("got status %d, want %d", resp.StatusCode, test.status)
			}
		})
	}
}
