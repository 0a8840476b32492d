//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/rshub/rshub/internal/access"
)

// asked is the URL of an answer that costs hardly anything to make.
const asked = "/caller"

// clients is how many connections ask, one request after another each.
const clients = 16

// requests measures the cost of a request outside of its handler: rights, limits, guards, the log
// and the counters.
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

// ask makes requests from all clients for a while, and returns a sample.
func (b *bench) ask(s *server, header string) sample {
	askers := make([]asker, clients)
	for i := range askers {
		askers[i] = b.asker(s.addr)
	}
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", asked, s.addr, header)
	return load{clients, 1, b.length}.measure(func(client, _ int) error { return askers[client](request) }, s)
}

// newRequestFloor returns a plain mux with the same response as rshub.
func newRequestFloor() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+asked, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"bench","operate":false,"tokens":true}`+"\n") // the client may be gone
	})
	return mux
}
