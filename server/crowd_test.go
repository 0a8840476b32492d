package server

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rshub/rshub/internal/loggedtest"
	"github.com/rshub/rshub/internal/untiltest"
)

// Connections that are too many get an answer that says so, more than that are closed,
// and a place is free again when a connection ends, also one that is no HTTP any more.
func TestCrowd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &loggedtest.Log{}
	c := newCrowd(l, shares{users: 2, away: 3}, log.Logger(slog.LevelInfo), prometheus.NewRegistry())
	f := newFront(&requests{log: slog.New(slog.DiscardHandler)}, time.Minute, slog.New(slog.DiscardHandler))
	f.listener = c
	f.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hijack" {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_, _ = io.ReadAll(conn)
		_ = conn.Close()
	}), nil)
	defer f.close()
	// ask makes a connection and a request on it, and returns the beginning of the answer.
	ask := func(path string) (net.Conn, string) {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		b := make([]byte, 4096)
		n, _ := conn.Read(b)
		return conn, string(b[:n])
	}
	one, answer := ask("/")
	if !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Fatal(answer)
	}
	two, answer := ask("/hijack")
	if !strings.HasPrefix(answer, "HTTP/1.1 101 ") {
		t.Fatal(answer)
	}
	for range 2 {
		_, answer = ask("/")
		for _, want := range []string{"HTTP/1.1 503 ", "Retry-After: 10\r\n", "Connection: close\r\n", "too-many-connections"} {
			if !strings.Contains(answer, want) {
				t.Errorf("it lacks %q: %s", want, answer)
			}
		}
	}
	for _, conn := range []net.Conn{one, two} {
		_ = conn.Close()
		untiltest.Done(t, "a connection fits again", func() bool { return c.now.Load() < 2 })
		again, answer := ask("/")
		if !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			t.Fatal(answer)
		}
		defer again.Close()
	}
	// Those that say nothing do not get in the way of the listener.
	for range c.away {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, answer = ask("/"); answer != "" {
		t.Errorf("it gets %s", answer)
	}
	if n := testutil.ToFloat64(c.refused); n != 6 {
		t.Errorf("%v were refused", n)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the log has %d lines:\n%s", n, log)
	}
}

// Users never get more than what is not kept back, and always half of the limit.
func TestShare(t *testing.T) {
	for _, test := range []struct {
		limit, inFlight, users, away int64
		idle                         int
		fits                         bool
	}{
		{128, 1024, 64, 8, 16, false},
		{1024, 1024, 512, 64, 128, false},
		{4096, 1024, 2048, 64, 512, false},
		{4096, 100, 4096 - 932 - 512, 64, 512, true},
		{65_536, 1024, 65_536 - 1856 - 8192, 64, 8192, true},
		{1 << 20, 1024, 1<<20 - 1856 - 16_000, 64, 16_000, true},
		{math.MaxInt64, 1024, math.MaxInt64 - 1856 - 16_000, 64, 16_000, true},
	} {
		s := share(test.limit, test.inFlight)
		if s.users != test.users || s.away != test.away || s.idle != test.idle || s.fits() != test.fits {
			t.Errorf("share(%d, %d) is %+v, fits is %v", test.limit, test.inFlight, s, s.fits())
		}
	}
}
