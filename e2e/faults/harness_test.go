// Package faults tests the built programs under random faults, and checks their data
// afterwards. Its harness starts a cluster (harness), injects faults (fault), records what was
// acknowledged (ledger), and checks that every reader has it (check). It has three scenarios:
//
//	TestSoak             a cluster under load, with every transport
//	TestLinearizable     concurrent callers of two hubs, checked against one memory
//	TestSourceToMirrors  from a directory, a site or a repository to mirrors
package faults

import (
	"errors"
	"expvar"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) {
	hubtest.Timeout = size(time.Minute, 15*time.Minute) // a content that failed three times is retried after 10 s, then after 20 s
	hubtest.Main(m)
}

// size returns usual, or whole with RSHUB_E2E_FULL.
func size[T any](usual, whole T) T {
	if os.Getenv("RSHUB_E2E_FULL") != "" {
		return whole
	}
	return usual
}

// upTo returns a random duration below most.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// get returns the body of a response with status 200.
func get(url string) ([]byte, error) {
	a, err := hubtest.Request(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, fmt.Errorf("%s = %d, want 200: %s", url, a.Status, a.Body)
	}
	return a.Body, nil
}

// A program is a program that faults stop and the harness restarts.
type program struct {
	*hubtest.Process
	name       string
	start      func() *hubtest.Process
	stopSignal syscall.Signal // signal by which a fault stopped it; 0 while it must run
}

// stop stops the program as part of a fault.
func (p *program) stop(by syscall.Signal) {
	p.stopSignal = by
	p.Signal(by)
}

// A harness is a cluster of built programs with random faults.
type harness struct {
	*testing.T
	*hubtest.Cluster
	expvar.Map        // counters for the log
	seed       uint64 // seed of all choices
	start      time.Time
	dir        string                    // directory of all data and logs
	base       string                    // base URL of the cluster; the link "hubs" forwards it to one hub
	servers    map[string]string         // addresses, by name
	links      map[string]*hubtest.Proxy // "hub0-Redis", "hub0-NATS", …, "NATS", "hubs"
	programs   []*program                // in start order
	mirrors    []*mirrorProgram          // the mirrors among the programs

	r           *rand.Rand    // for the choice of faults
	kinds       []string      // kinds of faults
	maxDuration time.Duration // maximum duration of a fault
	pause       time.Duration // maximum pause between faults
	due         []string      // kinds that are due before one repeats
}

// rng returns the source of random choices of one part of a test. Each part has its own, because
// the parts run concurrently.
func (s *harness) rng(part int) *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(part))) }

// newHarness starts hubs with a Redis and a NATS, and a proxy between each pair.
func newHarness(t *testing.T, seed uint64, hubs int, most time.Duration, kinds []string, env ...string) *harness {
	dir, err := os.MkdirTemp("", "rshub-faults-")
	if err != nil {
		t.Fatal(err)
	}
	s := &harness{T: t, seed: seed, start: time.Now(), dir: dir, kinds: kinds, maxDuration: most, pause: min(most, 4*time.Second)}
	s.r = s.rng(0)
	t.Cleanup(func() {
		t.Logf("after %v: %v", time.Since(s.start).Round(time.Millisecond), s.Map.String())
		if t.Failed() {
			t.Logf("data and logs are in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.Cluster = &hubtest.Cluster{NATS: hubtest.StartNATS(s), Redis: &hubtest.RedisServer{Addr: hubtest.FreePort(s), Dir: s.TempDir()}}
	s.addProgram("Redis", func() *hubtest.Process { s.Redis.Start(s); return s.Redis.Process })
	s.links = map[string]*hubtest.Proxy{"NATS": hubtest.StartProxy(s, s.NATS.Addr), "hubs": hubtest.StartProxy(s, "")}
	s.servers = map[string]string{"NATS": s.links["NATS"].Addr(), "Redis": s.Redis.Addr}
	s.base = "http://" + s.links["hubs"].Addr()
	for i := range hubs {
		name := fmt.Sprint("hub", i)
		for server, addr := range s.servers {
			s.links[name+"-"+server] = hubtest.StartProxy(s, addr)
		}
		h := hubtest.NewHub(s, append(slices.Clone(env), "RSHUB_BASE_URL="+s.base,
			"RSHUB_REDIS_URL=redis://"+s.links[name+"-Redis"].Addr(), "RSHUB_NATS_URL=nats://"+s.links[name+"-NATS"].Addr())...)
		s.Hubs = append(s.Hubs, h)
		s.addProgram(name, func() *hubtest.Process { h.Start(s); return h.Process })
	}
	s.links["hubs"].SetTarget(s.Hubs[0].Host)
	return s
}

// TempDir creates a directory below the harness's: a failed test retains what the programs wrote.
func (s *harness) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		s.Fatal(err)
	}
	return dir
}

// topic returns the topic URL of a set at the base URL.
func (s *harness) topic(set string) string { return s.base + "/sets/" + set + "/changes" }

// addProgram starts a program, and adds it to the programs.
func (s *harness) addProgram(name string, start func() *hubtest.Process) *program {
	p := &program{Process: start(), name: name, start: start}
	s.programs = append(s.programs, p)
	return p
}

// startProgram starts one of the built programs as a program.
func (s *harness) startProgram(name string, env []string, file string, args ...string) *program {
	return s.addProgram(name, func() *hubtest.Process { return hubtest.Start(s, env, nil, file, args...) })
}

// restartPrograms restarts the programs that faults have stopped, and waits until all hubs are ready.
func (s *harness) restartPrograms() {
	for _, p := range s.programs {
		if p.stopSignal != 0 {
			s.restart(p)
		}
	}
	s.until("all hubs are ready", func() error {
		for _, h := range s.Hubs {
			if _, err := get(h.Ops + "/readyz"); err != nil {
				return err
			}
		}
		return nil
	})
}

// restart restarts a program.
func (s *harness) restart(p *program) {
	s.waitExit(p)
	p.Process, p.stopSignal = p.start(), 0
}

// waitExit waits for the exit of a program.
func (s *harness) waitExit(p *program) {
	if code := p.Wait(); p.stopSignal == syscall.SIGTERM && code != 0 {
		s.Errorf("%s exited with %d after SIGTERM: %s", p.name, code, p.Stderr)
	}
}

// until waits for a condition. It fails the test if a program exits without a fault.
func (s *harness) until(what string, cond func() error) {
	s.Helper()
	hubtest.Until(s, what, func() error {
		for _, p := range s.programs {
			if p.Exited() && p.stopSignal == 0 {
				s.Errorf("%s exited without a fault: %v: %s", p.name, p.Cmd.ProcessState, p.Stderr)
			}
		}
		if s.Failed() {
			s.FailNow()
		}
		return cond()
	})
}

// wait lets time pass: the pace of faults, not a wait for a condition.
func (s *harness) wait(d time.Duration) {
	s.Helper()
	end := time.Now().Add(d)
	s.until("time passes", func() error {
		if time.Now().Before(end) {
			return errors.New("not yet")
		}
		return nil
	})
}
