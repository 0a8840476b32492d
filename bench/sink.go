//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sinkHosts is how many addresses a sink has. One would not do, because a hub bounds the
// requests to one address.
const sinkHosts = 20

// A sink serves callbacks in a process of its own: every path that ends in a number. It
// confirms subscriptions and counts deliveries. It checks that each delivery begins where
// the last one ended.
type sink struct {
	bodies sync.Pool // of *bytes.Buffer

	mu        sync.Mutex
	moved     sync.Cond
	at        map[string]uint64 // RS-Position by path
	report    sinkReport
	latencies []uint32 // µs
}

// A sinkReport says what a sink has received.
type sinkReport struct {
	Verified   int
	Deliveries int
	Changes    int
	Disorder   int
	P50, P99   float64 // ms from the mark in a change until it was read
}

// serveSink serves the callbacks at sinkHosts addresses with l's port.
func serveSink(l net.Listener) error {
	s := &sink{at: map[string]uint64{}}
	s.bodies.New = func() any { return new(bytes.Buffer) }
	s.moved.L = &s.mu
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", s.tell)
	mux.HandleFunc("GET /callback/{n}", s.verify)
	mux.HandleFunc("POST /callback/{n}", s.take)
	failed := make(chan error, 1)
	for i := range sinkHosts {
		also := l
		if i > 0 {
			var err error
			if also, err = net.Listen("tcp", sinkHost(l.Addr().String(), i)); err != nil {
				return err
			}
		}
		go func() { failed <- http.Serve(also, mux) }()
	}
	return <-failed
}

// sinkHost returns the i-th address of a sink whose first one is addr.
func sinkHost(addr string, i int) string {
	_, port, _ := strings.Cut(addr, ":")
	return fmt.Sprintf("127.0.0.%d:%s", 1+i%sinkHosts, port)
}

// callbackURL returns the i-th callback of a sink.
func callbackURL(addr string, i int) string {
	return fmt.Sprintf("http://%s/callback/%d", sinkHost(addr, i), i)
}

func (s *sink) verify(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.report.Verified++
	s.moved.Broadcast()
	s.mu.Unlock()
	_, _ = io.WriteString(w, r.FormValue("hub.challenge")) // the hub may be gone
}

var urlStart = []byte("<url>")

func (s *sink) take(w http.ResponseWriter, r *http.Request) {
	b := s.bodies.Get().(*bytes.Buffer)
	defer s.bodies.Put(b)
	b.Reset()
	if _, err := b.ReadFrom(r.Body); err != nil {
		return
	}
	now := time.Now().UnixNano()
	changes := bytes.Count(b.Bytes(), urlStart)
	previous, err1 := strconv.ParseUint(r.Header.Get("RS-Previous"), 10, 64)
	position, err2 := strconv.ParseUint(r.Header.Get("RS-Position"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, told := s.at[r.URL.Path]; err1 != nil || err2 != nil || told && last != previous {
		s.report.Disorder++
	}
	s.at[r.URL.Path] = position
	for rest := b.Bytes(); ; {
		_, at, more, ok := readMark(rest)
		if !ok {
			break
		}
		s.latencies = append(s.latencies, uint32((now-at)/1000))
		rest = more
	}
	s.report.Deliveries++
	s.report.Changes += changes
	s.moved.Broadcast()
	w.WriteHeader(http.StatusNoContent)
}

// tell answers with the report when the sink has received as much as the query asks for:
// verified subscriptions, or changes. With reset, it drops the latencies of before.
func (s *sink) tell(w http.ResponseWriter, r *http.Request) {
	verified, _ := strconv.Atoi(r.FormValue("verified"))
	changes, _ := strconv.Atoi(r.FormValue("changes"))
	late := time.AfterFunc(answerTime, s.moved.Broadcast)
	defer late.Stop()
	begin := time.Now()
	s.mu.Lock()
	for (s.report.Verified < verified || s.report.Changes < changes) && time.Since(begin) < answerTime {
		s.moved.Wait()
	}
	all := s.report
	slices.Sort(s.latencies)
	all.P50, all.P99 = quantile(s.latencies, .5)/1000, quantile(s.latencies, .99)/1000
	if r.FormValue("reset") != "" {
		s.latencies = nil
	}
	s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(all) // the bench may be gone
}
