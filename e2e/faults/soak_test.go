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
	soakKeeps    = 1000 // minimum number of changes that retention leaves
)

// soakSets are the sets of the soak. The trimmed set gets most changes; the reborn set is
// deleted at checkpoints.
var soakSets = []string{"steady", "trimmed", "reborn"}

// A soak is a cluster under load with random faults.
type soak struct {
	*harness
	load    *hubtest.Load // changes from which batches are taken
	ledgers map[string]*ledger
	sources []*source
	readers []*reader
	gate    sync.RWMutex       // publishers hold a read lock
	closed  map[string]string  // SHA-256 of each closed list by path
	used    map[string]float64 // maximum usage of the third hub
	grown   time.Time          // time after which the usage must not grow

	ctx  context.Context // context of publishers and readers
	work sync.WaitGroup  // their goroutines
}

// TestSoak injects random faults under load for RSHUB_SOAK (a duration). At checkpoints it lets
// all readers catch up, and compares what they received. RSHUB_E2E_SEED repeats its choices.
// Without RSHUB_SOAK each kind of fault happens at least once, for a moment.
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
	for end := time.Now().Add(lasts); time.Now().Before(end) || !s.allKindsHappened(); {
		for range 1 + s.r.IntN(3) {
			s.injectRound()
			s.waitReaders()
		}
		s.checkpoint()
	}
	s.overrunReaders()
	s.checkpoint()
	s.Logf("maximum usage of the third hub: %v", s.used)
}

// newSoak starts a cluster of three hubs, readers, and publishers.
func newSoak(t *testing.T, seed uint64, most time.Duration) *soak {
	st := newHarness(t, seed, 3, most, clusterFaults, append(slices.Clone(hubtest.CallbackEnv), fmt.Sprintf("RSHUB_CHANGELIST_SIZE=%d", soakListSize),
		fmt.Sprintf("RSHUB_RETENTION_COUNT=%d", soakKeeps), "RSHUB_HEARTBEAT=2s", "RSHUB_WRITE_TIMEOUT=3s", "RSHUB_CALLBACK_TIMEOUT=2s")...)
	s := &soak{harness: st, load: hubtest.GeneratedLoad(t, 5000), ledgers: map[string]*ledger{}, closed: map[string]string{}, used: map[string]float64{}}
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
		for j, way := range []string{hubtest.ByWebSocket, hubtest.ByXML, hubtest.ByEvents, hubtest.ByPolling, hubtest.BySession} {
			s.read(way, set, "", "")
			if j == i {
				s.read(way, set, "updated", "")
				s.read(way, set, "", "slow")
				s.read([]string{hubtest.ByEvents, hubtest.ByPolling, hubtest.ByXML}[i], set, "", "reconnecting")
			}
			if set == "trimmed" {
				s.read(way, set, "", "sleeping")
			}
		}
	}
	s.addCallbacks(server.URL, mux)
	for i := range 3 {
		s.publish(i)
	}
	return s
}

// hub returns a random hub.
func (s *soak) hub(r *rand.Rand) *hubtest.Hub { return s.Hubs[r.IntN(len(s.Hubs))] }

// waitReaders waits until all readers that are not slowed down have the changes acknowledged so
// far. Publishing continues.
func (s *soak) waitReaders() {
	heads := map[string]uint64{}
	for set, l := range s.ledgers {
		heads[set] = l.last.Load()
	}
	s.until("readers have caught up", func() error {
		for _, r := range s.readers {
			if at := r.position(); r.behavior == "" && r.change == "" && at < heads[r.Set] {
				return fmt.Errorf("%s: at position %d, want %d", r.name(), at, heads[r.Set])
			}
		}
		return nil
	})
}

// overrunReaders waits until retention has passed every sleeping reader at least once. If no periodic
// run of retention does it, the start of a hub does.
func (s *soak) overrunReaders() {
	asleep := func(what string, over func(r *reader) bool) {
		s.until(what, func() error {
			for _, r := range s.readers {
				if r.behavior == "sleeping" && r.overrunCount.Load() == 0 && !over(r) {
					return fmt.Errorf("%s: at %s, head of the set %d", r.name(), r.CurrentCursor(), s.ledgers[r.Set].last.Load())
				}
			}
			return nil
		})
	}
	asleep("enough changes are published for retention", func(r *reader) bool {
		at := r.position()
		return at > 0 && s.ledgers[r.Set].last.Load() >= at+soakKeeps+2*soakListSize
	})
	s.inject(s.fault("hub drained"))
	asleep("overrun readers are notified", func(*reader) bool { return false })
}
