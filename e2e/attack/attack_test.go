package attack

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/conformance/trial"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// An attacker does harm to a hub for a while, and notes what it is answered.
type attacker struct {
	t      *testing.T
	ctx    context.Context
	hub    *hubtest.Hub
	token  string
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

func (a *attacker) request(method, url string, body []byte, headers ...string) string {
	r, err := http.NewRequestWithContext(context.WithoutCancel(a.ctx), method, url, bytes.NewReader(body))
	if err != nil {
		a.t.Error(err)
		return ""
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	status, text := 0, ""
	if resp, err := a.client.Do(r); err == nil {
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		status, text = resp.StatusCode, string(b)
	} else {
		text = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[status]++
	a.sample[status] = text
	return text
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
		ok := false
		for _, s := range statuses {
			ok = ok || s == status
		}
		if !ok {
			a.t.Errorf("%d answers are %d: %.300s", n, status, a.sample[status])
		}
	}
	if total == 0 {
		a.t.Error("the hub answered nothing")
	}
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

var residentForm = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)`)

// resident returns how much memory the hub has.
func resident(t *testing.T, h *hubtest.Hub) float64 {
	m := residentForm.FindSubmatch(hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil).Body)
	if m == nil {
		t.Fatal("the hub does not say how much memory it has")
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAttacks does one harm after the other to a hub with few file descriptors. Whoever
// else uses the hub notices nothing: no publish is refused, nothing is lost or late.
func TestAttacks(t *testing.T) {
	second, err := net.ListenTCP("tcp", place)
	if err != nil {
		t.Skipf("this machine has no second address: %v", err)
	}
	_ = second.Close()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("this needs a shell")
	}
	file := filepath.Join(t.TempDir(), "tokens")
	good := hubtest.NewToken(t, file, "good", "publish:calm,follow:calm")
	evil := hubtest.NewToken(t, file, "evil", "publish:evil*,follow:evil*")
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString("anyone - follow:*\n"); err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	h := hubtest.NewHub(t, append(hubtest.Callable, "RSHUB_TOKENS_FILE="+file, "RSHUB_LIMITS_CALLER=sets:200/h,bytes:600MiB/m", "RSHUB_LIMITS_ADDRESS=requests:3000/m,connections:200")...)
	h.Process = hubtest.Start(t, h.Env, nil, shell, "-c", `ulimit -n 2048 && exec "$0"`, hubtest.Rshub)
	h.Running()
	b := newBystander(t, h, good)
	b.while(func() {}) // warm
	calm := b.while(func() {})

	const evilTopic = "/sets/evil/changes"
	auth := "Authorization: Bearer " + evil
	links := `,{"loc":"a:b","change":"updated","ln":[` + strings.Repeat(`{"rel":"a","href":"b:c"},`, 99) + `{"rel":"a","href":"b:c"}]}`
	jsonBomb := gzipped(`{"changes":[{"loc":"a:b","change":"updated"}`, strings.Repeat(links, 19_000), "]}")
	xmlBomb := gzipped(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><url`, strings.Repeat(` a=""`, 9_000_000))
	gzipBomb := gzipped(`{"changes":[{"loc":"`, strings.Repeat("a", 80<<20))
	ops := strings.TrimPrefix(h.Ops, "http://")

	for _, attack := range []struct {
		name string
		do   func(a *attacker)
	}{
		{"bombs of JSON", func(a *attacker) {
			a.parallel(many(3), func(int) {
				a.request(http.MethodPost, h.URL+evilTopic, jsonBomb, auth, "Content-Type: application/json", "Content-Encoding: gzip")
			})
			a.only(413, 429, 503)
		}},
		{"bombs of XML", func(a *attacker) {
			a.parallel(many(3), func(int) {
				a.request(http.MethodPost, h.URL+evilTopic, xmlBomb, auth, "Content-Type: application/xml", "Content-Encoding: gzip")
			})
			a.only(413, 429, 503)
		}},
		{"bombs of gzip", func(a *attacker) {
			a.parallel(many(3), func(int) {
				a.request(http.MethodPost, h.URL+evilTopic, gzipBomb, auth, "Content-Type: application/json", "Content-Encoding: gzip")
			})
			a.only(413, 429, 503)
		}},
		{"a flood of sets", func(a *attacker) {
			a.parallel(8, func(i int) {
				a.request(http.MethodPut, fmt.Sprintf("%s/sets/evil-%d", h.URL, i), []byte(`{"title":"`+strings.Repeat("evil ", 100)+`"}`), auth, "Content-Type: application/json")
			})
			a.only(200, 429)
			if a.statuses[200] > 201 {
				t.Errorf("%d sets were made", a.statuses[200])
			}
			list := hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/sets", nil)
			if len(list.Body) > 200<<10 {
				t.Errorf("the list of sets has %d bytes", len(list.Body))
			}
		}},
		{"slow headers", func(a *attacker) {
			a.hold(many(300), h.Host, "GET /sets HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "a")
		}},
		{"slow headers at the operations address", func(a *attacker) {
			a.hold(many(300), ops, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "a")
		}},
		{"slow bodies", func(a *attacker) {
			a.hold(many(300), h.Host, "POST "+evilTopic+" HTTP/1.1\r\nHost: localhost\r\n"+auth+"\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", " ")
		}},
		{"slow readers", func(a *attacker) {
			a.hold(many(300), h.Host, "GET /sets/evil/changes?since=start&limit=10000 HTTP/1.1\r\nHost: localhost\r\n"+auth+"\r\n\r\n", "")
		}},
		{"idle event streams", func(a *attacker) {
			a.hold(many(1500), h.Host, "GET /sets/calm/changes HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", "")
		}},
		{"idle WebSockets", func(a *attacker) {
			a.hold(many(1500), h.Host, "GET /sets/calm/changes HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "")
		}},
		{"a flood of subscriptions", func(a *attacker) {
			a.parallel(8, func(i int) {
				form := trial.Form("subscribe", fmt.Sprintf("http://127.0.0.1:9999/%d", i), h.Topic("calm")).Encode()
				a.request(http.MethodPost, h.URL+"/hub", []byte(form), trial.AsForm)
			})
			a.only(202, 429)
		}},
		{"guesses of tokens", func(a *attacker) {
			a.parallel(8, func(i int) {
				a.request(http.MethodGet, h.URL+"/sets", nil, fmt.Sprintf("Authorization: Bearer rshub_%d", i))
			})
			a.only(401, 429)
		}},
	} {
		t.Run(strings.ReplaceAll(attack.name, " ", "-"), func(t *testing.T) {
			long := 1500 * time.Millisecond
			if full() {
				long = 20 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			transport := &http.Transport{MaxIdleConnsPerHost: 100}
			defer transport.CloseIdleConnections()
			a := &attacker{t: t, ctx: ctx, hub: h, token: evil, client: &http.Client{Transport: transport, Timeout: hubtest.Patience}, statuses: map[int]int{}, sample: map[int]string{}}
			b.unharmed(t, calm, b.while(func() { attack.do(a) }))
			if n := resident(t, h); n > 2<<30 {
				t.Errorf("the hub has %.0f MB of memory", n/(1<<20))
			} else {
				t.Logf("the hub has %.0f MB of memory", n/(1<<20))
			}
		})
	}
	b.all()
}
