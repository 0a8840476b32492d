package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A hub is a running rshub, or one that a test has ended and may start again on
// the same address and data.
type hub struct {
	*process
	env  []string
	url  string // without a slash at the end
	host string // host:port
	ops  string // URL of the operations address
	data string
}

// startHub starts a hub with further variables, "NAME=value".
func startHub(t testing.TB, env ...string) *hub {
	t.Helper()
	h := newHub(t, env...)
	h.start(t)
	return h
}

// newHub returns a hub that does not run yet.
func newHub(t testing.TB, env ...string) *hub {
	h := &hub{data: t.TempDir() + "/data"}
	h.host = freePort(t)
	h.url = "http://" + h.host
	h.env = append([]string{"RSHUB_LISTEN=" + h.host, "RSHUB_OPS_LISTEN=127.0.0.1:0", "RSHUB_DATA=" + h.data}, env...)
	return h
}

// start starts a hub that does not run, with further variables, and waits until
// it listens.
func (h *hub) start(t testing.TB, env ...string) {
	t.Helper()
	h.process = start(t, append(h.env[:len(h.env):len(h.env)], env...), nil, rshubBin)
	h.running()
}

// running waits until the hub listens, and learns the address for operations.
func (h *hub) running() {
	h.t.Helper()
	until(h.t, "rshub listens", func() error {
		for line := range strings.Lines(h.stderr.String()) {
			var said struct{ Msg, Listen, Ops string }
			if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "rshub is running" {
				if said.Listen != h.host {
					h.t.Fatalf("rshub listens on %s, not on %s", said.Listen, h.host)
				}
				h.ops = "http://" + said.Ops
				return nil
			}
		}
		if h.ended() {
			h.t.Fatalf("rshub ended: %s", h.stderr.String())
		}
		return errors.New("it does not say so")
	})
}

// stop ends the hub in the orderly way.
func (h *hub) stop(t testing.TB) {
	t.Helper()
	h.signal(syscall.SIGTERM)
	if code := h.wait(); code != 0 {
		t.Errorf("rshub ended with %d after SIGTERM", code)
	}
}

// topic is the URL of a set.
func (h *hub) topic(set string) string { return h.url + "/sets/" + set + "/changes" }

var ports struct {
	mu   sync.Mutex
	used map[int]bool
}

// freePort returns an address on which nobody listens, and which stays free
// while a hub is down: its port is below those that the system gives to
// outgoing connections.
func freePort(t testing.TB) string {
	t.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.used == nil {
		ports.used = map[int]bool{}
	}
	for range 1000 {
		port := 15000 + rand.IntN(15000)
		if ports.used[port] {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			ports.used[port] = true
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}
