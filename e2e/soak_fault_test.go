package e2e

import (
	"errors"
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

var faultKinds = []string{"hub killed", "hub stopped", "hub drained", "NATS stopped", "NATS hangs", "link to NATS hangs",
	"link to NATS cut", "Redis killed", "Redis stopped", "link to Redis hangs", "link to Redis cut"}

// fault makes a fault of a kind, of which the seed decides the rest.
func (s *soak) fault(kind string) fault {
	r := s.rand
	i, h := r.IntN(3), s.c.hubs[0]
	if kind == "hub killed" || kind == "hub drained" {
		i = r.IntN(2) // the third is never ended: what it uses is compared from begin to end
	}
	h = s.c.hubs[i]
	hub := fmt.Sprintf("hub%d", i)
	f := fault{kind: kind, uses: []string{hub}, lasts: min(s.most, time.Second+time.Duration(r.Int64N(int64(19*time.Second))))}
	short := min(s.most, time.Duration(r.Int64N(int64(5*time.Second))))
	none := func() {}
	hold := func(links ...string) {
		f.uses = links
		f.begin = func() {
			for _, l := range links {
				s.links[l].hold()
			}
		}
		f.end = func() {
			for _, l := range links {
				s.links[l].release()
			}
		}
	}
	cut := func(link, to string) {
		f.uses, f.lasts = []string{link}, short
		f.begin, f.end = func() { s.links[link].point("") }, func() { s.links[link].point(to) }
	}
	switch kind {
	case "hub killed": // mended starts it
		f.lasts, f.begin, f.end = short, func() { h.kill() }, none
	case "hub drained":
		f.lasts, f.begin, f.end = short, func() {
			s.draining[h] = true
			h.signal(syscall.SIGTERM)
		}, none
	case "hub stopped":
		f.begin, f.end = func() { h.signal(syscall.SIGSTOP) }, func() { h.signal(syscall.SIGCONT) }
	case "NATS stopped":
		f.uses, f.begin, f.end = []string{"nats"}, s.c.nats.stop, func() { s.c.nats.start(s.T) }
	case "NATS hangs":
		hold("hub0-nats", "hub1-nats", "hub2-nats")
	case "link to NATS hangs":
		hold(hub + "-nats")
	case "link to NATS cut":
		cut(hub+"-nats", s.c.nats.addr)
	case "Redis killed":
		f.uses, f.lasts, f.begin = []string{"redis"}, short, func() { s.c.redis.kill() }
		f.end = func() {
			s.c.redis.start(s.T)
			s.ran = append(s.ran, s.c.redis.process)
		}
	case "Redis stopped":
		f.uses, f.lasts = []string{"redis"}, f.lasts/2
		f.begin, f.end = func() { s.c.redis.signal(syscall.SIGSTOP) }, func() { s.c.redis.signal(syscall.SIGCONT) }
	case "link to Redis hangs":
		f.lasts = f.lasts * 3 / 4
		hold(hub + "-redis")
	case "link to Redis cut":
		cut(hub+"-redis", s.c.redis.addr)
	}
	return f
}

// deal returns a fault of a kind that was not had for longest.
func (s *soak) deal() fault {
	if len(s.deck) == 0 {
		s.deck = s.rand.Perm(len(faultKinds))
	}
	kind := faultKinds[s.deck[0]]
	s.deck = s.deck[1:]
	return s.fault(kind)
}

// round has one fault happen, or two at once, after some time without.
func (s *soak) round() {
	s.wait(min(s.most, time.Duration(s.rand.Int64N(int64(4*time.Second)))))
	faults := []fault{s.deal()}
	if s.rand.IntN(5) < 2 || s.most < 2*time.Second {
		if f := s.deal(); !slices.ContainsFunc(f.uses, func(u string) bool { return slices.Contains(faults[0].uses, u) }) {
			faults = append(faults, f)
		}
	}
	s.happen(faults...)
}

// happen has faults happen at once, ends each at its time, and measures until
// every follower has what was acknowledged by then.
func (s *soak) happen(faults ...fault) {
	slices.SortFunc(faults, func(a, b fault) int { return int(a.lasts - b.lasts) })
	var kinds []string
	begun := time.Now()
	for _, f := range faults {
		kinds = append(kinds, f.kind)
		s.Logf("%v: %s for %v: %s", time.Since(s.begun).Round(time.Second), f.kind, f.lasts.Round(time.Millisecond), strings.Join(f.uses, " "))
		f.begin()
	}
	for _, f := range faults {
		s.wait(f.lasts - time.Since(begun))
		f.end()
	}
	s.mended()
	kind := strings.Join(slices.Sorted(slices.Values(kinds)), " + ")
	ended := time.Now()
	heads := map[string]uint64{}
	for set, l := range s.ledgers {
		heads[set] = l.head()
	}
	behind := slices.Clone(s.readers)
	until(s, "all have caught up after "+kind, func() error {
		s.healthy()
		behind = slices.DeleteFunc(behind, func(r *reader) bool {
			if r.manner != "" || r.change != "" {
				return true // it is late by itself, or does not say where it is
			}
			p, _, err := splitCursor(r.at())
			if err != nil || p < heads[r.set] {
				return false
			}
			s.report.caughtUp(kind, time.Since(ended))
			return true
		})
		if len(behind) > 0 {
			return fmt.Errorf("%s is at %s, not at %d; ends %q", behind[0].name(), behind[0].at(), heads[behind[0].set], behind[0].ends)
		}
		return nil
	})
	s.report.happened(kind, kinds)
}

// mended starts the hubs that have ended, and waits until all run.
func (s *soak) mended() {
	for i, h := range s.c.hubs {
		if s.draining[h] {
			delete(s.draining, h)
			if code := h.wait(); code != 0 {
				s.Errorf("hub %d ended with %d after SIGTERM", i, code)
			}
		}
		if !h.ended() {
			continue
		}
		h.start(s.T)
		s.ran = append(s.ran, h.process)
	}
	until(s, "all hubs are ready", func() error {
		for i, h := range s.c.hubs {
			a, err := request("GET", h.ops+"/readyz", nil)
			if err == nil && a.status != 200 {
				err = errors.New(string(a.body))
			}
			if err != nil {
				return fmt.Errorf("hub %d: %w", i, err)
			}
		}
		return nil
	})
}
