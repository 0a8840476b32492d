package server

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rshub/rshub/internal/certificate"
	"github.com/rshub/rshub/internal/loggedtest"
	"github.com/rshub/rshub/internal/untiltest"
)

// crowdOf serves connections as a hub with so many would.
func crowdOf(t *testing.T, d shares, certificates ...*certificate.Files) (*crowd, string, *loggedtest.Log) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &loggedtest.Log{}
	c := newCrowd(l, d, log.Logger(slog.LevelInfo), prometheus.NewRegistry())
	f := newFront(&requests{log: slog.New(slog.DiscardHandler)}, time.Minute, slog.New(slog.DiscardHandler))
	f.listener = c
	for _, files := range certificates {
		secure(f.public, files)
	}
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
	t.Cleanup(f.close)
	return c, l.Addr().String(), log
}

// reach connects to an address from another, or from any, and says something.
func reach(t *testing.T, from, addr, says string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, says)
	return conn
}

const (
	request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	half    = "GET / HTTP/1.1\r\nHo"
)

// begun returns the beginning of what a connection is answered, or nothing if it is closed.
func begun(conn net.Conn) string {
	b := make([]byte, 4096)
	n, _ := io.ReadAtLeast(conn, b, 20)
	return string(b[:n])
}

// Connections that are too many get an answer that says so, more than that are closed,
// and a place is free again when a connection ends, also one that is no HTTP any more.
func TestCrowd(t *testing.T) {
	c, addr, log := crowdOf(t, shares{users: 2, away: 3})
	one := reach(t, "", addr, request)
	if answer := begun(one); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Fatal(answer)
	}
	two := reach(t, "", addr, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer := begun(two); !strings.HasPrefix(answer, "HTTP/1.1 101 ") {
		t.Fatal(answer)
	}
	for range 2 {
		answer := begun(reach(t, "", addr, request))
		for _, want := range []string{"HTTP/1.1 503 ", "Retry-After: 10\r\n", "Connection: close\r\n", "too-many-connections"} {
			if !strings.Contains(answer, want) {
				t.Errorf("it lacks %q: %s", want, answer)
			}
		}
	}
	for _, conn := range []net.Conn{one, two} {
		_ = conn.Close()
		untiltest.Done(t, "a connection fits again", func() bool { return c.now.Load() < 2 })
		if answer := begun(reach(t, "", addr, request)); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			t.Fatal(answer)
		}
	}
	// Those that say nothing do not get in the way of the listener.
	for range c.away {
		reach(t, "", addr, "")
	}
	if answer := begun(reach(t, "", addr, request)); answer != "" {
		t.Errorf("it gets %s", answer)
	}
	if n := testutil.ToFloat64(c.refused); n != 6 {
		t.Errorf("%v were refused", n)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the log has %d lines:\n%s", n, log)
	}
}

// Connections without a request make room for others, those first that wait longest; where one
// address has many, for others of the same, so that who keeps silent ones does not lock out a probe
// that comes from there.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	for _, d := range []shares{{users: 4, away: 1}, {users: 100, one: 4, away: 2}} {
		t.Run(fmt.Sprint(d.users), func(t *testing.T) {
			t.Parallel()
			c, addr, _ := crowdOf(t, d)
			var conns []net.Conn
			for range 4 {
				conns = append(conns, reach(t, "", addr, ""))
			}
			fmt.Fprint(conns[0], request) // from now on the newest of those that wait
			begun(conns[0])
			fmt.Fprint(conns[1], half) // it never sends the rest
			untiltest.Done(t, "a new connection is served", func() bool {
				conn := reach(t, "", addr, request)
				defer conn.Close()
				return strings.HasPrefix(begun(conn), "HTTP/1.1 200 ")
			})
			if n := testutil.ToFloat64(c.ended); n < 1 || n > 4 {
				t.Errorf("%v connections were ended", n)
			}
			fmt.Fprint(conns[0], request)
			if begun(conns[0]) == "" {
				t.Error("the newest was closed")
			}
		})
	}
}

// One address does not get all connections.
func TestConnectionsOfOneAddress(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("another machine has no 127.0.0.2")
	}
	c, addr, log := crowdOf(t, shares{users: 8, one: 2, away: 2})
	for _, test := range []struct{ from, want string }{
		{"127.0.0.1", "HTTP/1.1 200 "}, {"127.0.0.1", "HTTP/1.1 200 "}, {"127.0.0.1", "HTTP/1.1 503 "}, {"127.0.0.2", "HTTP/1.1 200 "},
	} {
		if got := begun(reach(t, test.from, addr, request)); !strings.HasPrefix(got, test.want) {
			t.Errorf("from %s: %q, want %q", test.from, got, test.want)
		}
	}
	if !strings.Contains(log.String(), "127.0.0.1/32") {
		t.Errorf("the log does not name the address: %s", log)
	}
	if testutil.ToFloat64(c.refused) < 1 {
		t.Error("it is not counted")
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
