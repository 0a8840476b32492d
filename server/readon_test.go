package server

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Who sends all of a large body before reading sees why it was refused.
func TestRefusedUpload(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	const size = 12 << 20
	for _, test := range []struct {
		method, path, header string
		status               int
	}{
		{"POST", "/sets/Bad/changes", "", 400},
		{"POST", "/hub", "Content-Type: application/x-www-form-urlencoded\r\n", 413},
		{"PUT", "/sets/demo", "", 413},
		{"POST", "/nowhere", "", 404},
	} {
		t.Run(test.path+fmt.Sprint(test.status), func(t *testing.T) {
			t.Parallel()
			conn := reach(t, "", strings.TrimPrefix(h.URL, "http://"), fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n", test.method, test.path, test.header, size))
			if _, err := io.CopyN(conn, zeros{}, size); err != nil {
				t.Fatalf("send the body: %v", err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("read the answer: %v", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != test.status {
				t.Errorf("status %d, want %d", resp.StatusCode, test.status)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}
