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

// TestCallbackAddresses asks a hub in every spelling to call this machine, which
// it may not. It is refused, or denied later; nobody is contacted.
func TestCallbackAddresses(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skipf("this machine has no second loopback address: %v", err)
	} else {
		_ = l.Close()
	}
	// Only the witness may be called.
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.2/32", "RSHUB_LEASE_MIN=1s")
	tr := hubtest.NewTrial(t, h)
	tr.Server = trial.Serve(t, "127.0.0.2:0", nil)
	trap := setTrap(t)

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
			t.Errorf("%s is answered %d: %s", callback, a.Status, a.Body)
		}
	}
	// Where a callback may lead says nothing about where it may redirect to.
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
			t.Errorf("a redirect to %s counts as success", to)
		}
	}
	// The hub verifies and delivers, so it has had time for all that came before.
	c := tr.Callback("")
	tr.Subscribe(c, tp)
	tr.PublishRounds(tp, c, 5)
	for _, s := range hubtest.SubscriptionsOf(t, h, tp.Set) {
		if !strings.HasPrefix(s.Callback, tr.Server.URL+"/") {
			t.Errorf("%s is subscribed", s.Callback)
		}
	}
	h.Stop(t)
	if n := trap.connections.Load(); n > 0 {
		t.Errorf("the hub connected %d times", n)
	}
}

// A trap counts the connections to a port of all addresses of this machine that
// it can listen on, but for 127.0.0.2.
type trap struct {
	port        string
	connections atomic.Int64
}

func setTrap(t *testing.T) *trap {
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
			t.Logf("nothing listens on %s: %v", host, err)
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
