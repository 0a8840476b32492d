package cluster

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestNATSNeverAvailable starts hubs whose NATS refuses connections, and one whose NATS accepts
// them and never responds.
func TestNATSNeverAvailable(t *testing.T) {
	t.Parallel()
	const set = "unannounced"
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts connections for it
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	redis := hubtest.StartRedis(t)
	refusing := hubtest.FreePort(t)
	hubs := []*hubtest.Hub{hubtest.NewHub(t), hubtest.NewHub(t), hubtest.NewHub(t)}
	for i, nats := range []string{refusing, refusing, silent.Addr().String()} {
		h := hubs[i]
		h.Env = append(h.Env, "RSHUB_BASE_URL="+hubs[0].URL, "RSHUB_REDIS_URL=redis://"+redis.Addr, "RSHUB_NATS_URL=nats://"+nats)
		h.Process = hubtest.Start(t, h.Env, nil, hubtest.Rshub)
	}
	for _, h := range hubs {
		h.WaitRunning()
		if v := hubtest.GetReadiness(t, h); !v.Degraded() {
			t.Errorf("readiness = %+v", v)
		}
	}
	followers := followEverywhere(t, set, hubs...)
	// One publisher at a time: the other hubs see its changes only by polling.
	for _, i := range []int{0, 2} {
		h := hubs[i]
		p := hubtest.StartPublisher(t, h, set, "hub"+strconv.Itoa(i), true)
		hubtest.WaitPublishing(t, 20, p)
		p.Finish()
		all := hubtest.ReadMemory(t, h, set)
		p.Check(t, all)
		wantAll(t, followers, all)
	}
}

// TestNATSLameDuck moves the connections of two hubs from a NATS server in lame duck mode to
// one with a smaller max_payload. No announcement is too large for the new server, and
// followers receive everything that was published before, during and after the move.
func TestNATSLameDuck(t *testing.T) {
	t.Parallel()
	const set = "lameduck"
	old := &hubtest.NATSServer{Addr: hubtest.FreePort(t), Options: server.Options{LameDuckGracePeriod: 10 * time.Millisecond, LameDuckDuration: time.Second}}
	old.Start(t)
	t.Cleanup(old.Stop)
	next := &hubtest.NATSServer{Addr: hubtest.FreePort(t), Options: server.Options{MaxPayload: 2048}}
	redis := hubtest.StartRedis(t)
	hubs := []*hubtest.Hub{hubtest.NewHub(t), hubtest.NewHub(t)}
	for _, h := range hubs {
		h.Start(t, "RSHUB_BASE_URL="+hubs[0].URL, "RSHUB_REDIS_URL=redis://"+redis.Addr, "RSHUB_NATS_URL=nats://"+old.Addr+",nats://"+next.Addr)
		connected(t, h)
	}
	next.Start(t) // only now, so that both hubs are at the old server
	t.Cleanup(next.Stop)
	followers := followEverywhere(t, set, hubs...)
	publisher := hubtest.StartPublisher(t, hubs[0], set, "during", true)
	hubtest.WaitPublishing(t, 20, publisher)

	old.S.LameDuckShutdown()
	hubtest.Until(t, "both hubs are at the next server", func() error {
		if n := next.S.NumClients(); n != 2 {
			return fmt.Errorf("got %d clients, want 2", n)
		}
		return nil
	})
	for _, h := range hubs {
		connected(t, h)
	}
	hubtest.WaitPublishing(t, 20, publisher)
	publisher.Finish()

	counter := func(h *hubtest.Hub, name string) float64 {
		return hubtest.Metric(t, h, "rshub_announcements_"+name+"_total")
	}
	sent, lost, received := counter(hubs[0], "sent"), counter(hubs[0], "lost"), counter(hubs[1], "received")
	hubtest.Publish(t, hubs[0], set, hubtest.GeneratedLoad(t, 200).NDJSON(0, 200)) // about 20 KB compressed
	all := hubtest.ReadMemory(t, hubs[0], set)
	publisher.Check(t, all)
	wantAll(t, followers, all)
	if n := counter(hubs[0], "sent") - sent; n == 0 {
		t.Error("got no announcement of the large publish, want at least 1")
	}
	if n := counter(hubs[0], "lost") - lost; n != 0 {
		t.Errorf("got %v lost announcements after the move, want 0", n)
	}
	if n := counter(hubs[1], "received") - received; n == 0 {
		t.Error("the other hub received no announcement after the move, want at least 1")
	}
}

// connected waits until a hub has a connection to NATS.
func connected(t *testing.T, h *hubtest.Hub) {
	t.Helper()
	hubtest.Until(t, "the hub is connected to NATS", func() error {
		if c := hubtest.GetReadiness(t, h).Checks["nats"]; !c.OK {
			return errors.New(c.Reason)
		}
		return nil
	})
}
