package cluster

import (
	"net"
	"strconv"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestNATSNeverThere starts hubs whose NATS refuses connections, and one whose
// NATS takes them and says nothing.
func TestNATSNeverThere(t *testing.T) {
	t.Parallel()
	const set = "unannounced"
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections for it
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
		h.Running()
		if v := hubtest.Ready(t, h); !v.Degraded() {
			t.Errorf("readyz says %+v", v)
		}
	}
	followers := everybody(t, set, hubs...)
	// One publisher at a time: what the other hubs see of it, only the ticker
	// shows them.
	for _, i := range []int{0, 2} {
		h := hubs[i]
		p := hubtest.Publishing(t, h, set, "hub"+strconv.Itoa(i), true)
		hubtest.GoesOn(t, 20, p)
		p.Finish()
		all := hubtest.Memory(t, h, set)
		p.Check(t, all)
		allSaw(t, followers, all)
	}
}
