package hubtest

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

// A Hub is a running rshub, or one that a test has stopped and may start again with the same
// address and data.
type Hub struct {
	*Process
	Env  []string
	URL  string // without a trailing slash
	Host string // host:port
	Ops  string // URL of the operations address
	Data string
}

// StartHub starts a hub with additional variables of the form "NAME=value".
func StartHub(t testing.TB, env ...string) *Hub {
	t.Helper()
	h := NewHub(t, env...)
	h.Start(t)
	return h
}

// NewHub returns a hub that is not running yet.
func NewHub(t testing.TB, env ...string) *Hub {
	h := &Hub{Data: t.TempDir() + "/data"}
	h.Host = FreePort(t)
	h.URL = "http://" + h.Host
	h.Env = append([]string{"RSHUB_LISTEN=" + h.Host, "RSHUB_OPS_LISTEN=127.0.0.1:0", "RSHUB_DATA=" + h.Data}, env...)
	return h
}

// Start starts the hub with additional variables, and waits until it listens.
func (h *Hub) Start(t testing.TB, env ...string) {
	t.Helper()
	h.Process = Start(t, append(h.Env[:len(h.Env):len(h.Env)], env...), nil, Rshub)
	h.WaitRunning()
}

// WaitRunning waits until the hub listens, and reads the operations address from its log.
func (h *Hub) WaitRunning() {
	h.t.Helper()
	Until(h.t, "rshub listens", func() error {
		for line := range strings.Lines(h.Stderr.String()) {
			var record struct{ Msg, Listen, Ops string }
			if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "rshub is running" {
				if record.Listen != h.Host {
					h.t.Fatalf("rshub listens on %s, want %s", record.Listen, h.Host)
				}
				h.Ops = "http://" + record.Ops
				return nil
			}
		}
		if h.Exited() {
			h.t.Fatalf("rshub exited: %s", h.Stderr.String())
		}
		return errors.New("got no record about it")
	})
}

// Stop stops the hub with SIGTERM.
func (h *Hub) Stop(t testing.TB) {
	t.Helper()
	h.Signal(syscall.SIGTERM)
	if code := h.Wait(); code != 0 {
		t.Errorf("exit status of rshub after SIGTERM = %d, want 0", code)
	}
}

// Topic returns the topic URL of a set.
func (h *Hub) Topic(set string) string { return h.URL + "/sets/" + set + "/changes" }

var ports struct {
	mu   sync.Mutex
	used map[int]bool
}

// FreePort returns an unused address. It stays free while a hub is down: its port is below the
// range of ephemeral ports.
func FreePort(t testing.TB) string {
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
	t.Fatal("found no free port")
	return ""
}
