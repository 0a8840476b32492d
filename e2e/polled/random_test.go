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
// dated ahead by up to an hour is believed, and then lists do not converge within that hour;
// see TestComparedAhead.
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
	for _, e := range hubtest.Memory(t, h, "files") {
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

// A stage is a source, a hub, and what is between them and behind them.
type stage struct {
	*testing.T
	*source
	hub    *hubtest.Hub
	cast   []*player
	mirror *player
	dir    string // of the mirror
	right  int    // audits that said that all is right
	agreed int    // of these, those at which source, hub and mirror were the same
	rests  int
}

// agree returns an error unless hub and mirror have what the source has.
func (s *stage) agree() error {
	hashes, contents := s.now()
	got, err := held(s.hub)
	if err != nil {
		return err
	}
	if err := same("the hub", got, hashes); err != nil {
		return err
	}
	if got, err = files(s.dir); err != nil {
		return err
	}
	return same("the mirror", got, contents)
}

// truthful checks that the hub never said what was not so at any time.
func (s *stage) truthful(all []said) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	known, back := map[string]int{}, 0
	for _, e := range all {
		was := s.was[strings.TrimPrefix(e.Loc, s.base())]
		found, last := -1, known[e.Loc] // a version may have been deleted several times
		for i, v := range was {
			so := (e.Change == "deleted") == (v.content == "") && (v.content == "" || hash(v.content) == e.Hash)
			if so && !v.at.After(e.at) && found < last { // the first that is not older than what it knew
				found = i
			}
		}
		if found < 0 {
			s.Errorf("the hub said at position %d what was never so: %+v; the source had %v", e.Position, e, was)
			continue
		}
		if found < last {
			back++ // a comparison between two lists, or changes that were sent again after a crash
		}
		known[e.Loc] = found
	}
	s.Logf("the hub said %d changes, %d of them older than what it had said before", len(all), back)
}

// asOf returns up to which position a mirror has what the log says, or an error if its files
// are no state that the log ever had.
func asOf(base string, all []said, files map[string]string) (position uint64, err error) {
	state, differ := map[string]string{}, map[string]bool{}
	want := map[string]string{}
	for name, content := range files {
		want[base+name] = hash(content)
		differ[base+name] = true
	}
	found := len(differ) == 0
	for _, e := range all {
		if state[e.Loc] = e.Hash; e.Change == "deleted" {
			delete(state, e.Loc)
		}
		if delete(differ, e.Loc); state[e.Loc] != want[e.Loc] {
			differ[e.Loc] = true
		}
		if len(differ) == 0 {
			position, found = e.Position, true
		}
	}
	if !found {
		return 0, fmt.Errorf("the files are no state of the log; at its end %d differ", len(differ))
	}
	return position, nil
}

// rest audits the mirror while the source rests, and the mirror does not run. That all is right
// can be so only if the files are what the hub said up to some change. If fresh is true, the
// lists are made anew, nothing fails meanwhile, and the audit repairs the mirror.
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
		for s.agree() != nil && time.Now().Before(deadline) { // they need not agree: relay may wait after a fault
			time.Sleep(20 * time.Millisecond)
		}
		args = []string{"audit", "-retry", "30s", "-repair", "-max-delete", "all", s.dir}
	}
	s.mirror.down(s)
	code, stdout, stderr := hubtest.Run(s, nil, nil, hubtest.Rsmirror, args...)
	all := log(s, s.hub)
	have, err := files(s.dir)
	if err != nil {
		s.Fatal(err)
	}
	position, err := asOf(s.base(), all, have)
	agree := s.agree()
	s.Logf("audit: %d, as of %d of %d (%v); %.200v; %s", code, position, len(all), err, agree, strings.TrimSpace(stderr))
	if code == 0 {
		s.right++
		if agree == nil {
			s.agreed++
		}
		if err != nil {
			s.Errorf("the audit says that all is right: %s%s, but %v", stdout, stderr, err)
		}
	} else if code != 1 && code != 4 {
		s.Errorf("the audit ended with %d: %s%s", code, stdout, stderr)
	}
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
	if p.Ended() {
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
			s.cast = []*player{hub, relay, s.mirror}

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
				return s.agree()
			})
			t.Logf("hub and mirror are the source after %v", time.Since(began).Round(time.Millisecond))
			for _, p := range s.cast {
				t.Logf("%s was killed %d times", p.name, p.kills)
			}
			code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "audit", s.dir) // while the mirror runs
			if err := s.agree(); code != 0 || stdout != "" || err != nil {
				t.Errorf("at rest, the audit ended with %d: %s%s; %v", code, stdout, stderr, err)
			}
			s.truthful(log(t, s.hub))
			t.Logf("%d audits, %d said that all is right, %d of them when the source was the same; broken off %d, busy %d, slow %d", s.rests, s.right, s.agreed, s.asked("cut"), s.asked("503"), s.asked("slow"))
		})
	}
}
