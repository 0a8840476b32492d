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

// A trap listens on loopback, where nobody may be called.
type trap struct {
	url   string
	port  int
	calls atomic.Int64
}

func notCalled(t *testing.T) *trap {
	p := &trap{}
	four, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.url, p.port = "http://"+four.Addr().String(), four.Addr().(*net.TCPAddr).Port
	listeners := []net.Listener{four}
	if six, err := net.Listen("tcp6", fmt.Sprintf("[::1]:%d", p.port)); err == nil { // not every machine has it
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
				t.Errorf("%d connections to %s, where nobody may be called", n, l.Addr())
			}
		})
	}
	return p
}

// forbiddenCallbacks names addresses of this machine, and of networks that are not public,
// as callbacks and as what the hub reads of a source. All spellings are tried in package
// outbound, and names whose address changes.
func forbiddenCallbacks(a *attacker) {
	p := notCalled(a.t)
	const refused, asked = http.StatusBadRequest, http.StatusAccepted // a name may be any address until a connection is made
	hosts := map[string]int{
		"127.0.0.1": refused, "2130706433": refused, "0x7f.0.0.1": refused, "0.0.0.0": refused, "[::1]": refused, "[::ffff:7f00:1]": refused, "[fe80::1%25lo]": refused,
		"169.254.169.254": refused, "10.0.0.1": refused, "user:pass@127.0.0.1": refused, "①②⑦.⓪.⓪.①": refused, "127.0.0.1\r\nHost: x": refused, "": refused,
		"localhost": asked, "ip6-localhost": asked, "localtest.invalid": asked,
	}
	for host, want := range hosts {
		url := fmt.Sprintf("http://%s:%d/cb", host, p.port)
		form := trial.Form("subscribe", url, a.hub.Topic(calmSet)).Encode()
		if status, text := a.ask(http.MethodPost, a.hub.URL+"/hub", []byte(form), a.auth, trial.AsForm); status != want && status != http.StatusTooManyRequests {
			a.t.Errorf("the callback %q is answered %d, want %d: %s", url, status, want, text)
		}
		if want == refused {
			for _, member := range []string{"source", "changelist"} {
				body, _ := json.Marshal(map[string]string{member: url}) // a string
				if status, text := a.ask(http.MethodPut, a.hub.URL+"/sets/evil-source", body, a.auth, "Content-Type: application/json"); status != refused && status != http.StatusTooManyRequests {
					a.t.Errorf("the %s %q is answered %d: %s", member, url, status, text)
				}
			}
		}
	}
	for _, url := range []string{"file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL", "//127.0.0.1/", "http://8.8.8.8:25/", a.hub.URL + "/hub", a.hub.Ops + "/backup"} {
		form := trial.Form("subscribe", url, a.hub.Topic(calmSet)).Encode()
		if status, text := a.ask(http.MethodPost, a.hub.URL+"/hub", []byte(form), a.auth, trial.AsForm); status != refused && status != http.StatusTooManyRequests {
			a.t.Errorf("the callback %q is answered %d: %s", url, status, text)
		}
	}
	a.only(202, 400, 429)
	hubtest.Until(a.t, "the hub has tried a name of loopback", func() error {
		if !strings.Contains(a.hub.Stderr.String(), "address is not allowed") && a.statuses[202] > 0 {
			return fmt.Errorf("the log does not say it")
		}
		return nil
	})
}
