package hub

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/testutil/pipetest"
)

// serveOver sends a request, or a part of one, over a real connection and returns
// the answer. If cut is true, it then closes its writing side.
func serveOver(t *testing.T, h *Hub, request string, cut bool) (*http.Response, []byte) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { servePublish(h, w, r) }))
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if cut {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

// Nothing of a body that ends too early is accepted, not even its complete lines, because they
// are not a whole batch.
func TestTruncatedBody(t *testing.T) {
	for _, form := range []string{"application/xml", "application/json", "application/x-ndjson"} {
		t.Run(form, func(t *testing.T) {
			h, log := newHub(t, Options{})
			body := map[string]string{"application/xml": xmlOf(""), "application/json": jsonDoc, "application/x-ndjson": linesDoc}[form]
			resp, text := serveOver(t, h, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
				form, len(body)+1, body), true)
			if p := problemOf(t, resp.StatusCode, resp.Header, text); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "ends early") {
				t.Errorf("problem = %+v", p)
			}
			if got := locs(t, log, "demo"); len(got) > 0 {
				t.Errorf("the log has %d entries", len(got))
			}
		})
	}
}

// A publisher that stops sending gets an error, and nothing that it sent is accepted.
func TestStalledPublisher(t *testing.T) {
	for _, test := range []struct{ headers, sent string }{
		{"Content-Type: application/json", jsonDoc[:60]},
		{"Content-Type: application/json", ""},
		{"Content-Type: application/xml", xmlOf("")[:60]},
		{"Content-Type: application/x-ndjson", linesDoc},
		{"Content-Type: application/json\r\nContent-Encoding: gzip", ""}, // the gzip header is read early
	} {
		t.Run(test.headers, func(t *testing.T) {
			h, log := newHub(t, Options{ReadTimeout: 20 * time.Millisecond})
			resp, body := serveOver(t, h, "POST / HTTP/1.1\r\nHost: x\r\n"+test.headers+"\r\nContent-Length: 1000\r\n\r\n"+test.sent, false)
			if p := problemOf(t, resp.StatusCode, resp.Header, body); p.Status != http.StatusRequestTimeout {
				t.Errorf("problem = %+v", p)
			}
			if !resp.Close {
				t.Error("the connection was kept open after an incomplete request")
			}
			if got := locs(t, log, "demo"); len(got) > 0 {
				t.Errorf("the log has %d entries", len(got))
			}
		})
	}
}

// The deadline applies only to reading the body. It affects neither an append that takes
// longer nor the next request on the connection.
func TestReadDeadlineIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 20 * time.Millisecond
		h, log := newHub(t, Options{ReadTimeout: timeout})
		slow := true
		log.onAppend = func(context.Context, []changelog.Publish) error {
			if slow { // the append takes longer than the deadline, which no longer counts
				time.Sleep(3 * timeout)
				slow = false
			}
			return nil
		}
		var cancelled error
		var network pipetest.Network
		srv := &httptest.Server{Listener: network.Listen("hub:80"), Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			servePublish(h, w, r)
			cancelled = errors.Join(cancelled, r.Context().Err())
		})}}
		srv.Start()
		t.Cleanup(srv.Close)
		conn, err := network.Dial(t.Context(), "tcp", "hub:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		for i := range 2 {
			if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", len(linesDoc), linesDoc); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("response %d: %v", i+1, err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("response %d: got status %d, body %s (%v)", i+1, resp.StatusCode, body, err)
			}
			time.Sleep(3 * timeout) // idle for longer than the deadline
		}
		conn.Close()
		srv.Close() // waits for the handlers
		if cancelled != nil {
			t.Error(cancelled)
		}
	})
}

// A deadlineCounter counts how often a deadline is set.
type deadlineCounter struct {
	http.ResponseWriter
	n int
}

func (d *deadlineCounter) SetReadDeadline(time.Time) error { d.n++; return nil }

// After the end of the body only net/http reads, so no further deadline is set.
func TestNoDeadlineAfterEOF(t *testing.T) {
	d := &deadlineCounter{}
	r := &deadlineReader{ctx: t.Context(), ReadCloser: io.NopCloser(iotest.OneByteReader(strings.NewReader("ab"))), conn: http.NewResponseController(d)}
	for i, want := range []int{1, 2, 3, 3, 3} { // the third read finds the end
		if _, err := r.Read(make([]byte, 10)); (err == io.EOF) != (i >= 2) || d.n != want {
			t.Errorf("read %d: %v, %d deadlines, want %d", i+1, err, d.n, want)
		}
	}
}
