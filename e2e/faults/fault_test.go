package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
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
	hub := fmt.Sprint("hub", s.r.IntN(len(s.Hubs)))
	f := &fault{kind: kind, lasts: s.most/10 + upTo(s.r, s.most*9/10), end: func() {}}
	switch to {
	case "hub":
		to = hub
		if what != "stopped" {
			to = fmt.Sprint("hub", s.r.IntN(2)) // a third is never ended: what it uses is compared from begin to end
		}
	case "link to NATS":
		to = hub + "-nats"
	case "link to Redis":
		to = hub + "-redis"
	}
	f.uses = []string{to}
	switch link := s.links[to]; what {
	case "killed":
		f.lasts /= 4
		p := s.player(to)
		f.begin = func() {
			p.ending = what
			p.Kill()
		}
	case "drained":
		f.lasts /= 4
		f.begin = func() { s.drain(to) }
	case "rolled": // the second drains when the first runs again, for which it needs Redis
		f.uses = []string{"hub0", "hub1", "Redis", "hub0-redis", "hub1-redis"}
		f.lasts /= 4
		f.begin = func() { s.drain("hub0") }
		f.end = func() {
			s.up(s.player("hub0"))
			s.drain("hub1")
		}
	case "stopped":
		p := s.player(to)
		f.begin, f.end = func() { p.Signal(syscall.SIGSTOP) }, func() { p.Signal(syscall.SIGCONT) }
		if to == "Redis" {
			f.lasts /= 2
		}
	case "ended": // NATS, which is part of this process
		f.begin, f.end = s.NATS.Stop, func() { s.NATS.Start(s) }
	case "hangs":
		all := []*hubtest.Proxy{link}
		if to == "NATS" {
			f.uses, all = nil, nil
			for name, l := range s.links {
				if strings.HasSuffix(name, "-nats") {
					f.uses, all = append(f.uses, name), append(all, l)
				}
			}
		}
		f.begin = func() {
			for _, l := range all {
				l.Hold()
			}
		}
		f.end = func() {
			for _, l := range all {
				l.Release()
			}
		}
	case "cut":
		f.lasts /= 4
		f.begin, f.end = func() { link.Point("") }, func() { link.Point(s.leads(to)) }
	case "torn": // within what is under way, so that answers are lost
		n := 1 + s.r.IntN(4000)
		f.lasts /= 4
		f.begin = func() { link.HoldAfter(n) }
		f.end = func() {
			link.Point("")
			link.HoldAfter(0)
			link.Release()
			link.Point(s.leads(to))
		}
	case "moved": // who comes by the URL of all hubs comes to another one
		f.begin = func() { link.Point(s.Hubs[s.r.IntN(len(s.Hubs))].Host) }
	default:
		s.Fatalf("there is no fault %q", kind)
	}
	return f
}

// leads returns where a link of a hub leads.
func (s *stage) leads(link string) string {
	if strings.HasSuffix(link, "-nats") {
		return s.NATS.Addr
	}
	return s.Redis.Addr
}

// drain tells a hub to end.
func (s *stage) drain(name string) {
	p := s.player(name)
	p.ending = "drained"
	p.Signal(syscall.SIGTERM)
}

// dealt says whether each kind of fault has happened.
func (s *stage) dealt() bool {
	return !slices.ContainsFunc(s.kinds, func(kind string) bool { return s.count(kind) == 0 })
}

// deal returns a fault of a kind that was not had for longest, of those that can happen
// together with others.
func (s *stage) deal(others ...*fault) *fault {
	if len(s.deck) == 0 {
		for _, i := range s.r.Perm(len(s.kinds)) {
			s.deck = append(s.deck, s.kinds[i])
		}
	}
	var used []string
	for _, f := range others {
		used = append(used, f.uses...)
	}
	for i, kind := range s.deck {
		f := s.fault(kind)
		if !slices.ContainsFunc(f.uses, func(u string) bool { return slices.Contains(used, u) }) {
			s.deck = slices.Delete(s.deck, i, i+1)
			return f
		}
	}
	return nil
}

// round has one fault happen, or two at once, after some time without.
func (s *stage) round() {
	s.wait(upTo(s.r, s.pause))
	faults := []*fault{s.deal()}
	if s.r.IntN(2) == 0 {
		if f := s.deal(faults...); f != nil {
			faults = append(faults, f)
		}
	}
	s.happen(faults...)
}

// happen has faults happen at once, and ends each at its time. Then all programs run.
func (s *stage) happen(faults ...*fault) {
	slices.SortFunc(faults, func(a, b *fault) int { return int(a.lasts - b.lasts) })
	begun := time.Now()
	for _, f := range faults {
		s.Logf("%v: %s for %v: %s", time.Since(s.begun).Round(time.Millisecond), f.kind, f.lasts.Round(time.Millisecond), strings.Join(f.uses, " "))
		s.add(f.kind, 1)
		f.begin()
	}
	for _, f := range faults {
		s.wait(f.lasts - time.Since(begun))
		f.end()
	}
	s.mended()
}
