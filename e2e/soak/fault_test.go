package soak

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A soakFault begins, lasts, and ends. No two that use the same thing happen at once.
type soakFault struct {
	kind       string
	uses       []string
	lasts      time.Duration
	begin, end func()
}

var faultKinds = []string{"hub killed", "hub stopped", "hub drained", "NATS stopped", "NATS hangs", "link to NATS hangs",
	"link to NATS cut", "Redis killed", "Redis stopped", "link to Redis hangs", "link to Redis cut"}

// fault makes a fault of a kind, of which the seed decides the rest.
func (s *soak) fault(kind string) soakFault {
	r := s.rand
	i, h := r.IntN(3), s.c.Hubs[0]
	if kind == "hub killed" || kind == "hub drained" {
		i = r.IntN(2) // the third is never ended: what it uses is compared from begin to end
	}
	h = s.c.Hubs[i]
	hub := fmt.Sprintf("hub%d", i)
	f := soakFault{kind: kind, uses: []string{hub}, lasts: s.most/10 + time.Duration(r.Int64N(int64(s.most*9/10)))}
	short := f.lasts / 4
	none := func() {}
	hold := func(links ...string) {
		f.uses = links
		f.begin = func() {
			for _, l := range links {
				s.links[l].Hold()
			}
		}
		f.end = func() {
			for _, l := range links {
				s.links[l].Release()
			}
		}
	}
	cut := func(link, to string) {
		f.uses, f.lasts = []string{link}, short
		f.begin, f.end = func() { s.links[link].Point("") }, func() { s.links[link].Point(to) }
	}
	switch kind {
	case "hub killed": // mended starts it
		f.lasts, f.begin, f.end = short, func() {
			s.ending[h] = "killed"
			h.Kill()
		}, none
	case "hub drained":
		f.lasts, f.begin, f.end = short, func() {
			s.ending[h] = "drained"
			h.Signal(syscall.SIGTERM)
		}, none
	case "hub stopped":
		f.begin, f.end = func() { h.Signal(syscall.SIGSTOP) }, func() { h.Signal(syscall.SIGCONT) }
	case "NATS stopped":
		f.uses, f.begin, f.end = []string{"nats"}, s.c.NATS.Stop, func() { s.c.NATS.Start(s) }
	case "NATS hangs":
		hold("hub0-nats", "hub1-nats", "hub2-nats")
	case "link to NATS hangs":
		hold(hub + "-nats")
	case "link to NATS cut":
		cut(hub+"-nats", s.c.NATS.Addr)
	case "Redis killed":
		f.uses, f.lasts, f.begin, f.end = []string{"redis"}, short, func() { s.c.Redis.Kill() }, func() { s.c.Redis.Start(s) }
	case "Redis stopped":
		f.uses, f.lasts = []string{"redis"}, f.lasts/2
		f.begin, f.end = func() { s.c.Redis.Signal(syscall.SIGSTOP) }, func() { s.c.Redis.Signal(syscall.SIGCONT) }
	case "link to Redis hangs":
		f.lasts = f.lasts * 3 / 4
		hold(hub + "-redis")
	case "link to Redis cut":
		cut(hub+"-redis", s.c.Redis.Addr)
	}
	return f
}

// dealt says whether each kind of fault has happened.
func (s *soak) dealt() bool {
	for _, kind := range faultKinds {
		if s.report.faults[kind] == 0 {
			return false
		}
	}
	return true
}

// deal returns a fault of a kind that was not had for longest, of those that
// can happen together with others.
func (s *soak) deal(others ...soakFault) (soakFault, bool) {
	if len(s.deck) == 0 {
		for _, i := range s.rand.Perm(len(faultKinds)) {
			s.deck = append(s.deck, faultKinds[i])
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
			return f, true
		}
	}
	return soakFault{}, false
}

// round has one fault happen, or two at once, after some time without.
func (s *soak) round() {
	s.wait(min(s.most, time.Duration(s.rand.Int64N(int64(4*time.Second)))))
	f, _ := s.deal()
	faults := []soakFault{f}
	if s.rand.IntN(5) < 2 || s.most == moment {
		if f, ok := s.deal(faults...); ok {
			faults = append(faults, f)
		}
	}
	s.happen(faults...)
}

// happen has faults happen at once, ends each at its time, and measures from the
// last end until every follower has what was acknowledged by then.
func (s *soak) happen(faults ...soakFault) {
	slices.SortFunc(faults, func(a, b soakFault) int { return int(a.lasts - b.lasts) })
	var kinds []string
	begun := time.Now()
	for _, f := range faults {
		kinds = append(kinds, f.kind)
		s.Logf("%v: %s for %v: %s", time.Since(s.begun).Round(time.Second), f.kind, f.lasts.Round(time.Millisecond), strings.Join(f.uses, " "))
		f.begin()
	}
	var ended time.Time
	for i, f := range faults {
		s.wait(f.lasts - time.Since(begun))
		if i == len(faults)-1 {
			ended = time.Now()
			for _, r := range s.readers {
				r.await(s.ledgers[r.Set].head())
			}
		}
		f.end()
	}
	s.mended()
	var slowest time.Duration
	hubtest.Until(s, "all have caught up after "+strings.Join(kinds, " and "), func() error {
		s.healthy()
		slowest = 0
		for _, r := range s.readers {
			if r.manner != "" || r.change != "" {
				continue // it is late by itself, or does not say where it is
			}
			there, err := r.arrived()
			if err != nil {
				return fmt.Errorf("%s: %w", r.name(), err)
			}
			slowest = max(slowest, there.Sub(ended))
		}
		return nil
	})
	s.report.happened(kinds, slowest)
}

// mended starts the hubs that have ended, and waits until all run.
func (s *soak) mended() {
	for i, h := range s.c.Hubs {
		how, ok := s.ending[h]
		if !ok {
			continue
		}
		if code := h.Wait(); how == "drained" && code != 0 {
			s.Errorf("hub %d ended with %d after SIGTERM", i, code)
		}
		h.Start(s)
		delete(s.ending, h)
	}
	hubtest.Until(s, "all hubs are ready", func() error {
		s.healthy()
		for i, h := range s.c.Hubs {
			a, err := hubtest.Request("GET", h.Ops+"/readyz", nil)
			if err == nil && a.Status != 200 {
				err = errors.New(string(a.Body))
			}
			if err != nil {
				return fmt.Errorf("hub %d: %w", i, err)
			}
		}
		return nil
	})
}

// overrun has retention pass every follower that sleeps, at least once. What no
// minute's tick has done by now, the start of a hub does.
func (s *soak) overrun() {
	asleep := slices.DeleteFunc(slices.Clone(s.readers), func(r *reader) bool { return r.manner != "sleeping" || r.told() > 0 })
	if len(asleep) == 0 {
		return
	}
	hubtest.Until(s, "enough is published for retention", func() error {
		s.healthy()
		for _, r := range asleep {
			p, _, err := hubtest.SplitCursor(r.At())
			if r.told() == 0 && (err != nil || p == 0 || s.ledgers[r.Set].head() < p+s.keeps+2*soakListSize) {
				return fmt.Errorf("%s is at %s, and the set at %d", r.name(), r.At(), s.ledgers[r.Set].head())
			}
		}
		return nil
	})
	s.happen(s.fault("hub drained"))
	hubtest.Until(s, "who was overrun is told so", func() error {
		s.healthy()
		for _, r := range asleep {
			if r.told() == 0 {
				return fmt.Errorf("%s is not, at %s", r.name(), r.At())
			}
		}
		return nil
	})
}
