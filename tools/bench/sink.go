//go:build linux

package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sinkHosts is the number of addresses of a sink. It has several because a hub bounds the requests
// to one address.
const sinkHosts = 20

// A sink serves callbacks in a separate process. It confirms subscriptions, counts deliveries, and
// checks that each delivery starts where the previous one ended.
type sink struct {
	mu     sync.Mutex
	moved  sync.Cond
	at     map[string]uint64 // RS-Position by path
	report sinkReport
}

// A sinkReport has the counts of a sink.
type sinkReport struct{ Verified, Deliveries, Changes, Disorder int }

// newSink returns a sink, and also serves it at its other addresses with the port of addr.
func newSink(addr string) (http.Handler, error) {
	s := &sink{at: map[string]uint64{}}
	s.moved.L = &s.mu
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", s.tell)
	mux.HandleFunc("GET /callback/{n}", s.verify)
	mux.HandleFunc("POST /callback/{n}", s.take)
	for i := 1; i < sinkHosts; i++ {
		l, err := net.Listen("tcp", sinkHost(addr, i))
		if err != nil {
			return nil, err
		}
		go func() { _ = http.Serve(l, mux) }() // runs until the process exits
	}
	return mux, nil
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
	_, _ = io.WriteString(w, r.FormValue("hub.challenge")) // an error means that the hub closed the connection
}

func (s *sink) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	previous, err1 := strconv.ParseUint(r.Header.Get("RS-Previous"), 10, 64)
	position, err2 := strconv.ParseUint(r.Header.Get("RS-Position"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, told := s.at[r.URL.Path]; err1 != nil || err2 != nil || told && last != previous {
		s.report.Disorder++
	}
	s.at[r.URL.Path] = position
	s.report.Deliveries++
	s.report.Changes += bytes.Count(body, []byte("<url>"))
	s.moved.Broadcast()
	w.WriteHeader(http.StatusNoContent)
}

// tell responds with the report when the sink has received the requested number of verifications or
// changes, or after answerTime.
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
	report := s.report
	s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(report) // an error means that the bench closed the connection
}

// A callbackFloor makes deliveries with the minimum work with net/http: a goroutine for each
// callback POSTs what is posted to the floor, one body after the other. It stores nothing and
// handles no failures.
type callbackFloor struct {
	client *http.Client
	secret string
	queues []chan []byte
}

// newCallbackFloor returns a floor that calls all callbacks of the sink at addr, and signs with the
// secret unless it is empty.
func newCallbackFloor(addr, secret string) (http.Handler, error) {
	f := &callbackFloor{secret: secret, client: &http.Client{Timeout: answerTime, Transport: &http.Transport{
		MaxIdleConnsPerHost: 8, DisableCompression: true, ReadBufferSize: 1 << 10, WriteBufferSize: 4 << 10,
	}}}
	for i := range sinkHosts {
		u, err := url.Parse(callbackURL(addr, i))
		if err != nil {
			return nil, err
		}
		queue := make(chan []byte, 1000)
		f.queues = append(f.queues, queue)
		go func() { // runs until the process exits
			for position := 0; ; position++ {
				if err := f.post(u, <-queue, position); err != nil {
					fmt.Fprintln(os.Stderr, "floor:", err)
				}
			}
		}()
	}
	return f, nil
}

func (f *callbackFloor) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return // the bench notices by itself
	}
	for _, queue := range f.queues {
		queue <- body
	}
}

// post sends one delivery with the same headers as a hub.
func (f *callbackFloor) post(u *url.URL, body []byte, position int) error {
	h := http.Header{
		"Content-Type": {"application/xml"},
		"User-Agent":   {"rshub (+https://github.com/rshub/rshub)"},
		"Link":         {`<http://127.0.0.1:12345/hub>; rel="hub", <http://127.0.0.1:12345/sets/bench/changes>; rel="self"`},
		"Rs-Position":  {strconv.Itoa(position + 1)},
		"Rs-Previous":  {strconv.Itoa(position)},
		"Rs-Attempt":   {"1"},
	}
	if f.secret != "" {
		mac := hmac.New(sha256.New, []byte(f.secret))
		mac.Write(body)
		h["X-Hub-Signature"] = []string{"sha256=" + hex.EncodeToString(mac.Sum(nil))}
	}
	resp, err := f.client.Do(&http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: h,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
