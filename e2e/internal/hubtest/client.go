package hubtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// Client keeps no connections: after a hub is killed, some would look alive. It does not send
// Connection: close either: net/http closes such a connection so early that a client which is
// still sending misses the response.
var Client = &http.Client{
	Transport: &http.Transport{MaxIdleConnsPerHost: -1},
	Timeout:   2 * time.Minute,
}

// A Problem is a problem document (RFC 9457).
type Problem struct {
	Type, Title, Detail, Loc string
	Status, Entry, Line      int
	Accepted                 *struct {
		Count, Line int
		Cursor      string
	}
}

// A Receipt is the response to a publisher.
type Receipt struct {
	Set, First, Cursor string
	Count, Line        int
	Replayed           bool
}

// Request makes a request with headers of the form "Name: value".
func Request(method, url string, body io.Reader, headers ...string) (*trial.Response, error) {
	return trial.Exchange(Client, method, url, body, headers...)
}

// Must makes a request, and fails the test unless the response has the status.
func Must(t testing.TB, status int, method, url string, body []byte, headers ...string) *trial.Response {
	t.Helper()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	a, err := Request(method, url, r, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	if a.Status != status {
		t.Fatalf("%s %s = %d, want %d: %s", method, url, a.Status, status, trial.Tail(string(a.Body)))
	}
	return a
}

// WaitOK waits until a URL returns status 200.
func WaitOK(t testing.TB, url string) {
	t.Helper()
	Until(t, url+" returns status 200", func() error {
		a, err := Request(http.MethodGet, url, nil)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%d: %s", a.Status, trial.Tail(string(a.Body)))
		}
		return err
	})
}

// Get decodes a JSON response.
func Get[T any](t testing.TB, url string, headers ...string) (v T) {
	t.Helper()
	Decode(t, Must(t, http.StatusOK, http.MethodGet, url, nil, append(headers, "Accept: application/json")...).Body, &v)
	return v
}

// Decode decodes JSON, or fails the test.
func Decode(t testing.TB, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", trial.Tail(string(b)), err)
	}
}

// ProblemOf decodes a problem document, and returns an error if the response is not one.
func ProblemOf(a *trial.Response) (p Problem, err error) {
	if ct := a.Header.Get("Content-Type"); ct != "application/problem+json" {
		return p, fmt.Errorf("response with status %d has Content-Type %q, want application/problem+json: %s", a.Status, ct, trial.Tail(string(a.Body)))
	}
	if err := json.Unmarshal(a.Body, &p); err != nil {
		return p, err
	}
	if p.Status != a.Status || p.Title == "" || p.Detail == "" || !strings.HasPrefix(p.Type, "https://") {
		return p, fmt.Errorf("response with status %d has an incomplete problem document: %s", a.Status, a.Body)
	}
	return p, nil
}

// Publish publishes NDJSON and returns the receipt.
func Publish(t testing.TB, h *Hub, set string, lines []byte, headers ...string) (r Receipt) {
	t.Helper()
	a := Must(t, http.StatusOK, http.MethodPost, h.Topic(set), lines, append(headers, "Content-Type: application/x-ndjson")...)
	Decode(t, a.Body, &r)
	return r
}

// Change returns a change as a line of NDJSON.
func Change(name string) []byte {
	return []byte(`{"loc":"https://example.org/` + name + `","change":"updated"}` + "\n")
}

// Changes returns n changes as lines of NDJSON.
func Changes(prefix string, n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, Change(fmt.Sprintf("%s/%d", prefix, i+1))...)
	}
	return b
}

// Head returns the cursor of the newest change of a set according to the list of sets, or "" if
// the set does not exist.
func Head(t testing.TB, h *Hub, set string) string {
	t.Helper()
	v := Get[struct{ Sets []struct{ Set, Head string } }](t, h.URL+"/sets")
	for _, s := range v.Sets {
		if s.Set == set {
			return s.Head
		}
	}
	return ""
}

// Content types of published changes.
const (
	AsXML    = "Content-Type: application/xml"
	AsJSON   = "Content-Type: application/json"
	AsNDJSON = "Content-Type: application/x-ndjson"
)
