package attack

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// An attacker attacks a hub for a while, and counts the responses.
type attacker struct {
	t      *testing.T
	ctx    context.Context
	hub    *hubtest.Hub
	token  string
	auth   string // header with the token
	client *http.Client

	mu       sync.Mutex
	statuses map[int]int // number of responses by status; 0 means none
	sample   map[int]string
}

// parallel calls do in n goroutines until the attack ends.
func (a *attacker) parallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for j := 0; a.ctx.Err() == nil; j++ {
				do(j*n + i)
			}
		})
	}
	wg.Wait()
}

// request returns the body of a response, or the error.
func (a *attacker) request(method, url string, body []byte, headers ...string) string {
	_, text := a.do(method, url, body, headers...)
	return text
}

// do returns a response; the status is 0 without one.
func (a *attacker) do(method, url string, body []byte, headers ...string) (status int, text string) {
	if response, err := trial.Exchange(a.client, method, url, bytes.NewReader(body), headers...); err == nil {
		status, text = response.Status, string(response.Body)
	} else {
		text = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[status]++
	a.sample[status] = text
	return status, text
}

// wantStatuses checks that the hub responded, and only with these statuses.
func (a *attacker) wantStatuses(statuses ...int) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.t.Logf("responses by status: %v", a.statuses)
	total := 0
	for status, n := range a.statuses {
		total += n
		if !slices.Contains(statuses, status) {
			a.t.Errorf("got %d responses with status %d, want none: %.300s", n, status, a.sample[status])
		}
	}
	if total == 0 {
		a.t.Error("got no response")
	}
}

// sendRaw sends bytes that an HTTP client would not send, and returns the response.
func (a *attacker) sendRaw(addr, text string) string {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(hubtest.Timeout))
	_, _ = io.WriteString(conn, text)
	var seen bytes.Buffer
	status, in := 0, io.TeeReader(io.LimitReader(conn, 1<<20), &seen)
	if resp, err := http.ReadResponse(bufio.NewReader(in), nil); err == nil {
		status = resp.StatusCode
		_, _ = io.Copy(io.Discard, resp.Body) // the hub may close it at any time
		_ = resp.Body.Close()
	}
	if strings.Contains(text, "Connection: close\r\n") {
		_, _ = io.Copy(io.Discard, in) // there may be several responses
	}
	response := seen.String()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[status]++
	a.sample[status] = response
	return response
}

// holdConnections opens n connections, sends start on each, and then drip periodically.
func (a *attacker) holdConnections(n int, addr, start, drip string) (open int) {
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range n {
		if a.ctx.Err() != nil {
			break
		}
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			continue
		}
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		conns = append(conns, c)
		_, _ = io.WriteString(c, start)
	}
	for i := 0; a.ctx.Err() == nil; i++ {
		for _, c := range conns {
			_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
			_, _ = io.WriteString(c, drip)
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-a.ctx.Done():
		}
	}
	return len(conns)
}

func gzipped(parts ...string) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	for _, p := range parts {
		_, _ = io.WriteString(z, p)
	}
	_ = z.Close()
	return b.Bytes()
}
