// Package faults tests the built programs while faults happen to them at random, and then
// checks what they have. One harness starts a cluster (stage), chooses what happens (fault),
// notes what was acknowledged (ledger), and checks that everybody has it (check). On it stand
// three scenarios:
//
//	TestSoak          a cluster under load, with every way of following
//	TestLinearizable  what concurrent callers see of two hubs, held against one memory
//	TestEnds          from a directory, a site or a repository to a mirror
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
	hubtest.Timeout = size(time.Minute, 15*time.Minute) // a content that failed three times is tried again after 10 s, and then 20 s
	hubtest.Main(m)
}

// size returns what a test does much of: less by default than with RSHUB_E2E_FULL.
func size[T any](usual, whole T) T {
	if os.Getenv("RSHUB_E2E_FULL") != "" {
		return whole
	}
	return usual
}

// upTo returns a random time below most.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// get returns what a URL is answered with.
func get(url string) ([]byte, error) {
	a, err := hubtest.Request(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, fmt.Errorf("%s is answered %d: %s", url, a.Status, a.Body)
	}
	return a.Body, nil
}

// A player is a program that faults end, and start again.
type player struct {
	*hubtest.Process
	name   string
	start  func() *hubtest.Process
	ending syscall.Signal // by which a fault ends it; 0: it has to run
}

// end has a fault end the player.
func (p *player) end(by syscall.Signal) {
	p.ending = by
	p.Signal(by)
}

// A stage is a cluster of built programs, and the faults that happen to them.
type stage struct {
	*testing.T
	*hubtest.Cluster
	expvar.Map        // counts what happened, for the log
	seed       uint64 // of all choices
	begun      time.Time
	dir        string                    // of all data and logs
	base       string                    // the URL of all hubs, which the link "hubs" leads to one of them
	servers    map[string]string         // addresses, by name
	links      map[string]*hubtest.Proxy // "hub0-Redis", "hub0-NATS", …, "NATS", "hubs"
	players    []*player                 // in the order in which they start
	mirrors    []*mirrored               // which are among them

	r     *rand.Rand    // of the faults
	kinds []string      // the faults that happen
	most  time.Duration // that one lasts
	pause time.Duration // between two, at most
	deck  []string      // kinds that are still to come before one comes again
}

// of returns the choices of one part of a test. Each part has its own, because the parts go
// on at the same time.
func (s *stage) of(part int) *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(part))) }

// newStage starts hubs on a Redis and a NATS, with a link between each two of them.
func newStage(t *testing.T, seed uint64, hubs int, most time.Duration, kinds []string, env ...string) *stage {
	dir, err := os.MkdirTemp("", "rshub-faults-")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, seed: seed, begun: time.Now(), dir: dir, kinds: kinds, most: most, pause: min(most, 4*time.Second)}
	s.r = s.of(0)
	t.Cleanup(func() {
		t.Logf("after %v: %v", time.Since(s.begun).Round(time.Millisecond), s.Map.String())
		if t.Failed() {
			t.Logf("data and logs are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.Cluster = &hubtest.Cluster{NATS: hubtest.StartNATS(s), Redis: &hubtest.RedisServer{Addr: hubtest.FreePort(s), Dir: s.TempDir()}}
	s.play("Redis", func() *hubtest.Process { s.Redis.Start(s); return s.Redis.Process })
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
		s.play(name, func() *hubtest.Process { h.Start(s); return h.Process })
	}
	s.links["hubs"].SetTarget(s.Hubs[0].Host)
	return s
}

// TempDir makes a directory in that of the stage: a test that fails keeps what the programs
// wrote.
func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		s.Fatal(err)
	}
	return dir
}

// topic is the URL of a set, the same at all hubs.
func (s *stage) topic(set string) string { return s.base + "/sets/" + set + "/changes" }

// play starts a program, from now on a player.
func (s *stage) play(name string, start func() *hubtest.Process) *player {
	p := &player{Process: start(), name: name, start: start}
	s.players = append(s.players, p)
	return p
}

// program plays one of the programs that are built.
func (s *stage) program(name string, env []string, file string, args ...string) *player {
	return s.play(name, func() *hubtest.Process { return hubtest.Start(s, env, nil, file, args...) })
}

// mended starts the players that faults have ended, and waits until all hubs are ready.
func (s *stage) mended() {
	for _, p := range s.players {
		if p.ending != 0 {
			s.up(p)
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

// up starts a player that a fault has ended.
func (s *stage) up(p *player) {
	s.down(p)
	p.Process, p.ending = p.start(), 0
}

// down waits for the end of a player.
func (s *stage) down(p *player) {
	if code := p.Wait(); p.ending == syscall.SIGTERM && code != 0 {
		s.Errorf("%s ended with %d after SIGTERM: %s", p.name, code, p.Stderr)
	}
}

// until waits for a condition, unless the test has failed or a player has ended by itself.
func (s *stage) until(what string, cond func() error) {
	s.Helper()
	hubtest.Until(s, what, func() error {
		for _, p := range s.players {
			if p.Exited() && p.ending == 0 {
				s.Errorf("%s ended by itself: %v: %s", p.name, p.Cmd.ProcessState, p.Stderr)
			}
		}
		if s.Failed() {
			s.FailNow()
		}
		return cond()
	})
}

// wait lets time pass: the pace of faults, not a wait for anything.
func (s *stage) wait(d time.Duration) {
	s.Helper()
	end := time.Now().Add(d)
	s.until("time passes", func() error {
		if time.Now().Before(end) {
			return errors.New("not yet")
		}
		return nil
	})
}
