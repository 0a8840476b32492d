package polled

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// wrongHour is the offset of changes dated by a clock that is ahead. It is more than an hour:
// smaller offsets are accepted, and then lists do not converge within the offset.
const wrongHour = 2 * time.Hour

// A loggedChange is an entry of the log of a set.
type loggedChange struct {
	Position          uint64
	Loc, Change, Hash string
	at                time.Time
}

// log returns the log of the set of a hub.
func log(t testing.TB, h *hubtest.Hub) (all []loggedChange) {
	t.Helper()
	for _, e := range hubtest.ReadMemory(t, h, "files") {
		s := loggedChange{Position: e.Position}
		err := json.Unmarshal([]byte(e.Text), &s)
		if err == nil {
			s.at, err = time.Parse(time.RFC3339Nano, e.Datetime)
		}
		if err != nil {
			t.Fatalf("%s: %v", e.Text, err)
		}
		all = append(all, s)
	}
	return all
}

// hubState returns the resources of the set at a hub: hashes by loc.
func hubState(h *hubtest.Hub) (map[string]string, error) {
	all := map[string]string{}
	for next := h.URL + "/sets/files/resources"; next != ""; {
		a, err := hubtest.Request(http.MethodGet, next, nil, "Accept: application/json")
		if err != nil {
			return nil, err
		}
		var page struct {
			Resources []struct{ Loc, Hash string }
			Next      string
		}
		if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
			return nil, fmt.Errorf("%s = %d: %.200s: %v", next, a.Status, a.Body, err)
		}
		for _, r := range page.Resources {
			all[r.Loc] = r.Hash
		}
		if next = page.Next; len(page.Resources) == 0 {
			break
		}
	}
	return all, nil
}

// compare returns an error unless a hub and the mirror in a directory have the state of the source.
func (s *source) compare(h *hubtest.Hub, dir string) error {
	hashes, contents := s.state()
	got, err := hubState(h)
	if err != nil {
		return err
	}
	if err := diff("the hub", got, hashes); err != nil {
		return err
	}
	if got, err = files(dir); err != nil {
		return err
	}
	return diff("the mirror", got, contents)
}

// A pipeline is a source, rspublish relay, a hub, and a mirror.
type pipeline struct {
	*testing.T
	*source
	hub         *hubtest.Hub
	programs    []*program
	relay       *program
	mirror      *program
	dir         string // directory of the mirror
	clean       int    // audits without a problem
	cleanEqual  int    // those of them at which source, hub and mirror were equal
	checkpoints int
}

// checkLog checks that every change in the log was true at some time.
func (s *pipeline) checkLog(all []loggedChange) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	known, back := map[string]int{}, 0
	for _, e := range all {
		name := strings.TrimPrefix(e.Loc, s.base())
		was := s.versions[name]
		found, last := -1, known[e.Loc] // a version may be deleted several times
		for i, v := range was {
			so := (e.Change == "deleted") == (v.content == "") && (v.content == "" || hash(v.content) == e.Hash)
			if so && !v.at.After(e.at) && found < last { // the first one that is not older than the last known version
				found = i
			}
		}
		if found < 0 && e.Change == "deleted" && s.ahead[name] { // an exception, see TestComparedAhead
			s.Logf("log has a wrong deletion of %s, which was dated ahead", name)
			continue
		}
		if found < 0 {
			s.Errorf("log at position %d: got %+v, want one of the versions %v", e.Position, e, was)
			continue
		}
		if found < last {
			back++ // lists that moved, see TestMovedShort, or changes that were repeated after a crash
		}
		known[e.Loc] = found
	}
	s.Logf("the log has %d changes, %d of them older than an earlier one", len(all), back)
}

// countLate returns the number of files of a mirror that differ from the end of the log. An error
// names a file that the log never had.
func countLate(base string, all []loggedChange, files map[string]string) (n int, err error) {
	ever, state := map[loggedChange]bool{}, map[string]string{}
	for _, e := range all {
		if state[e.Loc] = e.Hash; e.Change == "deleted" {
			delete(state, e.Loc)
		}
		ever[loggedChange{Loc: e.Loc, Hash: e.Hash}] = true
	}
	for name, content := range files {
		if v := (loggedChange{Loc: base + name, Hash: hash(content)}); !ever[v] {
			err = fmt.Errorf("the log never had %+v", v)
		} else if state[v.Loc] != v.Hash {
			n++
		}
		delete(state, base+name)
	}
	return n + len(state), err
}

// checkpoint audits the mirror while the source does not change, and neither relay nor mirror
// run. Later changes in the log make files late, not wrong. If fresh is true, the lists are
// published again, without faults, and the audit first catches up and repairs the mirror: then no
// file may be late.
func (s *pipeline) checkpoint(fresh bool) {
	s.Helper()
	s.checkpoints++
	for _, p := range s.programs {
		p.ensureRunning()
	}
	args := []string{"audit", "-retry", "30s", s.dir}
	if fresh {
		faults := s.setFaults(nil)
		defer s.setFaults(faults)
		s.publishList()
		s.republishChanges()
		deadline := time.Now().Add(3 * time.Second)
		for s.compare(s.hub, s.dir) != nil && time.Now().Before(deadline) { // they may still differ: relay may pause after a fault
			time.Sleep(20 * time.Millisecond)
		}
		args = []string{"audit", "-retry", "30s", "-repair", "-max-delete", "all", s.dir}
	}
	s.relay.kill(s)
	s.mirror.kill(s)
	code, stdout, stderr := hubtest.Run(s, nil, nil, hubtest.Rsmirror, args...)
	all := log(s, s.hub)
	have, err := files(s.dir)
	if err != nil {
		s.Fatal(err)
	}
	late, err := countLate(s.base(), all, have)
	differs := s.compare(s.hub, s.dir)
	s.Logf("audit: %d; repair: %v; %d of %d files are late; %.200v; %s", code, fresh, late, len(have), differs, strings.TrimSpace(stderr))
	switch {
	case code == 0:
		s.clean++
		if differs == nil {
			s.cleanEqual++
		}
		if err != nil || fresh && late > 0 {
			s.Errorf("audit found no problems: %s%s, but %d files are late, %v", stdout, stderr, late, err)
		}
	case code == 1 || code == 4 || strings.Contains(stderr, ": not a mirror"): // killed before it created the mirror
	default:
		s.Errorf("audit exited with %d: %s%s", code, stdout, stderr)
	}
	s.relay.ensureRunning()
	s.mirror.ensureRunning()
}

// run changes the source for some time, while its server fails and the programs are killed.
func (s *pipeline) run(seed uint64, ahead bool, took time.Duration) {
	s.Helper()
	var gate sync.Mutex // hubState during checkpoints
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := rng(seed, 1)
		for start := time.Now(); time.Since(start) < took; {
			gate.Lock()
			s.changeRandomly(r, ahead)
			gate.Unlock()
			time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond)))) // pace of the source, not a wait for a condition
		}
	}()
	defer func() { <-ended }()
	s.setFaults(rng(seed, 2))
	r := rng(seed, 3)
	for step := 1; ; step++ {
		select {
		case <-ended:
			for _, p := range s.programs {
				p.ensureRunning()
			}
			return
		case <-time.After(time.Duration(r.Int64N(int64(1200 * time.Millisecond)))): // pace of the kills
		}
		s.killRandom(r)
		if step%6 == 0 {
			gate.Lock()
			s.checkpoint(r.IntN(3) > 0)
			gate.Unlock()
		}
	}
}

// killRandom kills a random program, or restarts it.
func (s *pipeline) killRandom(r *rand.Rand) {
	s.Helper()
	p := s.programs[r.IntN(len(s.programs))]
	if p.Exited() {
		p.ensureRunning()
		return
	}
	if p.kill(s); r.IntN(2) == 0 { // immediately, as a supervisor does
		p.ensureRunning()
	}
}

// TestRandomSource relays a source whose lists are stale, sometimes wrongly dated, truncated, and
// moved, while the programs are killed. Every change in the log was true at some time. After the
// faults, hub and mirror equal the source.
func TestRandomSource(t *testing.T) {
	t.Parallel()
	base := hubtest.Seed(t, rand.Uint64()%1_000_000)
	for i := range size[uint64](3, 20) {
		seed := base + i
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := &pipeline{T: t, source: newSource(t), hub: hubtest.StartHub(t), dir: t.TempDir()}
			r := rng(seed, 0)
			ahead := seed%2 == 1
			s.short, s.indexed, s.wholeSeconds = seed%4 >= 2, r.IntN(2) == 0, r.IntN(2) == 0
			t.Logf("dates ahead: %v; short lists: %v, index: %v, whole seconds: %v", ahead, s.short, s.indexed, s.wholeSeconds)
			for range 100 {
				s.put(fmt.Sprintf("r%d", r.IntN(60)), fmt.Sprint(r.Uint64()), 0)
			}
			s.publishList()
			s.republishChanges()
			relay := startProgram(t, "relay", hubtest.Rspublish, "relay", "-hub", s.hub.URL, "-set", "files", "-every", "1s", "-full", "2s", "-retry", "2s",
				"-max-delete", "all", "-state", filepath.Join(t.TempDir(), "state"), s.URL+"/capabilitylist.xml")
			hubtest.Until(t, "the set exists", func() error {
				relay.wantRunning(t)
				_, err := hubState(s.hub)
				return err
			})
			hub := &program{name: "hub", Process: s.hub.Process}
			hub.start = func() *hubtest.Process { s.hub.Start(t); return s.hub.Process }
			s.mirror = startProgram(t, "mirror", hubtest.Rsmirror, "-strip", s.base(), "-max-delete", "all", s.hub.Topic("files"), s.dir)
			s.relay, s.programs = relay, []*program{hub, relay, s.mirror}

			s.run(seed, ahead, size(20*time.Second, 30*time.Second))

			s.setFaults(nil)
			s.publishList()
			s.republishChanges()
			start := time.Now()
			hubtest.Until(t, "hub and mirror equal the source", func() error {
				for _, p := range s.programs {
					p.wantRunning(t)
				}
				time.Sleep(20 * time.Millisecond) // frequent checks would slow down the hub
				return s.compare(s.hub, s.dir)
			})
			t.Logf("hub and mirror equaled the source after %v", time.Since(start).Round(time.Millisecond))
			for _, p := range s.programs {
				t.Logf("%s: %d kills", p.name, p.kills)
			}
			hubtest.Until(t, "the audit finds no problems", func() error { // with a running mirror, which may not have finished its baseline yet
				if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "audit", "-retry", "5s", s.dir); code != 0 {
					return fmt.Errorf("%d: %s%s", code, stdout, stderr)
				}
				return nil
			})
			if err := s.compare(s.hub, s.dir); err != nil {
				t.Errorf("audit found no problems, but %v", err)
			}
			s.checkLog(log(t, s.hub))
			t.Logf("%d audits, %d without problems, %d of them with an equal source; %d truncated, %d busy, %d slow responses", s.checkpoints, s.clean, s.cleanEqual, s.count("cut"), s.count("503"), s.count("slow"))
		})
	}
}
