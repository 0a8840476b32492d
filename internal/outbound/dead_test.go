package outbound

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/testutil/pipetest"
)

// A blockedConn is a connection on which no data is transferred after dead is set, and which no end
// closes, for example because a firewall dropped its state.
type blockedConn struct {
	net.Conn
	dead *atomic.Bool
}

func (m blockedConn) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// An HTTP/2 connection on which no data arrives is closed. Requests that time out do not close it,
// unlike with HTTP/1.
func TestDeadConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pipetest.Network{}
		protocols := make(chan string, 10)
		s := &httptest.Server{Listener: network.Listen("127.0.0.1:443"), EnableHTTP2: true, Config: &http.Server{
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocols <- r.Proto }),
		}}
		s.StartTLS()
		defer s.Close()
		dead := new(atomic.Bool)
		cas := x509.NewCertPool()
		cas.AddCert(s.Certificate())
		client := New(Options{CAs: cas, Dial: func(ctx context.Context, n, address string) (net.Conn, error) {
			c, err := network.Dial(ctx, n, address)
			return blockedConn{c, dead}, err
		}})
		defer client.Close()
		get := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.RoundTrip(r)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		if err := get(); err != nil || <-protocols != "HTTP/2.0" {
			t.Fatal(err)
		}
		dead.Store(true)
		if get() == nil {
			t.Fatal("request succeeded on a dead connection")
		}
		dead = new(atomic.Bool) // the next connection is well
		time.Sleep(time.Minute)
		if err := get(); err != nil {
			t.Errorf("request after a minute: %v", err)
		}
	})
}
