// Callbacks is a destination with any number of callbacks. It is a separate process, so that
// its state survives a killed hub, and it can be killed as well.
//
//	callbacks [-refuse] ADDRESS...
//
// It listens on each address. With -refuse it confirms subscriptions and rejects all
// deliveries. Every path is a callback; one below /flaky/ fails a fifth of its deliveries
// with an error or without a response. GET /report on any address returns the report of each
// path as JSON.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/rshub/rshub/e2e/internal/trial"
)

type callback struct {
	mu sync.Mutex
	trial.Report
	digest hash.Hash
}

// callbacks are the callbacks by path.
type callbacks struct {
	refuse bool

	mu  sync.Mutex
	all map[string]*callback
}

func main() {
	cs := &callbacks{all: map[string]*callback{}}
	failed := make(chan error)
	flag.BoolVar(&cs.refuse, "refuse", false, "reject all deliveries")
	flag.Parse()
	for _, addr := range flag.Args() {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			log.Fatalf("callbacks: %v", err)
		}
		go func() { failed <- http.Serve(l, cs) }()
	}
	fmt.Println("listening")
	log.Fatalf("callbacks: %v", <-failed)
}

func (cs *callbacks) of(path string) *callback {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[path]
	if c == nil {
		c = &callback{digest: sha256.New()}
		cs.all[path] = c
	}
	return c
}

func (cs *callbacks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/report" {
		cs.report(w)
		return
	}
	c := cs.of(r.URL.Path)
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && cs.refuse:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Method == http.MethodPost:
		c.deliver(w, r)
	case q.Get("hub.mode") == "denied":
		c.mu.Lock()
		c.Denied++
		c.mu.Unlock()
	default:
		c.mu.Lock()
		c.Verified++
		c.mu.Unlock()
		_, _ = io.WriteString(w, q.Get("hub.challenge")) // the hub may have been killed
	}
}

func (cs *callbacks) report(w http.ResponseWriter) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	all := map[string]trial.Report{}
	for path, c := range cs.all {
		c.mu.Lock()
		all[path] = c.Report
		c.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // the test may have exited
}

// An entry is the part of an entry of a change notification that is checked.
type entry struct {
	position uint64
	loc      string
}

// entries parses a change notification in the form that rshub writes. An XML parser would cost
// more than everything under test.
func entries(body []byte) (all []entry, ok bool) {
	for part := range bytes.SplitSeq(body, []byte("</url>")) {
		_, rest, more := bytes.Cut(part, []byte("<url>"))
		if !more {
			continue
		}
		_, loc, has := bytes.Cut(rest, []byte("<loc>"))
		loc, _, closed := bytes.Cut(loc, []byte("</loc>"))
		_, digits, marked := bytes.Cut(rest, []byte(` h:position="`))
		digits, _, _ = bytes.Cut(digits, []byte(`"`))
		position, err := strconv.ParseUint(string(digits), 10, 64)
		if !has || !closed || !marked || err != nil {
			return nil, false
		}
		all = append(all, entry{position, string(loc)})
	}
	return all, bytes.HasSuffix(bytes.TrimSpace(body), []byte("</urlset>"))
}

// deliver handles a delivery, or fails at random.
func (c *callback) deliver(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the hub closed the connection
	}
	if strings.HasPrefix(r.URL.Path, "/flaky/") {
		switch rand.IntN(15) {
		case 0:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case 2:
			panic(http.ErrAbortHandler)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handleDelivery(r.Header, body)
}

// handleDelivery records the new entries of a delivery. The caller must hold mu.
func (c *callback) handleDelivery(h http.Header, body []byte) {
	all, ok := entries(body)
	if !ok {
		c.fault("invalid delivery: %.200q", body)
		return
	}
	previous, err1 := strconv.ParseUint(h.Get("RS-Previous"), 10, 64)
	position, err2 := strconv.ParseUint(h.Get("RS-Position"), 10, 64)
	if err1 != nil || err2 != nil || len(all) == 0 || all[len(all)-1].position > position {
		c.fault("got RS-Previous %q, RS-Position %q, %d entries", h.Get("RS-Previous"), h.Get("RS-Position"), len(all))
		return
	}
	gap := h.Get("RS-Gap")
	switch {
	case gap != "":
		c.Gaps = append(c.Gaps, gap)
	case previous > c.Position:
		c.fault("got delivery after %d, want after %d", previous, c.Position)
	case previous < c.Position:
		c.Repeats++
	}
	c.Deliveries++
	for _, e := range all {
		if e.position > c.Position {
			if gap == "" && e.position != c.Position+1 {
				c.fault("got entry %d after %d", e.position, c.Position)
			}
			gap = ""
			c.Position = e.position
			c.Entries++
			fmt.Fprintf(c.digest, "%d %s\n", e.position, e.loc)
		}
	}
	c.Digest = hex.EncodeToString(c.digest.Sum(nil))
}

// fault records a fault. The caller must hold mu.
func (c *callback) fault(format string, args ...any) {
	if len(c.Faults) < 5 {
		c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
	}
}
