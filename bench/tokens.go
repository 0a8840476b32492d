//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/access"
)

var (
	loadTime    = metric{name: "ms", limit: 1000}
	loadCPU     = metric{name: "CPU ms"}
	requestP50  = metric{name: "p50 ms"}
	requestP99  = metric{name: "p99 ms"}
	requestMost = metric{name: "longest ms", limit: 100}
)

// tokens measures how long a large tokens file takes to be read, and what that does to
// requests meanwhile.
func (b *bench) tokens(t *table) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "tokens")
	for _, c := range []struct{ what, limits string }{{"", ""}, {", each with limits", "publishes:100/s,changes:50000/s,bytes:1GiB/m,connections:50"}} {
		what := fmt.Sprintf("%s callers%s", format(float64(b.callers)), c.what)
		if _, err := writeTokens(file, b.callers, c.limits); err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		split := func() error {
			fields := 0
			for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
				fields += len(strings.Fields(lines.Text()))
			}
			if fields < b.callers*4 {
				return fmt.Errorf("%d fields", fields)
			}
			return nil
		}
		read := func() error {
			tokens, err := access.ReadTokens(bytes.NewReader(text))
			if err == nil && tokens.Len() != b.callers {
				err = fmt.Errorf("%d tokens were read", tokens.Len())
			}
			return err
		}
		err = alternate(b, func() (usage, error) { return measure(split) }, func() (usage, error) { return measure(read) }, func(floor, ours usage) {
			t.add(what+", read", loadTime, 1000*floor.seconds, 1000*ours.seconds, max(floor.others, ours.others))
			t.add(what+", read", loadCPU, 1000*floor.cpu, 1000*ours.cpu, max(floor.others, ours.others))
		})
		if err != nil {
			return err
		}
	}
	return b.requestsMeanwhile(t, file)
}

// requestsMeanwhile measures requests to a hub while it reads its tokens anew.
func (b *bench) requestsMeanwhile(t *table, file string) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	token, err := writeTokens(file, b.callers, "")
	if err != nil {
		return err
	}
	s, err := b.rshub(dir, "RSHUB_TOKENS_FILE="+file)
	if err != nil {
		return err
	}
	defer s.stop()
	what := fmt.Sprintf("requests beside a file of %s callers", format(float64(b.callers)))
	return alternate(b,
		func() (latencies, error) { return b.ask(s, token) },
		func() (latencies, error) {
			// The hub looks at the file every two seconds, and each time it is another.
			stop, ended := make(chan struct{}), make(chan error, 1)
			go func() { ended <- b.renew(file, stop) }()
			l, err := b.ask(s, token)
			close(stop)
			return l, cmp.Or(err, <-ended)
		},
		func(floor, ours latencies) {
			t.add(what, requestP50, floor.p50, ours.p50, notMeasured)
			t.add(what, requestP99, floor.p99, ours.p99, notMeasured)
			t.add(what, requestMost, floor.most, ours.most, notMeasured)
		})
}

// renew makes the file another one, with the same tokens, each half second until stop is
// closed.
func (b *bench) renew(file string, stop <-chan struct{}) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		other := append(text, fmt.Sprintf("# %d\n", i)...)
		if err := cmp.Or(os.WriteFile(file+".new", other, 0o600), os.Rename(file+".new", file)); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}

// latencies of requests, in milliseconds.
type latencies struct{ p50, p99, most float64 }

// ask asks for a set again and again, with a rest of a millisecond, for a while.
func (b *bench) ask(s *server, token string) (l latencies, err error) {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	request := fmt.Sprintf("GET /sets HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", s.addr, token)
	var took []uint32
	for begin := time.Now(); time.Since(begin) < b.asked && b.ctx.Err() == nil; time.Sleep(time.Millisecond) {
		before := time.Now()
		_ = conn.SetDeadline(before.Add(answerTime))
		if _, err := conn.Write([]byte(request)); err != nil {
			return l, err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return l, err
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(resp.Body); err != nil {
			return l, err
		}
		if resp.StatusCode != http.StatusOK {
			return l, fmt.Errorf("GET /sets: %s %.300s", resp.Status, &body)
		}
		took = append(took, uint32(time.Since(before).Microseconds()))
	}
	slices.Sort(took)
	return latencies{quantile(took, .5) / 1000, quantile(took, .99) / 1000, quantile(took, 1) / 1000}, nil
}
