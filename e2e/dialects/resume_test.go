package dialects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// lives is about how many lives each follower has. So it speaks each dialect about twice.
const lives = 16

// TestResumeInAnotherDialect publishes a whole history through two hubs, which are killed in
// turn, to followers that kill themselves at any change, and go on in another dialect, at any
// hub. In the end each has the same sequence: all that the memory has, in order, once.
func TestResumeInAnotherDialect(t *testing.T) {
	t.Parallel()
	l := hubtest.SomeLoad(t)
	r := hubtest.Random(t)
	const set = "dialects"
	hubs := hubtest.StartCluster(t, 2, append(hubtest.Callable[:len(hubtest.Callable):len(hubtest.Callable)], "RSHUB_CHANGELIST_SIZE=1500")...).Hubs
	var lines []*line
	for range dialects {
		lines = append(lines, &line{journal: filepath.Join(t.TempDir(), "journal"), topic: hubs[0].Topic(set), most: 2 * len(l.Lines) / lives})
	}
	reach := func(n int) {
		t.Helper()
		hubtest.Until(t, fmt.Sprintf("all followers have %d events", n), func() error {
			var late error
			for i, f := range lines {
				f.read(t)
				if len(f.events) < n {
					f.live(t, r, hubs)
					late = cmp.Or(late, fmt.Errorf("follower %d has %d, as %s", i, len(f.events), f.dialect))
				}
			}
			return late
		})
	}
	var down *hubtest.Hub
	for at, round := 0, 0; at < len(l.Lines); round++ {
		switch {
		case down != nil && round%5 == 0:
			down.Start(t)
			down = nil
		case round%25 == 20:
			down = hubs[round/25%len(hubs)]
			down.Kill()
		}
		h := hubs[r.IntN(len(hubs))]
		for h == down {
			h = hubs[r.IntN(len(hubs))]
		}
		n := min(1+r.IntN(400), len(l.Lines)-at)
		hubtest.Publish(t, h, set, l.NDJSON(at, at+n))
		at += n
		if down == nil { // a follower at a hub that is down has nobody to ask
			reach(at - lines[0].most)
		}
	}
	if down != nil {
		down.Start(t)
	}
	want := memory(t, hubs[1], set)
	if len(want) != len(l.Lines) {
		t.Fatalf("the memory has %d changes of %d", len(want), len(l.Lines))
	}
	reach(len(want))
	for i, f := range lines {
		f.process.Kill()
		if !slices.Equal(f.events, want) {
			at := 0
			for at < min(len(want), len(f.events)) && f.events[at] == want[at] {
				at++
			}
			t.Errorf("follower %d has %d events of %d, and from event %d on others; it lived as %q", i, len(f.events), len(want), at, f.was)
		}
	}
	spoken := map[string]int{}
	for _, f := range lines {
		for _, dialect := range f.was {
			spoken[dialect]++
		}
	}
	if len(spoken) != len(dialects) {
		t.Errorf("not all dialects were spoken: %v", spoken)
	}
	t.Logf("lives by dialect: %v", spoken)
}

// memory returns all that the memory of a hub has.
func memory(t *testing.T, h *hubtest.Hub, set string) (all []event) {
	t.Helper()
	for _, e := range hubtest.Memory(t, h, set) {
		var c struct{ Loc, Change string }
		hubtest.Decode(t, []byte(e.Text), &c)
		one, err := newEvent(e.Datetime, c.Loc, c.Change)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// A line is the lives of a follower, one after the other.
type line struct {
	journal, topic string
	most           int              // a life has at most so many events
	process        *hubtest.Process // nil: there was none yet
	dialect        string           // of the life that is
	was            []string         // the dialects of all lives
	next           []string         // dialects of lives to come

	events []event // in the journal
	offset int64   // of what was read in it
}

// live begins another life if the one before has ended.
func (f *line) live(t *testing.T, r *rand.Rand, hubs []*hubtest.Hub) {
	t.Helper()
	if f.process != nil && !f.process.Ended() {
		return
	}
	if f.process != nil && f.process.Cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the %s ends: %s", f.dialect, f.process.Stderr)
	}
	if len(f.next) == 0 {
		f.next = slices.Sorted(maps.Keys(dialects))
		r.Shuffle(len(f.next), func(i, j int) { f.next[i], f.next[j] = f.next[j], f.next[i] })
		if f.next[0] == f.dialect {
			f.next[0], f.next[1] = f.next[1], f.next[0]
		}
	}
	f.dialect, f.next = f.next[0], f.next[1:]
	f.was = append(f.was, f.dialect)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f.process = hubtest.Start(t, []string{
		asFollower + "=" + f.dialect, ofHub + "=" + hubs[r.IntN(len(hubs))].URL, ofTopic + "=" + f.topic,
		inJournal + "=" + f.journal, fmt.Sprint(dieAfter, "=", 1+r.IntN(f.most)),
	}, nil, self)
}

// read reads on in the journal. Its last line may be torn.
func (f *line) read(t *testing.T) {
	t.Helper()
	file, err := os.Open(f.journal)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, f.offset, math.MaxInt64-f.offset))
	if err != nil {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	f.offset += int64(len(text))
	for one := range bytes.Lines(text) {
		var e event
		if err := json.Unmarshal(one, &e); err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		f.events = append(f.events, e)
	}
}
