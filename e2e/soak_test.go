package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
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
	c       *cluster
	links   map[string]*proxy // "hub0-redis", "hub0-nats", …
	dir     string            // of all data and logs
	begun   time.Time
	most    time.Duration // that a fault lasts
	keeps   uint64        // how many changes of a set retention leaves, at least
	ledgers map[string]*ledger
	sources []*source
	readers []*reader
	gate    sync.RWMutex // who publishes holds it shared
	stop    chan struct{}
	report  soakReport
	deck    []string            // kinds of faults that are still to come before one comes again
	closed  map[string][32]byte // what a closed list was, by its path
	ending  map[*hub]string     // how a fault ends a hub: "killed" or "drained"
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
		links: map[string]*proxy{}, ledgers: map[string]*ledger{}, stop: make(chan struct{}), closed: map[string][32]byte{}, ending: map[*hub]string{}}
	t.Cleanup(s.finish)
	s.c = &cluster{nats: startNATS(s), redis: &redisServer{addr: freePort(s), dir: s.TempDir()}}
	s.c.redis.start(s)
	base := ""
	for i := range 3 {
		redis, nats := startProxy(s, s.c.redis.addr), startProxy(s, s.c.nats.addr)
		s.links[fmt.Sprintf("hub%d-redis", i)], s.links[fmt.Sprintf("hub%d-nats", i)] = redis, nats
		s.c.hubs = append(s.c.hubs, joinCluster(s, base, redis.addr(), nats.addr(), fmt.Sprintf("RSHUB_CHANGELIST_SIZE=%d", soakListSize),
			fmt.Sprintf("RSHUB_RETENTION_COUNT=%d", keeps), "RSHUB_HEARTBEAT=2s", "RSHUB_WRITE_TIMEOUT=3s"))
		base = s.c.hubs[0].url
	}
	for i, set := range soakSets {
		s.ledgers[set] = &ledger{}
		for j, way := range []string{byWebSocket, byXML, byEvents, byPolling} {
			s.read(way, set, "", "")
			if j == i%4 {
				s.read(way, set, "updated", "")
				s.read(way, set, "", "slow")
				s.read([]string{byEvents, byPolling, byXML}[i], set, "", "restless")
			}
			if set == "trimmed" {
				s.read(way, set, "", "sleeping")
			}
		}
	}
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
		l.release()
	}
	for _, p := range s.sources {
		<-p.done
	}
	for _, r := range s.readers {
		r.cancel()
		<-r.done
		for _, fault := range r.faults {
			s.Errorf("%s: %s", r.name(), fault)
		}
		s.report.delivered(r)
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
	until(s, "time passes", func() error {
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
	for i, h := range s.c.hubs {
		if h.ended() && s.ending[h] == "" {
			s.Fatalf("hub %d ended by itself: %v", i, h.cmd.ProcessState)
		}
	}
	for _, r := range s.readers {
		r.mu.Lock()
		faults := r.faults
		r.mu.Unlock()
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
func state(h *hub, set string) (v struct{ Begin, Floor, Head string }, err error) {
	a, err := request("GET", h.url+"/sets/"+set, nil)
	if err == nil && a.status != 200 {
		err = fmt.Errorf("%d: %s", a.status, a.body)
	}
	if err == nil {
		err = json.Unmarshal(a.body, &v)
	}
	return v, err
}
