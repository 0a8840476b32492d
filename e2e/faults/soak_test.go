package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

const (
	soakListSize = 100
	soakKeeps    = 1000 // changes of a set that retention leaves, at least
)

// Sets of the soak. The trimmed one gets most changes; the reborn one is deleted at
// checkpoints.
var soakSets = []string{"steady", "trimmed", "reborn"}

// A soak is a cluster under load, to which faults happen.
type soak struct {
	*stage
	load    *hubtest.Load // of which a batch is a part
	ledgers map[string]*ledger
	sources []*source
	readers []*reader
	gate    sync.RWMutex       // who publishes holds it shared
	closed  map[string]string  // the SHA-256 of each closed list, by its path
	used    map[string]float64 // by the third hub, at the most
	grown   time.Time          // from when on it must not use more

	ctx  context.Context // of all who publish and follow
	work sync.WaitGroup  // their goroutines
}

// TestSoak makes faults at random, under load, for RSHUB_SOAK (a duration), and at times lets
// everybody catch up and compares what they have. RSHUB_E2E_SEED repeats its choices. Without
// RSHUB_SOAK each kind of fault happens at least once, for a moment.
func TestSoak(t *testing.T) {
	usual, most, lasts := uint64(1), 1500*time.Millisecond, time.Duration(0)
	if text := os.Getenv("RSHUB_SOAK"); text == "" {
		t.Parallel()
	} else {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("RSHUB_SOAK: %v", err)
		}
		usual, most = rand.Uint64N(1e6), max(most, min(lasts/20, 20*time.Second))
	}
	s := newSoak(t, hubtest.Seed(t, usual), most)
	s.grown = time.Now().Add(max(lasts/3, 2*time.Minute))
	for end := time.Now().Add(lasts); time.Now().Before(end) || !s.dealt(); {
		for range 1 + s.r.IntN(3) {
			s.round()
			s.followed()
		}
		s.checkpoint()
	}
	s.overrun()
	s.checkpoint()
	s.Logf("the third hub used at the most %v", s.used)
}

// newSoak starts a cluster of three hubs, who follow, and sources.
func newSoak(t *testing.T, seed uint64, most time.Duration) *soak {
	st := newStage(t, seed, 3, most, clusterFaults, append(slices.Clone(hubtest.CallbackEnv), fmt.Sprintf("RSHUB_CHANGELIST_SIZE=%d", soakListSize),
		fmt.Sprintf("RSHUB_RETENTION_COUNT=%d", soakKeeps), "RSHUB_HEARTBEAT=2s", "RSHUB_WRITE_TIMEOUT=3s", "RSHUB_CALLBACK_TIMEOUT=2s")...)
	s := &soak{stage: st, load: hubtest.GeneratedLoad(t, 5000), ledgers: map[string]*ledger{}, closed: map[string]string{}, used: map[string]float64{}}
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	s.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
		s.work.Wait()
	})
	for i, set := range soakSets {
		s.ledgers[set] = &ledger{}
		s.ledgers[set].settle(0)
		for j, way := range []string{hubtest.ByWebSocket, hubtest.ByXML, hubtest.ByEvents, hubtest.ByPolling} {
			s.read(way, set, "", "")
			if j == i {
				s.read(way, set, "updated", "")
				s.read(way, set, "", "slow")
				s.read([]string{hubtest.ByEvents, hubtest.ByPolling, hubtest.ByXML}[i], set, "", "restless")
			}
			if set == "trimmed" {
				s.read(way, set, "", "sleeping")
			}
		}
	}
	s.call(server.URL, mux)
	for i := range 3 {
		s.publish(i)
	}
	return s
}

// hub returns one of the hubs.
func (s *soak) hub(r *rand.Rand) *hubtest.Hub { return s.Hubs[r.IntN(len(s.Hubs))] }

// followed waits until those who follow as fast as they can have what was acknowledged up to
// now. Publishing goes on.
func (s *soak) followed() {
	heads := map[string]uint64{}
	for set, l := range s.ledgers {
		heads[set] = l.last.Load()
	}
	s.until("readers have caught up", func() error {
		for _, r := range s.readers {
			if at := r.position(); r.manner == "" && r.change == "" && at < heads[r.Set] {
				return fmt.Errorf("%s is at %d, not at %d", r.name(), at, heads[r.Set])
			}
		}
		return nil
	})
}

// overrun has retention pass every reader that sleeps, at least once. What no minute's tick
// has done by now, the start of a hub does.
func (s *soak) overrun() {
	asleep := func(what string, over func(r *reader) bool) {
		s.until(what, func() error {
			for _, r := range s.readers {
				if r.manner == "sleeping" && r.overran.Load() == 0 && !over(r) {
					return fmt.Errorf("%s is at %s, and the set at %d", r.name(), r.CurrentCursor(), s.ledgers[r.Set].last.Load())
				}
			}
			return nil
		})
	}
	asleep("enough is published for retention", func(r *reader) bool {
		at := r.position()
		return at > 0 && s.ledgers[r.Set].last.Load() >= at+soakKeeps+2*soakListSize
	})
	s.happen(s.fault("hub drained"))
	asleep("who was overrun is told so", func(*reader) bool { return false })
}
