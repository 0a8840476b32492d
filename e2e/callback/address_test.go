package callback

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestCallbackAddresses requests callbacks at forbidden addresses of this machine in every
// spelling. Each is refused, or denied later, and the hub connects to none.
func TestCallbackAddresses(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skipf("no second loopback address: %v", err)
	} else {
		_ = l.Close()
	}
	// Only the address of the witness is allowed.
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.2/32", "RSHUB_LEASE_MIN=1s")
	tr := hubtest.NewTrial(t, h)
	tr.Server = trial.Serve(t, "127.0.0.2:0", nil)
	trap := newTrap(t)

	tp := tr.Topic()
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.000.000.001", "127.0.0.1.",
		"0", "0.0.0.0", "0x0", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:0:127.0.0.1]", "[::127.0.0.1]", "[::7f00:1]",
		"[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[::1%25lo]", "localhost", "LOCALHOST", "localhost.", "ip6-localhost",
		"localhost.localdomain", "%6c%6f%63%61%6c%68%6f%73%74", "127%2e0%2e0%2e1", "%31%32%37.0.0.1", "①②⑦.⓪.⓪.①", "127。0。0。1", "127.0.0.1%00.example.org", "user@127.0.0.1",
		"127.0.0.2@127.0.0.1", "127.0.0.1\\@127.0.0.2", "127.0.0.1#@127.0.0.2", "127.0.0.2,127.0.0.1", "127.0.0.3", "169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal",
		"10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[ff02::1]", "[fc00::1]", "[fec0::1]",
	} {
		callback := fmt.Sprintf("http://%s:%s/", host, trap.port)
		if a := tr.Post(trial.Form("subscribe", callback, tp.URL).Encode()); a.Status != http.StatusAccepted && a.Status/100 != 4 {
			t.Errorf("subscribe %s = %d, want 202 or 4xx: %s", callback, a.Status, a.Body)
		}
	}
	// An allowed callback may not redirect to a forbidden address.
	for _, to := range []string{"http://127.0.0.1:" + trap.port + "/", "http://localhost:" + trap.port + "/", "http://[::1]:" + trap.port + "/", "http://169.254.169.254/latest/meta-data/"} {
		c := tr.Callback("")
		c.Respond(trial.Verification, trial.Status(http.StatusFound, "Location: "+to))
		tr.MustVerify("subscribe", c, tp)
		d := tr.Callback("")
		tr.Subscribe(d, tp)
		d.Respond(trial.Delivery, trial.Status(http.StatusTemporaryRedirect, "Location: "+to), trial.Status(http.StatusOK))
		mark := tr.Publish(tp)
		tr.WaitDelivery(d, mark)
		if d.CountDeliveries(mark) < 2 {
			t.Errorf("delivery with a redirect to %s was not retried", to)
		}
	}
	// The hub verifies and delivers, so it had time for all earlier requests.
	c := tr.Callback("")
	tr.Subscribe(c, tp)
	tr.PublishRounds(tp, c, 5)
	for _, s := range hubtest.SubscriptionsOf(t, h, tp.Set) {
		if !strings.HasPrefix(s.Callback, tr.Server.URL+"/") {
			t.Errorf("callback %s is subscribed, want none outside of the witness", s.Callback)
		}
	}
	h.Stop(t)
	if n := trap.connections.Load(); n > 0 {
		t.Errorf("got %d connections to forbidden addresses, want 0", n)
	}
}

// A trap counts the connections to a port on the addresses of this machine on which it can
// listen, except 127.0.0.2.
type trap struct {
	port        string
	connections atomic.Int64
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	tr := &trap{}
	for i, host := range []string{"127.0.0.1", "127.0.0.3", "127.255.255.254", "::1"} {
		port := "0"
		if i > 0 {
			port = tr.port
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			if i == 0 {
				t.Fatal(err)
			}
			t.Logf("cannot listen on %s: %v", host, err)
			continue
		}
		if i == 0 {
			_, tr.port, _ = net.SplitHostPort(l.Addr().String())
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				tr.connections.Add(1)
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() {
			_ = l.Close()
			<-done
		})
	}
	return tr
}
