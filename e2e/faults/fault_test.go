package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A fault begins, lasts, and ends. No two that use the same thing happen at once.
type fault struct {
	kind       string
	uses       []string
	lasts      time.Duration
	begin, end func()
}

// Kinds of faults of a cluster, and of the connections between hubs and Redis. A kind is
// what it happens to, and what happens.
var (
	clusterFaults = []string{"hub killed", "hub stopped", "hub drained", "hubs rolled", "NATS ended", "NATS hangs", "link to NATS hangs",
		"link to NATS cut", "Redis killed", "Redis stopped", "link to Redis hangs", "link to Redis cut"}
	linkFaults = []string{"link to Redis hangs", "link to Redis cut", "link to Redis torn"}
)

// fault makes a fault of a kind, of which the seed decides the rest.
func (s *stage) fault(kind string) *fault {
	i := strings.LastIndexByte(kind, ' ')
	to, what := kind[:i], kind[i+1:]
	server, isLink := strings.CutPrefix(to, "link to ")
	switch hub := s.r.IntN(len(s.Hubs)); {
	case isLink:
		to = fmt.Sprintf("hub%d-%s", hub, server)
	case to == "hub" && what == "stopped":
		to = fmt.Sprint("hub", hub)
	case to == "hub":
		to = fmt.Sprint("hub", hub%2) // a third is never ended: what it uses is compared from begin to end
	}
	f := &fault{kind: kind, uses: []string{to}, lasts: s.most/10 + upTo(s.r, s.most*9/10), end: func() {}}
	var p *player
	if i := slices.IndexFunc(s.players, func(p *player) bool { return p.name == to }); i >= 0 {
		p = s.players[i]
	}
	link := s.links[to]
	switch what {
	case "killed":
		f.begin = func() { p.end(syscall.SIGKILL) }
	case "drained":
		f.begin = func() { p.end(syscall.SIGTERM) }
	case "rolled": // the second drains when the first runs again, for which it needs Redis
		f.uses = []string{"hub0", "hub1", "Redis", "hub0-Redis", "hub1-Redis"}
		first, second := s.players[1], s.players[2]
		f.begin = func() { first.end(syscall.SIGTERM) }
		f.end = func() {
			s.up(first)
			second.end(syscall.SIGTERM)
		}
	case "stopped":
		f.begin, f.end = func() { p.Signal(syscall.SIGSTOP) }, func() { p.Signal(syscall.SIGCONT) }
	case "ended": // NATS, which is part of this process
		f.begin, f.end = s.NATS.Stop, func() { s.NATS.Start(s) }
	case "hangs":
		f.begin, f.end = link.Pause, link.Resume
	case "cut":
		f.begin, f.end = func() { link.SetTarget("") }, func() { link.SetTarget(s.servers[server]) }
	case "torn": // within what is under way, so that answers are lost
		n := 1 + s.r.IntN(4000)
		f.begin = func() { link.PauseAfter(n) }
		f.end = func() {
			link.SetTarget("")
			link.PauseAfter(0)
			link.Resume()
			link.SetTarget(s.servers[server])
		}
	case "moved": // who comes by the URL of all hubs comes to another one
		f.begin = func() { link.SetTarget(s.Hubs[s.r.IntN(len(s.Hubs))].Host) }
	default:
		s.Fatalf("there is no fault %q", kind)
	}
	if slices.Contains([]string{"killed", "drained", "rolled", "cut", "torn"}, what) {
		f.lasts /= 4 // what follows takes time, too
	}
	return f
}

// dealt says whether each kind of fault has happened.
func (s *stage) dealt() bool {
	return !slices.ContainsFunc(s.kinds, func(kind string) bool { return s.Get(kind) == nil })
}

// deal returns the next fault. Each kind comes once before one comes again.
func (s *stage) deal() *fault {
	if len(s.deck) == 0 {
		for _, i := range s.r.Perm(len(s.kinds)) {
			s.deck = append(s.deck, s.kinds[i])
		}
	}
	f := s.fault(s.deck[0])
	s.deck = s.deck[1:]
	return f
}

// round has two faults happen, at once or one after the other, after some time without.
func (s *stage) round() {
	s.wait(upTo(s.r, s.pause))
	first, second := s.deal(), s.deal()
	if s.r.IntN(2) == 0 && !slices.ContainsFunc(second.uses, func(u string) bool { return slices.Contains(first.uses, u) }) {
		s.happen(first, second)
		return
	}
	s.happen(first)
	s.happen(second)
}

// happen has faults happen at once, and ends each at its time. Then all programs run.
func (s *stage) happen(faults ...*fault) {
	slices.SortFunc(faults, func(a, b *fault) int { return int(a.lasts - b.lasts) })
	begun := time.Now()
	for _, f := range faults {
		s.Logf("%v: %s for %v: %s", time.Since(s.begun).Round(time.Millisecond), f.kind, f.lasts.Round(time.Millisecond), strings.Join(f.uses, " "))
		s.Add(f.kind, 1)
		f.begin()
	}
	for _, f := range faults {
		s.wait(f.lasts - time.Since(begun))
		f.end()
	}
	s.mended()
}

// during has faults happen while work is done, and until each kind has happened.
func (s *stage) during(work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	s.Cleanup(func() { <-done })
	for over := false; !over || !s.dealt(); {
		s.round()
		select {
		case <-done:
			over = true
		default:
		}
	}
}
