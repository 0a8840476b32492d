package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

const (
	soakListSize = 100
	moment       = 1500 * time.Millisecond // that a fault of the short form lasts, at most
)

// Sets of the soak. The trimmed one gets most changes; the reborn one is deleted
// at checkpoints.
var soakSets = []string{"steady", "trimmed", "reborn"}

// A soak is a cluster under load, to which faults happen.
type soak struct {
	*testing.T
	seed    uint64
	rand    *rand.Rand
	c       *hubtest.Cluster
	links   map[string]*hubtest.Proxy // "hub0-redis", "hub0-nats", …
	dir     string                    // of all data and logs
	begun   time.Time
	most    time.Duration // that a fault lasts
	keeps   uint64        // how many changes of a set retention leaves, at least
	ledgers map[string]*ledger
	sources []*source
	readers []*reader
	called  []*called    // those of the readers that the hubs call
	gate    sync.RWMutex // who publishes holds it shared
	stop    chan struct{}
	report  soakReport
	deck    []string                // kinds of faults that are still to come before one comes again
	closed  map[string][32]byte     // what a closed list was, by its path
	ending  map[*hubtest.Hub]string // how a fault ends a hub: "killed" or "drained"
}

// TestSoak makes faults at random, under load, for RSHUB_SOAK (a duration), and
// at times lets everybody catch up and compares what they have. RSHUB_SOAK_SEED
// repeats its choices. Without RSHUB_SOAK each kind of fault happens once, for
// a moment.
func TestSoak(t *testing.T) {
	text := os.Getenv("RSHUB_SOAK")
	seed := uint64(1)
	if text != "" {
		seed = rand.Uint64N(1e6)
	}
	if text := os.Getenv("RSHUB_SOAK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RSHUB_SOAK_SEED: %v", err)
		}
	}
	if text == "" {
		t.Parallel()
		s := startSoak(t, seed, moment, 300, 2)
		for !s.dealt() {
			for range 3 {
				s.round()
			}
			s.checkpoint()
		}
		s.overrun()
		s.checkpoint()
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("RSHUB_SOAK: %v", err)
	}
	t.Logf("make soak SOAK=%v SEED=%d", d, seed)
	for _, kind := range []string{"hub stopped", "NATS stopped"} {
		if !t.Run(kind+" for 20s", func(t *testing.T) {
			s := startSoak(t, seed, 20*time.Second, 2000, 4)
			s.wait(2 * time.Second)
			f := s.fault(kind)
			f.lasts = 20 * time.Second
			s.happen(f)
			s.checkpoint()
		}) {
			return
		}
	}
	t.Run("random", func(t *testing.T) {
		s := startSoak(t, seed, max(moment, min(d/20, 20*time.Second)), 2000, 5)
		s.checkpoint()
		for end := time.Now().Add(d); time.Now().Before(end) || !s.dealt(); {
			for range 1 + s.rand.IntN(3) {
				s.round()
			}
			s.checkpoint()
		}
		s.overrun()
		s.checkpoint()
		if d >= 4*time.Minute {
			if err := grew(s.report.usage, len(s.readers)+len(s.sources)); err != nil {
				s.Errorf("hub 2 grew: %v", err)
			}
		}
	})
}

func startSoak(t *testing.T, seed uint64, most time.Duration, keeps uint64, sources int) *soak {
	dir, err := os.MkdirTemp("", "rshub-soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, in %s", seed, dir)
	s := &soak{T: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), dir: dir, begun: time.Now(), most: most, keeps: keeps,
		links: map[string]*hubtest.Proxy{}, ledgers: map[string]*ledger{}, stop: make(chan struct{}), closed: map[string][32]byte{}, ending: map[*hubtest.Hub]string{}}
	t.Cleanup(s.finish)
	s.c = &hubtest.Cluster{NATS: hubtest.StartNATS(s), Redis: &hubtest.RedisServer{Addr: hubtest.FreePort(s), Dir: s.TempDir()}}
	s.c.Redis.Start(s)
	base := ""
	for i := range 3 {
		redis, nats := hubtest.StartProxy(s, s.c.Redis.Addr), hubtest.StartProxy(s, s.c.NATS.Addr)
		s.links[fmt.Sprintf("hub%d-redis", i)], s.links[fmt.Sprintf("hub%d-nats", i)] = redis, nats
		env := append(slices.Clone(hubtest.Callable), fmt.Sprintf("RSHUB_CHANGELIST_SIZE=%d", soakListSize),
			fmt.Sprintf("RSHUB_RETENTION_COUNT=%d", keeps), "RSHUB_HEARTBEAT=2s", "RSHUB_WRITE_TIMEOUT=3s", "RSHUB_CALLBACK_TIMEOUT=2s")
		s.c.Hubs = append(s.c.Hubs, hubtest.JoinCluster(s, base, redis.Addr(), nats.Addr(), env...))
		base = s.c.Hubs[0].URL
	}
	for i, set := range soakSets {
		s.ledgers[set] = &ledger{}
		for j, way := range []string{hubtest.ByWebSocket, hubtest.ByXML, hubtest.ByEvents, hubtest.ByPolling} {
			s.read(way, set, "", "")
			if j == i%4 {
				s.read(way, set, "updated", "")
				s.read(way, set, "", "slow")
				s.read([]string{hubtest.ByEvents, hubtest.ByPolling, hubtest.ByXML}[i], set, "", "restless")
			}
			if set == "trimmed" {
				s.read(way, set, "", "sleeping")
			}
		}
	}
	s.call()
	for i := range sources {
		s.publish(i)
	}
	return s
}

// TempDir makes a directory in that of the soak, so that a soak which fails
// keeps what its programs wrote.
func (s *soak) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		s.Fatal(err)
	}
	return dir
}

// finish ends publishers and followers, prints the report, and removes what was
// written unless that shows why the soak failed.
func (s *soak) finish() {
	close(s.stop)
	for _, l := range s.links {
		l.Release()
	}
	for _, p := range s.sources {
		<-p.done
	}
	for _, r := range s.readers {
		r.cancel()
		<-r.done
		for _, fault := range r.Faults {
			s.Errorf("%s: %s", r.name(), fault)
		}
		s.report.delivered(r)
	}
	for _, c := range s.called {
		s.report.called(c)
	}
	if !s.Failed() {
		if err := os.RemoveAll(s.dir); err != nil {
			s.Error(err)
		}
	}
	s.report.print(s)
}

// wait lets time pass, or less when somebody has found something wrong.
func (s *soak) wait(d time.Duration) {
	s.Helper()
	end := time.Now().Add(d)
	hubtest.Until(s, "time passes", func() error {
		s.healthy()
		if time.Now().Before(end) {
			return errors.New("not yet")
		}
		return nil
	})
}

// healthy fails the soak when anybody has found something wrong, or a hub ended
// without being told to.
func (s *soak) healthy() {
	s.Helper()
	for i, h := range s.c.Hubs {
		if h.Ended() && s.ending[h] == "" {
			s.Fatalf("hub %d ended by itself: %v", i, h.Cmd.ProcessState)
		}
	}
	for _, r := range s.readers {
		r.Mu.Lock()
		faults := r.Faults
		r.Mu.Unlock()
		if len(faults) > 0 {
			s.Fatalf("%s: %q", r.name(), faults)
		}
	}
	for _, p := range s.sources {
		if fault := p.fault.Load(); fault != nil {
			s.Fatalf("publisher %d: %s", p.number, *fault)
		}
	}
}

// state is what a hub says of a set.
func state(h *hubtest.Hub, set string) (v struct{ Begin, Floor, Head string }, err error) {
	a, err := hubtest.Request("GET", h.URL+"/sets/"+set, nil)
	if err == nil && a.Status != 200 {
		err = fmt.Errorf("%d: %s", a.Status, a.Body)
	}
	if err == nil {
		err = json.Unmarshal(a.Body, &v)
	}
	return v, err
}
