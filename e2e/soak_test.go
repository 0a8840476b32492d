package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Sets of the soak. The trimmed one gets most changes; the reborn one is deleted
// at checkpoints.
var soakSets = []string{"steady", "trimmed", "reborn"}

// A soak is a cluster under load, to which faults happen.
type soak struct {
	*testing.T
	seed     uint64
	rand     *rand.Rand
	c        *cluster
	links    map[string]*proxy // "hub0-redis", "hub0-nats", …
	dir      string            // of Redis, and of the logs when it fails
	begun    time.Time
	most     time.Duration // that a fault lasts
	ledgers  map[string]*ledger
	sources  []*source
	readers  []*reader
	gate     sync.RWMutex // who publishes holds it shared
	stop     chan struct{}
	report   report
	ran      []*process          // every process that was started
	deck     []int               // faults that are still to come before one comes again
	closed   map[string][32]byte // what a closed list was, by its path
	draining map[*hub]bool
}

// TestSoak makes faults at random, under load, for RSHUB_SOAK (a duration), and
// at times lets everybody catch up and compares what they have. RSHUB_SOAK_SEED
// repeats its choices. Without RSHUB_SOAK it does so for a moment.
func TestSoak(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("RSHUB_SOAK_SEED"), 10, 64)
	if err != nil {
		seed = 1
	}
	text := os.Getenv("RSHUB_SOAK")
	if text == "" {
		t.Parallel()
		s := startSoak(t, seed, 1200*time.Millisecond, 2)
		for range 2 {
			s.round()
			s.round()
			s.checkpoint()
		}
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("RSHUB_SOAK: %v", err)
	}
	if os.Getenv("RSHUB_SOAK_SEED") == "" {
		seed = rand.Uint64N(1e6)
	}
	for _, kind := range []string{"hub stopped", "NATS stopped"} {
		t.Run(kind+" for 20s", func(t *testing.T) {
			s := startSoak(t, seed, 20*time.Second, 4)
			s.wait(2 * time.Second)
			f := s.fault(kind)
			f.lasts = 20 * time.Second
			s.happen(f)
			s.checkpoint()
		})
	}
	t.Run("random", func(t *testing.T) {
		s := startSoak(t, seed, 20*time.Second, 5)
		s.checkpoint()
		for end := time.Now().Add(d); time.Now().Before(end); {
			for range 1 + s.rand.IntN(3) {
				s.round()
			}
			s.checkpoint()
		}
	})
}

func startSoak(t *testing.T, seed uint64, most time.Duration, sources int) *soak {
	dir, err := os.MkdirTemp("", "rshub-soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, in %s", seed, dir)
	s := &soak{T: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), dir: dir, begun: time.Now(), most: most,
		links: map[string]*proxy{}, ledgers: map[string]*ledger{}, stop: make(chan struct{}), closed: map[string][32]byte{}, draining: map[*hub]bool{}}
	t.Cleanup(s.finish)
	s.c = &cluster{nats: startNATS(t), redis: &redisServer{addr: freePort(t), dir: dir}}
	s.c.redis.start(t)
	s.ran = append(s.ran, s.c.redis.process)
	base := ""
	for i := range 3 {
		redis, nats := startProxy(t, s.c.redis.addr), startProxy(t, s.c.nats.addr)
		s.links[fmt.Sprintf("hub%d-redis", i)], s.links[fmt.Sprintf("hub%d-nats", i)] = redis, nats
		h := joinCluster(t, base, redis.addr(), nats.addr(), "RSHUB_CHANGELIST_SIZE=200", "RSHUB_RETENTION_COUNT=3000",
			"RSHUB_HEARTBEAT=2s", "RSHUB_WRITE_TIMEOUT=3s")
		s.c.hubs, s.ran = append(s.c.hubs, h), append(s.ran, h.process)
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
		}
	}
	for i := range sources {
		s.publish(i)
	}
	return s
}

// finish ends publishers and followers, prints the report, and keeps what shows
// why the soak failed.
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
	s.report.print(s)
	if !s.Failed() {
		_ = os.RemoveAll(s.dir)
		return
	}
	for i, p := range s.ran {
		name := filepath.Join(s.dir, fmt.Sprintf("%02d-%s.log", i, filepath.Base(p.name)))
		_ = os.WriteFile(name, []byte(p.stdout.String()+p.stderr.String()), 0o600)
	}
	s.Logf("FAIL: logs and the data of Redis are kept in %s", s.dir)
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

// healthy fails the soak when anybody has found something wrong.
func (s *soak) healthy() {
	s.Helper()
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
