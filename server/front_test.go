package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/loggedtest"
)

// Who takes nothing of a large answer is cut, whatever the answer.
func TestSlowReader(t *testing.T) {
	failed := make(chan error, 1)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 1<<20); ; { // more than any buffer between here and there
			if _, err := w.Write(piece); err != nil {
				failed <- err
				return
			}
		}
	}), 20*time.Millisecond, slog.New(slog.DiscardHandler))
	if srv.Config.ReadTimeout == 0 || srv.Config.ReadHeaderTimeout == 0 || srv.Config.IdleTimeout == 0 {
		t.Errorf("who sends nothing is not cut: %+v", srv.Config)
	}
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the answer ended with %v", err)
	}
}

// Only what an operator has to know of net/http's complaints is more than debug, and it
// is said once a minute.
func TestNetHTTPLog(t *testing.T) {
	log := &loggedtest.Log{}
	srv := newHTTPServer(nil, time.Second, log.Logger(slog.LevelInfo))
	srv.ErrorLog.Print("http: URL query contains semicolon")
	for range 10 {
		srv.ErrorLog.Print("http: Accept error: accept tcp: too many open files; retrying in 5ms")
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"level":"ERROR"`) || !strings.Contains(text, "too many open files") {
		t.Errorf("the log is %s", text)
	}
}
