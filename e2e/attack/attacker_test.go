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

// An attacker does harm to a hub for a while, and notes what it is answered.
type attacker struct {
	t      *testing.T
	ctx    context.Context
	hub    *hubtest.Hub
	token  string
	auth   string // header with the token
	client *http.Client

	mu       sync.Mutex
	statuses map[int]int // how often it got each; 0: no answer
	sample   map[int]string
}

// parallel runs n of do until the attack is over.
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

// request returns the text of an answer, or the error that there was instead.
func (a *attacker) request(method, url string, body []byte, headers ...string) string {
	_, text := a.ask(method, url, body, headers...)
	return text
}

// ask returns an answer; the status is 0 if there is none.
func (a *attacker) ask(method, url string, body []byte, headers ...string) (status int, text string) {
	if answer, err := trial.Exchange(a.client, method, url, bytes.NewReader(body), headers...); err == nil {
		status, text = answer.Status, string(answer.Body)
	} else {
		text = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[status]++
	a.sample[status] = text
	return status, text
}

// only checks that the hub answered, and with nothing but these statuses.
func (a *attacker) only(statuses ...int) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.t.Logf("answers: %v", a.statuses)
	total := 0
	for status, n := range a.statuses {
		total += n
		if !slices.Contains(statuses, status) {
			a.t.Errorf("%d answers are %d: %.300s", n, status, a.sample[status])
		}
	}
	if total == 0 {
		a.t.Error("the hub answered nothing")
	}
}

// raw sends bytes that an HTTP client would not, and returns what comes.
func (a *attacker) raw(addr, text string) string {
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
		_, _ = io.Copy(io.Discard, resp.Body) // the hub may end it at any time
		_ = resp.Body.Close()
	}
	if strings.Contains(text, "Connection: close\r\n") {
		_, _ = io.Copy(io.Discard, in) // there may be more than one answer
	}
	answer := seen.String()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[status]++
	a.sample[status] = answer
	return answer
}

// hold opens n connections, sends each a beginning, and then a byte now and then.
func (a *attacker) hold(n int, addr, begin, drip string) (open int) {
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
		_, _ = io.WriteString(c, begin)
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
