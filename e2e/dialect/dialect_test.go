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

// history is 20,681 changes of the Python Enhancement Proposals, as they happened.
const history = "../../../shared/data/peps-changes.jsonl.gz"

// changes returns the lines of the history, or others if it is not on this machine.
func changes(t *testing.T) []byte {
	file, err := os.Open(history)
	if errors.Is(err, os.ErrNotExist) {
		t.Logf("there is no %s: changes are made up", history)
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

// A seen is a change as any dialect shows it.
type seen struct {
	cursor, change, loc string
}

// A place is where a follower is in a set that is at several hubs.
type place struct {
	t      *testing.T
	hub    *hubtest.Hub // the one to ask now
	base   string       // the URL of all
	set    string
	cursor string // of the last change that was seen
	took   int    // in this dialect
	until  int    // how many it takes in this dialect before it is killed
	all    []seen
}

// errKilled is how a dialect ends.
var errKilled = errors.New("killed")

// at returns the position of the cursor.
func (p *place) at() uint64 {
	n, _, err := hubtest.SplitCursor(p.cursor)
	if err != nil {
		p.t.Error(err)
	}
	return n
}

// take takes a change, unless it was seen already: at least once means that it may come again.
func (p *place) take(c seen) error {
	n, _, err := hubtest.SplitCursor(c.cursor)
	if err != nil {
		return err
	}
	switch at := p.at(); {
	case n <= at:
		return nil
	case n > at+1:
		return fmt.Errorf("%s follows %s", c.cursor, p.cursor)
	}
	p.all, p.cursor = append(p.all, c), c.cursor
	if p.took++; p.took >= p.until {
		return errKilled
	}
	return nil
}

// here returns a URL of the hubs as the hub of this place has it.
func (p *place) here(url string) string { return p.hub.URL + strings.TrimPrefix(url, p.base) }

// TestEightDialects publishes a real history to two hubs, while followers in eight dialects read
// it. Each is killed again and again, at any change, and goes on from its last cursor in another
// dialect, at any of the hubs. All see the same sequence, and none misses a change.
func TestEightDialects(t *testing.T) {
	c := hubtest.StartCluster(t, 2, "RSHUB_CHANGELIST_SIZE=1000", "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	const set = "history"
	lines := changes(t)
	n := strings.Count(string(lines), "\n")
	in, feed := hubtest.Feed(t)
	p := hubtest.Start(t, nil, in, hubtest.Rspublish, "-hub", c.Hubs[1].URL, "-set", set, "-")
	go func() {
		defer feed.Close()
		pace := time.NewTicker(20 * time.Millisecond) // so that much is published while it is followed
		defer pace.Stop()
		for some := range slices.Chunk(lines, 40_000) {
			_, _ = feed.Write(some) // if it has ended, what follows says so
			<-pace.C
		}
	}()
	hubtest.WaitOK(t, c.Hubs[0].URL+"/sets/"+set)

	seed := hubtest.Seed(t, rand.Uint64()%1_000_000)
	callbacks := trial.Serve(t, "127.0.0.1:0", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	places := make(chan *place)
	for i := range dialects {
		go func() {
			r := rand.New(rand.NewPCG(uint64(i), seed))
			f := &place{t: t, base: c.Hubs[0].URL, set: set, cursor: "0-0"}
			for now := i; len(f.all) < n && ctx.Err() == nil; now = (now + 1 + r.IntN(len(dialects)-1)) % len(dialects) { // never the same again
				f.hub, f.took, f.until = c.Hubs[r.IntN(2)], 0, min(1+r.IntN(4_000), n-len(f.all))
				leg, end := context.WithCancel(ctx)
				if err := dialects[now].follow(leg, f, callbacks); !errors.Is(err, errKilled) && ctx.Err() == nil {
					t.Errorf("follower %d by %s after %s: %v", i, dialects[now].name, f.cursor, err)
					cancel()
				}
				end()
			}
			places <- f
		}()
	}
	var all []*place
	for range dialects {
		all = append(all, <-places)
	}
	if code := p.Wait(); code != 0 {
		t.Fatalf("rspublish ends with %d: %s", code, p.Stderr.String())
	}
	var want []seen
	for _, e := range hubtest.ReadMemory(t, c.Hubs[0], set) {
		var is struct{ Loc, Change string }
		if err := json.Unmarshal([]byte(e.Text), &is); err != nil {
			t.Fatal(err)
		}
		cursor, err := c.Hubs[0].CursorOf(e)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, seen{cursor, is.Change, is.Loc})
	}
	if len(want) != n {
		t.Errorf("the memory has %d changes of %d", len(want), n)
	}
	for i, f := range all {
		for j := range min(len(want), len(f.all)) {
			if f.all[j] != want[j] {
				t.Fatalf("change %d of follower %d is %v, not %v", j+1, i, f.all[j], want[j])
			}
		}
		if len(f.all) != len(want) {
			t.Errorf("follower %d has %d changes of %d", i, len(f.all), len(want))
		}
	}
}
