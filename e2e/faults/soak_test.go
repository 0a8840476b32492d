package faults

import (
	"context"
	"errors"
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
	moment       = 1500 * time.Millisecond // that a fault of the short form lasts, at most
)

// Sets of the soak. The trimmed one gets most changes; the reborn one is deleted at
// checkpoints.
var soakSets = []string{"steady", "trimmed", "reborn"}

// A soak is a cluster under load, to which faults happen.
type soak struct {
	*stage
	keeps   uint64 // how many changes of a set retention leaves, at least
	row     int    // how often in a row a callback does not take what comes, so that the hub's wait stays short
	ledgers map[string]*ledger
	sources []*source
	readers []*reader
	gate    sync.RWMutex        // who publishes holds it shared
	closed  map[string][32]byte // what a closed list was, by its path
	usage   []usage             // at checkpoints

	ctx  context.Context // of all who publish and follow
	work sync.WaitGroup  // their goroutines
}

// TestSoak makes faults at random, under load, for RSHUB_SOAK (a duration), and at times lets
// everybody catch up and compares what they have. RSHUB_E2E_SEED repeats its choices. Without
// RSHUB_SOAK each kind of fault happens at least once, for a moment.
func TestSoak(t *testing.T) {
	text := os.Getenv("RSHUB_SOAK")
	if text == "" {
		t.Parallel()
		s := newSoak(t, seed(hubtest.Seed(t, 1)), moment, 300, 1, 2)
		s.run(0)
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("RSHUB_SOAK: %v", err)
	}
	s := newSoak(t, seed(hubtest.Seed(t, rand.Uint64N(1e6))), max(moment, min(d/20, 20*time.Second)), 2000, 3, 5)
	s.checkpoint()
	for _, kind := range []string{"hub stopped", "NATS ended"} {
		f := s.fault(kind)
		f.lasts = 20 * time.Second
		s.happen(f)
		s.checkpoint()
	}
	s.run(d)
	if d >= 4*time.Minute {
		if err := grew(s.usage, len(s.readers)+len(s.sources)); err != nil {
			s.Errorf("hub 2 grew: %v", err)
		}
	}
}

// newSoak starts a cluster of three hubs, who follow, and sources.
func newSoak(t *testing.T, sd seed, most time.Duration, keeps uint64, row, sources int) *soak {
	st := newStage(t, sd, 3, most, clusterFaults, append(slices.Clone(hubtest.Callable), fmt.Sprintf("RSHUB_CHANGELIST_SIZE=%d", soakListSize),
		fmt.Sprintf("RSHUB_RETENTION_COUNT=%d", keeps), "RSHUB_HEARTBEAT=2s", "RSHUB_WRITE_TIMEOUT=3s", "RSHUB_CALLBACK_TIMEOUT=2s")...)
	s := &soak{stage: st, keeps: keeps, row: row, ledgers: map[string]*ledger{}, closed: map[string][32]byte{}}
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
	for _, set := range soakSets {
		s.ledgers[set] = newLedger()
	}
	for i, set := range soakSets {
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
	for i := range sources {
		s.publish(i)
	}
	s.checks = append(s.checks, s.wrong)
	return s
}

// hub returns one of the hubs.
func (s *soak) hub(r *rand.Rand) *hubtest.Hub { return s.Hubs[r.IntN(len(s.Hubs))] }

// wrong returns what a reader or a source has found wrong.
func (s *soak) wrong() error {
	for _, r := range s.readers {
		if err := r.wrong(); err != nil {
			return err
		}
	}
	for _, p := range s.sources {
		if fault := p.fault.Load(); fault != nil {
			return errors.New(*fault)
		}
	}
	return nil
}

// run has faults happen for some time, and until each kind has happened. In between, and at
// the end, everybody catches up.
func (s *soak) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) || !s.dealt(); {
		for range 1 + s.r.IntN(3) {
			s.round()
			s.followed()
		}
		s.checkpoint()
	}
	s.overrun()
	s.checkpoint()
	s.Logf("%d checkpoints; at the first one hub 2 had %v, at the last one %v", len(s.usage), s.usage[0], s.usage[len(s.usage)-1])
}

// followed waits until those who follow as fast as they can have what was acknowledged up to
// now. Publishing goes on.
func (s *soak) followed() {
	heads := map[string]uint64{}
	for set, l := range s.ledgers {
		heads[set], _ = l.head()
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
	asleep := slices.DeleteFunc(slices.Clone(s.readers), func(r *reader) bool { return r.manner != "sleeping" || r.told() > 0 })
	if len(asleep) == 0 {
		return
	}
	s.until("enough is published for retention", func() error {
		for _, r := range asleep {
			at := r.position()
			head, _ := s.ledgers[r.Set].head()
			if r.told() == 0 && (at == 0 || head < at+s.keeps+2*soakListSize) {
				return fmt.Errorf("%s is at %d, and the set at %d", r.name(), at, head)
			}
		}
		return nil
	})
	s.happen(s.fault("hub drained"))
	s.until("who was overrun is told so", func() error {
		for _, r := range asleep {
			if r.told() == 0 {
				return fmt.Errorf("%s is not, at %s", r.name(), r.At())
			}
		}
		return nil
	})
}
