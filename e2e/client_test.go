package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// client keeps no connections: a hub that is killed would else leave some that
// look alive. It does not ask to close them either: net/http cuts such a
// connection off so soon that a client which still sends sees no answer.
var client = &http.Client{
	Transport: &http.Transport{MaxIdleConnsPerHost: -1},
	Timeout:   2 * time.Minute,
}

// An answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// A problem is a problem document (RFC 9457).
type problem struct {
	Type, Title, Detail, Loc string
	Status, Entry, Line      int
	Accepted                 *struct {
		Count, Line int
		Cursor      string
	}
}

// A receipt is what a publisher is told.
type receipt struct {
	Set, First, Cursor string
	Count, Line        int
	Replayed           bool
}

// request makes a request with headers "Name: value".
func request(method, url string, body io.Reader, headers ...string) (*answer, error) {
	return requestBy(client, method, url, body, headers...)
}

// requestBy is request with another client.
func requestBy(client *http.Client, method, url string, body io.Reader, headers ...string) (*answer, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return &answer{resp.StatusCode, resp.Header, b}, err
}

// must makes a request that is answered with a status.
func must(t testing.TB, status int, method, url string, body []byte, headers ...string) *answer {
	t.Helper()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	a, err := request(method, url, r, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	if a.status != status {
		t.Fatalf("%s %s is answered %d, not %d: %s", method, url, a.status, status, tail(string(a.body)))
	}
	return a
}

// get reads a JSON answer.
func get[T any](t testing.TB, url string, headers ...string) (v T) {
	t.Helper()
	decode(t, must(t, http.StatusOK, http.MethodGet, url, nil, append(headers, "Accept: application/json")...).body, &v)
	return v
}

func decode(t testing.TB, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", tail(string(b)), err)
	}
}

// problem reads an answer that has to be a problem document.
func (a *answer) problem() (p problem, err error) {
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		return p, fmt.Errorf("status %d has Content-Type %q: %s", a.status, ct, tail(string(a.body)))
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		return p, err
	}
	if p.Status != a.status || p.Title == "" || p.Detail == "" || !strings.HasPrefix(p.Type, "https://") {
		return p, fmt.Errorf("status %d has an incomplete problem: %s", a.status, a.body)
	}
	return p, nil
}

// publish publishes NDJSON and returns what the hub says.
func publish(t testing.TB, h *hub, set string, lines []byte, headers ...string) (r receipt) {
	t.Helper()
	a := must(t, http.StatusOK, http.MethodPost, h.topic(set), lines, append(headers, "Content-Type: application/x-ndjson")...)
	decode(t, a.body, &r)
	return r
}

// change is one change as a line of NDJSON.
func change(name string) []byte {
	return []byte(`{"loc":"https://example.org/` + name + `","change":"updated"}` + "\n")
}

// changes are n of them.
func changes(prefix string, n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, change(fmt.Sprintf("%s/%d", prefix, i+1))...)
	}
	return b
}

// head is the cursor of the newest change, as the list of sets has it, empty
// when there is no such set.
func head(t testing.TB, h *hub, set string) string {
	t.Helper()
	v := get[struct{ Sets []struct{ Set, Head string } }](t, h.url+"/sets")
	for _, s := range v.Sets {
		if s.Set == set {
			return s.Head
		}
	}
	return ""
}
