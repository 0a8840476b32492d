package dialect

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// history has 20,681 real changes of the Python Enhancement Proposals.
const history = "../../../shared/data/peps-changes.jsonl.gz"

// changes returns the lines of the history, or generated ones if the file is missing.
func changes(t *testing.T) []byte {
	file, err := os.Open(history)
	if errors.Is(err, os.ErrNotExist) {
		t.Logf("%s is missing; using generated changes", history)
		return hubtest.GeneratedLoad(t, 5_000).NDJSON(0, 5_000)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// A change is a change in the form common to all dialects.
type change struct {
	cursor, change, loc string
}

// A reader is a follower of a set that changes between hubs and dialects.
type reader struct {
	t      *testing.T
	hub    *hubtest.Hub // current hub
	base   string       // base URL of the cluster
	set    string
	cursor string // cursor of the last change
	count  int    // number of changes in the current dialect
	limit  int    // number of changes in the current dialect before it is killed
	all    []change
}

// errKilled ends the use of a dialect.
var errKilled = errors.New("killed")

// position returns the position of the cursor.
func (p *reader) position() uint64 {
	n, _, err := hubtest.SplitCursor(p.cursor)
	if err != nil {
		p.t.Error(err)
	}
	return n
}

// add adds a change, unless it is a repeat, which at-least-once delivery allows.
func (p *reader) add(c change) error {
	n, _, err := hubtest.SplitCursor(c.cursor)
	if err != nil {
		return err
	}
	switch at := p.position(); {
	case n <= at:
		return nil
	case n > at+1:
		return fmt.Errorf("got %s after %s, want the next position", c.cursor, p.cursor)
	}
	p.all, p.cursor = append(p.all, c), c.cursor
	if p.count++; p.count >= p.limit {
		return errKilled
	}
	return nil
}

// toHub replaces the base URL of the cluster with the current hub's.
func (p *reader) toHub(url string) string { return p.hub.URL + strings.TrimPrefix(url, p.base) }

// TestSwitchDialects publishes a real history to two hubs, while followers read it in eight
// dialects. Each is killed repeatedly at a random change, and continues at its last cursor in
// another dialect at a random hub. All receive the same sequence without gaps.
func TestSwitchDialects(t *testing.T) {
	c := hubtest.StartCluster(t, 2, "RSHUB_CHANGELIST_SIZE=1000", "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	const set = "history"
	lines := changes(t)
	n := strings.Count(string(lines), "\n")
	in, feed := hubtest.Feed(t)
	p := hubtest.Start(t, nil, in, hubtest.Rspublish, "-hub", c.Hubs[1].URL, "-set", set, "-")
	go func() {
		defer feed.Close()
		pace := time.NewTicker(20 * time.Millisecond) // so that publishing and following overlap
		defer pace.Stop()
		for some := range slices.Chunk(lines, 40_000) {
			_, _ = feed.Write(some) // an early exit fails the test below
			<-pace.C
		}
	}()
	hubtest.WaitOK(t, c.Hubs[0].URL+"/sets/"+set)

	seed := hubtest.Seed(t, rand.Uint64()%1_000_000)
	callbacks := trial.Serve(t, "127.0.0.1:0", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	readers := make(chan *reader)
	for i := range dialects {
		go func() {
			r := rand.New(rand.NewPCG(uint64(i), seed))
			f := &reader{t: t, base: c.Hubs[0].URL, set: set, cursor: "0-0"}
			for now := i; len(f.all) < n && ctx.Err() == nil; now = (now + 1 + r.IntN(len(dialects)-1)) % len(dialects) { // never the same dialect twice in a row
				f.hub, f.count, f.limit = c.Hubs[r.IntN(2)], 0, min(1+r.IntN(4_000), n-len(f.all))
				leg, end := context.WithCancel(ctx)
				if err := dialects[now].follow(leg, f, callbacks); !errors.Is(err, errKilled) && ctx.Err() == nil {
					t.Errorf("follower %d by %s after %s: %v", i, dialects[now].name, f.cursor, err)
					cancel()
				}
				end()
			}
			readers <- f
		}()
	}
	var all []*reader
	for range dialects {
		all = append(all, <-readers)
	}
	if code := p.Wait(); code != 0 {
		t.Fatalf("rspublish exited with %d: %s", code, p.Stderr.String())
	}
	var want []change
	for _, e := range hubtest.ReadMemory(t, c.Hubs[0], set) {
		var is struct{ Loc, Change string }
		if err := json.Unmarshal([]byte(e.Text), &is); err != nil {
			t.Fatal(err)
		}
		cursor, err := c.Hubs[0].CursorOf(e)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, change{cursor, is.Change, is.Loc})
	}
	if len(want) != n {
		t.Errorf("got %d changes in the memory, want %d", len(want), n)
	}
	for i, f := range all {
		for j := range min(len(want), len(f.all)) {
			if f.all[j] != want[j] {
				t.Fatalf("follower %d: got change %d %v, want %v", i, j+1, f.all[j], want[j])
			}
		}
		if len(f.all) != len(want) {
			t.Errorf("follower %d: got %d changes, want %d", i, len(f.all), len(want))
		}
	}
}
