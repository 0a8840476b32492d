package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A fault starts, lasts, and stops. Two faults that affect the same resource do not overlap.
type fault struct {
	kind        string
	uses        []string
	duration    time.Duration
	start, stop func()
}

// Kinds of faults of a cluster, and of the connections between hubs and Redis. A kind is the
// affected component and the fault.
var (
	clusterFaults = []string{"hub killed", "hub stopped", "hub drained", "hubs rolled", "NATS ended", "NATS hangs", "link to NATS hangs",
		"link to NATS cut", "Redis killed", "Redis stopped", "link to Redis hangs", "link to Redis cut"}
	linkFaults = []string{"link to Redis hangs", "link to Redis cut", "link to Redis torn"}
)

// fault returns a fault of a kind. Its details are random.
func (s *harness) fault(kind string) *fault {
	i := strings.LastIndexByte(kind, ' ')
	to, what := kind[:i], kind[i+1:]
	server, isLink := strings.CutPrefix(to, "link to ")
	switch hub := s.r.IntN(len(s.Hubs)); {
	case isLink:
		to = fmt.Sprintf("hub%d-%s", hub, server)
	case to == "hub" && what == "stopped":
		to = fmt.Sprint("hub", hub)
	case to == "hub":
		to = fmt.Sprint("hub", hub%2) // the third hub is never stopped: its resource usage is compared over the whole test
	}
	f := &fault{kind: kind, uses: []string{to}, duration: s.maxDuration/10 + upTo(s.r, s.maxDuration*9/10), stop: func() {}}
	var p *program
	if i := slices.IndexFunc(s.programs, func(p *program) bool { return p.name == to }); i >= 0 {
		p = s.programs[i]
	}
	link := s.links[to]
	switch what {
	case "killed":
		f.start = func() { p.stop(syscall.SIGKILL) }
	case "drained":
		f.start = func() { p.stop(syscall.SIGTERM) }
	case "rolled": // the second hub drains when the first one runs again, which requires Redis
		f.uses = []string{"hub0", "hub1", "Redis", "hub0-Redis", "hub1-Redis"}
		first, second := s.programs[1], s.programs[2]
		f.start = func() { first.stop(syscall.SIGTERM) }
		f.stop = func() {
			s.restart(first)
			second.stop(syscall.SIGTERM)
		}
	case "stopped":
		f.start, f.stop = func() { p.Signal(syscall.SIGSTOP) }, func() { p.Signal(syscall.SIGCONT) }
	case "ended": // NATS runs in this process
		f.start, f.stop = s.NATS.Stop, func() { s.NATS.Start(s) }
	case "hangs":
		f.start, f.stop = link.Pause, link.Resume
	case "cut":
		f.start, f.stop = func() { link.SetTarget("") }, func() { link.SetTarget(s.servers[server]) }
	case "torn": // in the middle of the data, so that responses are lost
		n := 1 + s.r.IntN(4000)
		f.start = func() { link.PauseAfter(n) }
		f.stop = func() {
			link.SetTarget("")
			link.PauseAfter(0)
			link.Resume()
			link.SetTarget(s.servers[server])
		}
	case "moved": // clients of the base URL reach another hub
		f.start = func() { link.SetTarget(s.Hubs[s.r.IntN(len(s.Hubs))].Host) }
	default:
		s.Fatalf("unknown fault %q", kind)
	}
	if slices.Contains([]string{"killed", "drained", "rolled", "cut", "torn"}, what) {
		f.duration /= 4 // the recovery takes time, too
	}
	return f
}

// allKindsHappened reports whether each kind of fault has happened.
func (s *harness) allKindsHappened() bool {
	return !slices.ContainsFunc(s.kinds, func(kind string) bool { return s.Get(kind) == nil })
}

// nextFault returns the next fault. Each kind happens once before one repeats.
func (s *harness) nextFault() *fault {
	if len(s.due) == 0 {
		for _, i := range s.r.Perm(len(s.kinds)) {
			s.due = append(s.due, s.kinds[i])
		}
	}
	f := s.fault(s.due[0])
	s.due = s.due[1:]
	return f
}

// injectRound injects two faults, at the same time or one after the other, after a pause.
func (s *harness) injectRound() {
	s.wait(upTo(s.r, s.pause))
	first, second := s.nextFault(), s.nextFault()
	if s.r.IntN(2) == 0 && !slices.ContainsFunc(second.uses, func(u string) bool { return slices.Contains(first.uses, u) }) {
		s.inject(first, second)
		return
	}
	s.inject(first)
	s.inject(second)
}

// inject injects faults at the same time, and stops each after its duration. Then it waits until
// all programs run.
func (s *harness) inject(faults ...*fault) {
	slices.SortFunc(faults, func(a, b *fault) int { return int(a.duration - b.duration) })
	start := time.Now()
	for _, f := range faults {
		s.Logf("%v: %s for %v: %s", time.Since(s.start).Round(time.Millisecond), f.kind, f.duration.Round(time.Millisecond), strings.Join(f.uses, " "))
		s.Add(f.kind, 1)
		f.start()
	}
	for _, f := range faults {
		s.wait(f.duration - time.Since(start))
		f.stop()
	}
	s.restartPrograms()
}

// injectDuring injects faults while work runs, and until each kind has happened.
func (s *harness) injectDuring(work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	s.Cleanup(func() { <-done })
	for over := false; !over || !s.allKindsHappened(); {
		s.injectRound()
		select {
		case <-done:
			over = true
		default:
		}
	}
}
