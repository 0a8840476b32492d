package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A player is a program that faults end, and start again.
type player struct {
	*hubtest.Process
	name   string
	start  func() *hubtest.Process
	ending string // how a fault ends it, "killed" or "drained"; empty: it has to run
}

// A stage is a cluster of built programs, and the faults that happen to them.
type stage struct {
	*testing.T
	seed
	tally
	*hubtest.Cluster
	begun   time.Time
	dir     string                    // of all data and logs
	base    string                    // the URL of all hubs, which the link "hubs" leads to one of them
	links   map[string]*hubtest.Proxy // "hub0-redis", "hub0-nats", …, "hubs"
	players []*player                 // in the order in which they start
	checks  []func() error            // each returns what somebody has found wrong

	r     *rand.Rand    // of the faults
	kinds []string      // the faults that happen
	most  time.Duration // that one lasts
	pause time.Duration // between two, at most
	deck  []string      // kinds that are still to come before one comes again
}

// newStage starts hubs on a Redis and a NATS, with a link between each two of them.
func newStage(t *testing.T, sd seed, hubs int, most time.Duration, kinds []string, env ...string) *stage {
	dir, err := os.MkdirTemp("", "rshub-faults-")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, seed: sd, begun: time.Now(), dir: dir, links: map[string]*hubtest.Proxy{}, r: sd.of(0), kinds: kinds, most: most, pause: min(most, 4*time.Second)}
	t.Cleanup(func() {
		t.Logf("after %v:%s", time.Since(s.begun).Round(time.Millisecond), &s.tally)
		if t.Failed() {
			t.Logf("data and logs are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.Cluster = &hubtest.Cluster{NATS: hubtest.StartNATS(s), Redis: &hubtest.RedisServer{Addr: hubtest.FreePort(s), Dir: s.TempDir()}}
	s.play("Redis", func() *hubtest.Process { s.Redis.Start(s); return s.Redis.Process })
	s.links["hubs"] = hubtest.StartProxy(s, "")
	s.base = "http://" + s.links["hubs"].Addr()
	for i := range hubs {
		name := fmt.Sprint("hub", i)
		redis, nats := hubtest.StartProxy(s, s.Redis.Addr), hubtest.StartProxy(s, s.NATS.Addr)
		s.links[name+"-redis"], s.links[name+"-nats"] = redis, nats
		h := hubtest.NewHub(s, append(slices.Clone(env), "RSHUB_BASE_URL="+s.base, "RSHUB_REDIS_URL=redis://"+redis.Addr(), "RSHUB_NATS_URL=nats://"+nats.Addr())...)
		s.Hubs = append(s.Hubs, h)
		s.play(name, func() *hubtest.Process { h.Start(s); return h.Process })
	}
	s.links["hubs"].Point(s.Hubs[0].Host)
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

func (s *stage) player(name string) *player {
	i := slices.IndexFunc(s.players, func(p *player) bool { return p.name == name })
	if i < 0 {
		s.Fatalf("nobody is called %q", name)
	}
	return s.players[i]
}

// up starts a player that a fault has ended.
func (s *stage) up(p *player) {
	if code := p.Wait(); p.ending == "drained" && code != 0 {
		s.Errorf("%s ended with %d after SIGTERM: %s", p.name, code, p.Stderr)
	}
	p.Process, p.ending = p.start(), ""
}

// mended starts the players that faults have ended, and waits until all hubs are ready.
func (s *stage) mended() {
	for _, p := range s.players {
		if p.ending != "" {
			s.up(p)
		}
	}
	s.until("all hubs are ready", func() error {
		for i, h := range s.Hubs {
			a, err := hubtest.Request(http.MethodGet, h.Ops+"/readyz", nil)
			if err == nil && a.Status != http.StatusOK {
				err = errors.New(string(a.Body))
			}
			if err != nil {
				return fmt.Errorf("hub %d: %w", i, err)
			}
		}
		return nil
	})
}

// until waits for a condition. It fails the test as soon as a player has ended by itself, or
// anybody has found something wrong.
func (s *stage) until(what string, cond func() error) {
	s.Helper()
	hubtest.Until(s, what, func() error {
		for _, p := range s.players {
			if p.Ended() && p.ending == "" {
				s.Fatalf("%s ended by itself: %v: %s", p.name, p.Cmd.ProcessState, p.Stderr)
			}
		}
		for _, check := range s.checks {
			if err := check(); err != nil {
				s.Fatal(err)
			}
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
