package attack

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A trap listens on loopback, where callbacks are forbidden.
type trap struct {
	url   string
	port  int
	calls atomic.Int64
}

func newTrap(t *testing.T) *trap {
	p := &trap{}
	four, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.url, p.port = "http://"+four.Addr().String(), four.Addr().(*net.TCPAddr).Port
	listeners := []net.Listener{four}
	if six, err := net.Listen("tcp6", fmt.Sprintf("[::1]:%d", p.port)); err == nil { // IPv6 may be unavailable
		listeners = append(listeners, six)
	}
	for _, l := range listeners {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				p.calls.Add(1)
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() {
			_ = l.Close()
			<-done
			if n := p.calls.Load(); n > 0 {
				t.Errorf("got %d connections to %s, want 0", n, l.Addr())
			}
		})
	}
	return p
}

// forbiddenCallbacks uses addresses of this machine and of private networks as callbacks and as
// URLs of a source. Package outbound tests all spellings, and names whose address changes.
func forbiddenCallbacks(a *attacker) {
	p := newTrap(a.t)
	const refused, accepted = http.StatusBadRequest, http.StatusAccepted // the address of a name is checked at the connection
	hosts := map[string]int{
		"127.0.0.1": refused, "2130706433": refused, "0x7f.0.0.1": refused, "0.0.0.0": refused, "[::1]": refused, "[::ffff:7f00:1]": refused, "[fe80::1%25lo]": refused,
		"169.254.169.254": refused, "10.0.0.1": refused, "user:pass@127.0.0.1": refused, "①②⑦.⓪.⓪.①": refused, "127.0.0.1\r\nHost: x": refused, "": refused,
		"localhost": accepted, "ip6-localhost": accepted, "localtest.invalid": accepted,
	}
	for host, want := range hosts {
		url := fmt.Sprintf("http://%s:%d/cb", host, p.port)
		form := trial.Form("subscribe", url, a.hub.Topic(calmSet)).Encode()
		if status, text := a.do(http.MethodPost, a.hub.URL+"/hub", []byte(form), a.auth, trial.AsForm); status != want && status != http.StatusTooManyRequests {
			a.t.Errorf("callback %q = %d, want %d: %s", url, status, want, text)
		}
		if want == refused {
			for _, member := range []string{"source", "changelist"} {
				body, _ := json.Marshal(map[string]string{member: url}) // a string
				if status, text := a.do(http.MethodPut, a.hub.URL+"/sets/evil-source", body, a.auth, "Content-Type: application/json"); status != refused && status != http.StatusTooManyRequests {
					a.t.Errorf("%s %q = %d, want 400: %s", member, url, status, text)
				}
			}
		}
	}
	for _, url := range []string{"file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL", "//127.0.0.1/", "http://8.8.8.8:25/", a.hub.URL + "/hub", a.hub.Ops + "/backup"} {
		form := trial.Form("subscribe", url, a.hub.Topic(calmSet)).Encode()
		if status, text := a.do(http.MethodPost, a.hub.URL+"/hub", []byte(form), a.auth, trial.AsForm); status != refused && status != http.StatusTooManyRequests {
			a.t.Errorf("callback %q = %d, want 400: %s", url, status, text)
		}
	}
	a.wantStatuses(202, 400, 429)
	hubtest.Until(a.t, "the hub has tried a name of a loopback address", func() error {
		if !strings.Contains(a.hub.Stderr.String(), "address is not allowed") && a.statuses[202] > 0 {
			return fmt.Errorf("got no log line about it")
		}
		return nil
	})
}
