package limit

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
)

// listen serves connections with the limits of d, over TLS if secure is set.
func listen(t *testing.T, d Descriptors, secure bool) (*Listener, string, *testutil.Log) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &testutil.Log{}
	bounded := Listen(l, d, nil, log.Logger(slog.LevelInfo))
	srv := httptest.NewUnstartedServer(RefuseExcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	})))
	Serve(srv.Config)
	_ = srv.Listener.Close()
	srv.Listener = bounded
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return bounded, l.Addr().String(), log
}

const (
	aRequest  = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	halfOfOne = "GET / HTTP/1.1\r\nHo"
)

// Connections above the limit get a response with the reason, further ones are closed, and the end of a
// connection, even a hijacked one, admits another.
func TestListener(t *testing.T) {
	c, addr, log := listen(t, Descriptors{Users: 2, Excess: 3}, false)
	one := testutil.Dial(t, "", addr, aRequest)
	if answer := testutil.ReadStart(one); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Fatalf("first connection: got %s, want 200", answer)
	}
	two := testutil.Dial(t, "", addr, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer := testutil.ReadStart(two); !strings.HasPrefix(answer, "HTTP/1.1 101 ") {
		t.Fatalf("hijacked connection: got %s, want 101", answer)
	}
	for range 2 {
		answer := testutil.ReadStart(testutil.Dial(t, "", addr, aRequest))
		for _, want := range []string{"HTTP/1.1 503 ", "Retry-After: 10\r\n", "Connection: close\r\n", "too-many-connections"} {
			if !strings.Contains(answer, want) {
				t.Errorf("excess connection: got %s, want a part %q", answer, want)
			}
		}
	}
	for _, conn := range []net.Conn{one, two} {
		_ = conn.Close()
		testutil.Until(t, "another connection is within the limit", func() bool {
			open, _ := c.count(netip.Prefix{})
			return open < 2
		})
		if answer := testutil.ReadStart(testutil.Dial(t, "", addr, aRequest)); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			t.Fatalf("connection after a close: got %s, want 200", answer)
		}
	}
	// Silent connections do not block the listener.
	for range c.excess {
		testutil.Dial(t, "", addr, "")
	}
	if answer := testutil.ReadStart(testutil.Dial(t, "", addr, aRequest)); answer != "" {
		t.Errorf("connection above the excess: got %s, want none", answer)
	}
	if n := c.Refused(); n != 6 {
		t.Errorf("Refused() = %v, want 6", n)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("got %d log lines, want 1:\n%s", n, log)
	}
}

// Idle connections are closed in favor of others, longest idle first. At the limit of an address, this
// applies to connections of that address, so that silent ones do not lock out a probe from there.
func TestIdleConnectionsAreClosed(t *testing.T) {
	for _, d := range []Descriptors{{Users: 4, Excess: 1}, {Users: 100, One: 4, Excess: 2}} {
		t.Run(fmt.Sprint(d.Users), func(t *testing.T) {
			t.Parallel()
			c, addr, _ := listen(t, d, false)
			var conns []net.Conn
			for range 4 {
				conns = append(conns, testutil.Dial(t, "", addr, ""))
			}
			fmt.Fprint(conns[0], aRequest) // now the shortest idle one
			testutil.ReadStart(conns[0])
			fmt.Fprint(conns[1], halfOfOne) // incomplete
			testutil.Until(t, "a new connection is served", func() bool {
				conn := testutil.Dial(t, "", addr, aRequest)
				defer conn.Close()
				return strings.HasPrefix(testutil.ReadStart(conn), "HTTP/1.1 200 ")
			})
			if n := c.Ended(); n < 1 || n > 4 {
				t.Errorf("Ended() = %v, want 1 to 4", n)
			}
			fmt.Fprint(conns[0], aRequest)
			if testutil.ReadStart(conns[0]) == "" {
				t.Error("shortest idle connection: got it closed, want it open")
			}
		})
	}
}

// One address cannot use all connections.
func TestConnectionsOfOneAddress(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs 127.0.0.2, which only Linux has by default")
	}
	c, addr, log := listen(t, Descriptors{Users: 8, One: 2, Excess: 2}, false)
	for _, test := range []struct{ from, want string }{
		{"127.0.0.1", "HTTP/1.1 200 "}, {"127.0.0.1", "HTTP/1.1 200 "}, {"127.0.0.1", "HTTP/1.1 503 "}, {"127.0.0.2", "HTTP/1.1 200 "},
	} {
		if got := testutil.ReadStart(testutil.Dial(t, test.from, addr, aRequest)); !strings.HasPrefix(got, test.want) {
			t.Errorf("connection from %s: got %q, want %q", test.from, got, test.want)
		}
	}
	if !strings.Contains(log.String(), "127.0.0.1/32") {
		t.Errorf("got the log %s, want the address", log)
	}
	if c.Refused() < 1 {
		t.Errorf("Refused() = %d, want at least 1", c.Refused())
	}
}

// Users get all descriptors that are not reserved, and at least half of the limit.
func TestShareDescriptors(t *testing.T) {
	for _, test := range []struct {
		limit, inFlight, users, excess int64
		idle                           int
		enough                         bool
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
		if s.Users != test.users || s.Excess != test.excess || s.Idle != test.idle || test.limit >= s.enough != test.enough {
			t.Errorf("share(%d, %d) = %+v, want %+v", test.limit, test.inFlight, s, test)
		}
	}
}

// Excess connections over TLS get a response, too.
func TestListenerTLS(t *testing.T) {
	_, addr, _ := listen(t, Descriptors{Users: 1, Excess: 1}, true)
	for _, want := range []string{"HTTP/1.1 200 ", "HTTP/1.1 503 "} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, aRequest)
		if got := testutil.ReadStart(conn); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
