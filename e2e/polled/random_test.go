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

// wrongHour is how far a clock that is some hours ahead dates a change. An exception: what is
// dated ahead by up to an hour is believed, and then lists do not converge within that hour.
const wrongHour = 2 * time.Hour

// A said is an entry of the log of a set.
type said struct {
	Position          uint64
	Loc, Change, Hash string
	at                time.Time
}

// log reads all that a hub has said.
func log(t testing.TB, h *hubtest.Hub) (all []said) {
	t.Helper()
	for _, e := range hubtest.ReadMemory(t, h, "files") {
		s := said{Position: e.Position}
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

// held returns what a hub says that the set holds: hashes by loc.
func held(h *hubtest.Hub) (map[string]string, error) {
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
			return nil, fmt.Errorf("%s is answered %d: %.200s: %v", next, a.Status, a.Body, err)
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

// agree returns an error unless a hub and the mirror in a directory have what the source has.
func (s *source) agree(h *hubtest.Hub, dir string) error {
	hashes, contents := s.now()
	got, err := held(h)
	if err != nil {
		return err
	}
	if err := same("the hub", got, hashes); err != nil {
		return err
	}
	if got, err = files(dir); err != nil {
		return err
	}
	return same("the mirror", got, contents)
}

// A stage is a source, a hub, and what is between them and behind them.
type stage struct {
	*testing.T
	*source
	hub    *hubtest.Hub
	cast   []*player
	relay  *player
	mirror *player
	dir    string // of the mirror
	right  int    // audits that said that all is right
	agreed int    // of these, those at which source, hub and mirror were the same
	rests  int
}

// truthful checks that the hub never said what was not so at any time.
func (s *stage) truthful(all []said) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	known, back := map[string]int{}, 0
	for _, e := range all {
		name := strings.TrimPrefix(e.Loc, s.base())
		was := s.was[name]
		found, last := -1, known[e.Loc] // a version may have been deleted several times
		for i, v := range was {
			so := (e.Change == "deleted") == (v.content == "") && (v.content == "" || hash(v.content) == e.Hash)
			if so && !v.at.After(e.at) && found < last { // the first that is not older than what it knew
				found = i
			}
		}
		if found < 0 && e.Change == "deleted" && s.ahead[name] { // an exception, see TestComparedAhead
			s.Logf("the hub said that %s is deleted, which was dated ahead, and is not", name)
			continue
		}
		if found < 0 {
			s.Errorf("the hub said at position %d what was never so: %+v; the source had %v", e.Position, e, was)
			continue
		}
		if found < last {
			back++ // lists that moved, see TestMovedShort, or changes that were sent again after a crash
		}
		known[e.Loc] = found
	}
	s.Logf("the hub said %d changes, %d of them older than what it had said before", len(all), back)
}

// late returns how many files of a mirror are not what the log says at its end. An error names
// one that the log never said.
func late(base string, all []said, files map[string]string) (n int, err error) {
	ever, state := map[said]bool{}, map[string]string{}
	for _, e := range all {
		if state[e.Loc] = e.Hash; e.Change == "deleted" {
			delete(state, e.Loc)
		}
		ever[said{Loc: e.Loc, Hash: e.Hash}] = true
	}
	for name, content := range files {
		if v := (said{Loc: base + name, Hash: hash(content)}); !ever[v] {
			err = fmt.Errorf("the log never said %+v", v)
		} else if state[v.Loc] != v.Hash {
			n++
		}
		delete(state, base+name)
	}
	return n + len(state), err
}

// rest audits the mirror while the source rests, and neither relay nor mirror run. What the hub
// has said since the mirror ran last is late, not wrong. If fresh is true, the lists are made
// anew, nothing fails meanwhile, and the audit first catches up, and repairs the mirror: then
// nothing may be late.
func (s *stage) rest(fresh bool) {
	s.Helper()
	s.rests++
	for _, p := range s.cast {
		p.up()
	}
	args := []string{"audit", "-retry", "30s", s.dir}
	if fresh {
		faults := s.setFaults(nil)
		defer s.setFaults(faults)
		s.makeList()
		s.makeChanges()
		deadline := time.Now().Add(3 * time.Second)
		for s.agree(s.hub, s.dir) != nil && time.Now().Before(deadline) { // they need not agree: relay may wait after a fault
			time.Sleep(20 * time.Millisecond)
		}
		args = []string{"audit", "-retry", "30s", "-repair", "-max-delete", "all", s.dir}
	}
	s.relay.down(s)
	s.mirror.down(s)
	code, stdout, stderr := hubtest.Run(s, nil, nil, hubtest.Rsmirror, args...)
	all := log(s, s.hub)
	have, err := files(s.dir)
	if err != nil {
		s.Fatal(err)
	}
	late, err := late(s.base(), all, have)
	agree := s.agree(s.hub, s.dir)
	s.Logf("audit: %d; repairs: %v; %d of %d files are late; %.200v; %s", code, fresh, late, len(have), agree, strings.TrimSpace(stderr))
	switch {
	case code == 0:
		s.right++
		if agree == nil {
			s.agreed++
		}
		if err != nil || fresh && late > 0 {
			s.Errorf("the audit says that all is right: %s%s, but %d files are late, %v", stdout, stderr, late, err)
		}
	case code == 1 || code == 4 || strings.Contains(stderr, ": not a mirror"): // killed before it created the mirror
	default:
		s.Errorf("the audit ended with %d: %s%s", code, stdout, stderr)
	}
	s.relay.up()
	s.mirror.up()
}

// run lets the source live for some time, while its servers fail and the programs are killed.
func (s *stage) run(seed uint64, ahead bool, took time.Duration) {
	s.Helper()
	var gate sync.Mutex // who rests has it
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := of(seed, 1)
		for begun := time.Now(); time.Since(begun) < took; {
			gate.Lock()
			s.live(r, ahead)
			gate.Unlock()
			time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond)))) // the pace of the source, not a wait for anything
		}
	}()
	defer func() { <-ended }()
	s.setFaults(of(seed, 2))
	r := of(seed, 3)
	for step := 1; ; step++ {
		select {
		case <-ended:
			for _, p := range s.cast {
				p.up()
			}
			return
		case <-time.After(time.Duration(r.Int64N(int64(1200 * time.Millisecond)))): // the pace of kills
		}
		s.kill(r)
		if step%6 == 0 {
			gate.Lock()
			s.rest(r.IntN(3) > 0)
			gate.Unlock()
		}
	}
}

// kill kills a player at random, or starts it again.
func (s *stage) kill(r *rand.Rand) {
	s.Helper()
	p := s.cast[r.IntN(len(s.cast))]
	if p.Exited() {
		p.up()
		return
	}
	if p.down(s); r.IntN(2) == 0 { // at once, as a supervisor does it
		p.up()
	}
}

// TestRandomSource relays a source whose lists are stale, sometimes dated wrongly, broken off,
// and moved; the programs are killed the whole time. The hub never says what was not so. When
// the faults end, hub and mirror are what the source is.
func TestRandomSource(t *testing.T) {
	t.Parallel()
	base := hubtest.Seed(t, rand.Uint64()%1_000_000)
	for i := range size[uint64](3, 20) {
		seed := base + i
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := &stage{T: t, source: newSource(t), hub: hubtest.StartHub(t), dir: t.TempDir()}
			r := of(seed, 0)
			ahead := seed%2 == 1
			s.short, s.indexed, s.whole = seed%4 >= 2, r.IntN(2) == 0, r.IntN(2) == 0
			t.Logf("dates are ahead: %v; lists are short: %v, have an index: %v, have whole seconds: %v", ahead, s.short, s.indexed, s.whole)
			for range 100 {
				s.put(fmt.Sprintf("r%d", r.IntN(60)), fmt.Sprint(r.Uint64()), 0)
			}
			s.makeList()
			s.makeChanges()
			relay := play(t, "relay", hubtest.Rspublish, "relay", "-hub", s.hub.URL, "-set", "files", "-every", "1s", "-full", "2s", "-retry", "2s",
				"-max-delete", "all", "-state", filepath.Join(t.TempDir(), "state"), s.URL+"/capabilitylist.xml")
			hubtest.Until(t, "there is a set", func() error {
				relay.runs(t)
				_, err := held(s.hub)
				return err
			})
			hub := &player{name: "hub", Process: s.hub.Process}
			hub.start = func() *hubtest.Process { s.hub.Start(t); return s.hub.Process }
			s.mirror = play(t, "mirror", hubtest.Rsmirror, "-strip", s.base(), "-max-delete", "all", s.hub.Topic("files"), s.dir)
			s.relay, s.cast = relay, []*player{hub, relay, s.mirror}

			s.run(seed, ahead, size(20*time.Second, 30*time.Second))

			s.setFaults(nil)
			s.makeList()
			s.makeChanges()
			began := time.Now()
			hubtest.Until(t, "hub and mirror have what the source has", func() error {
				for _, p := range s.cast {
					p.runs(t)
				}
				time.Sleep(20 * time.Millisecond) // to ask often would slow down who is asked
				return s.agree(s.hub, s.dir)
			})
			t.Logf("hub and mirror are the source after %v", time.Since(began).Round(time.Millisecond))
			for _, p := range s.cast {
				t.Logf("%s was killed %d times", p.name, p.kills)
			}
			hubtest.Until(t, "the audit says that all is right", func() error { // while the mirror runs; it may not have said yet that its baseline is over
				if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "audit", "-retry", "5s", s.dir); code != 0 {
					return fmt.Errorf("%d: %s%s", code, stdout, stderr)
				}
				return nil
			})
			if err := s.agree(s.hub, s.dir); err != nil {
				t.Errorf("the audit says that all is right, but %v", err)
			}
			s.truthful(log(t, s.hub))
			t.Logf("%d audits, %d said that all is right, %d of them when the source was the same; broken off %d, busy %d, slow %d", s.rests, s.right, s.agreed, s.had("cut"), s.had("503"), s.had("slow"))
		})
	}
}
