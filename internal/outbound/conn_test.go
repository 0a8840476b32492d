package outbound

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// inMemory is a body that fails the test if it is read into a buffer.
type inMemory struct {
	t testing.TB
	io.WriterTo
}

func (m inMemory) Read([]byte) (int, error) {
	m.t.Error("body was copied")
	return 0, io.EOF
}

func TestConnDoesNotCopyBody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := dial(&net.Dialer{})(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	want := bytes.Repeat([]byte("0123456789"), 1000)
	if n, err := io.Copy(c, io.LimitReader(inMemory{t, bytes.NewReader(want)}, int64(len(want)))); err != nil || n != int64(len(want)) {
		t.Fatal(n, err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(there, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("err = %v; got %.40q", err, got)
	}
}

// A body arrives unchanged, whatever its length and number of parts, with and without TLS.
func TestBodyArrivesUnchanged(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || int64(len(b)) != r.ContentLength {
			t.Errorf("read %d bytes of %d, err = %v", len(b), r.ContentLength, err)
		}
		_, _ = w.Write(b)
	})
	plain, secure := httptest.NewServer(echo), httptest.NewTLSServer(echo)
	defer plain.Close()
	defer secure.Close()
	client := New(Options{Allow: loopback, CAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
	defer client.Close()
	random := rand.NewChaCha8([32]byte{})
	for _, sizes := range [][]int{{10}, {3000}, {4000}, {30_000}, {400, 100_000, 12}, {400, 0, 3000, 1 << 20, 70_000, 12}} {
		var body [][]byte
		for _, n := range sizes {
			part := make([]byte, n)
			_, _ = random.Read(part)
			body = append(body, part)
		}
		want := bytes.Join(body, nil)
		for _, url := range []string{plain.URL, secure.URL} {
			for range 2 { // the first request must not use the parts up
				r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, NewBody(body))
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = int64(len(want))
				resp, err := client.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%v to %s: err = %v, got %d bytes", sizes, url, err, len(got))
				}
				resp.Body.Close()
			}
		}
	}
}
