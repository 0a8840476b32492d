//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/access"
)

// asked is the URL of an answer that costs hardly anything to make.
const asked = "/caller"

// clients is how many connections ask, one request after another each.
const clients = 16

// requests measures what every request costs before and after its handler: rights, limits,
// guards, the log and the counters.
func (b *bench) requests(t *table) {
	token, digest := access.NewToken()
	file := filepath.Join(b.dir(), "tokens")
	must(os.WriteFile(file, []byte("bench "+digest+" publish:*,follow:*\nanyone - follow:*\n"), 0o600))
	tokens, free := []string{"RSHUB_TOKENS_FILE=" + file}, []string{"RSHUB_LIMITS_CALLER=requests:none", "RSHUB_LIMITS_ADDRESS=requests:none"}
	floor := b.floor("request")
	for _, kind := range []struct {
		name, header string
		env          []string
	}{
		{"no tokens", "", nil},
		{"a token", "Authorization: Bearer " + token + "\r\n", append(tokens, free...)},
		{"without the token", "", append(tokens, free...)},
	} {
		ours := b.rshub(b.dir(), kind.env...)
		figures := []metric{cpuEach("request").should(aim{limit: 3, over: true}), perSecond("requests")}
		b.compare(t, kind.name, figures,
			func() sample { return b.ask(floor, kind.header) },
			func() sample { return b.ask(ours, kind.header) })
	}
}

// ask has clients ask for a while, and returns what that took.
func (b *bench) ask(s *server, header string) sample {
	conns := make([]net.Conn, clients)
	for i := range conns {
		conns[i] = have(net.Dial("tcp", s.addr))
		b.later(conns[i].Close)
	}
	request := []byte(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", asked, s.addr, header))
	var done atomic.Int64
	measured := measure(func() {
		begin := time.Now()
		must(inParallel(clients, clients, func(i int) error {
			in := bufio.NewReader(conns[i])
			for time.Since(begin) < b.length {
				_ = conns[i].SetDeadline(time.Now().Add(answerTime))
				if _, err := conns[i].Write(request); err != nil {
					return err
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					return err
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					return fmt.Errorf("GET %s: %s, %v", asked, resp.Status, err)
				}
				done.Add(1)
			}
			return nil
		}))
	}, s)
	measured.count = float64(done.Load())
	return measured
}

// newRequestFloor returns a bare mux that answers what rshub answers.
func newRequestFloor() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+asked, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"bench","operate":false,"tokens":true}`+"\n") // the client may be gone
	})
	return mux
}
