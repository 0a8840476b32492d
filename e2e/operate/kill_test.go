package operate

import (
	"io"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestKill kills the hub while everybody is busy. What it has acknowledged has
// to be in the memory once, and at every follower.
func TestKill(t *testing.T) {
	t.Parallel()
	const set, kills = "killed", 5
	h := hubtest.StartHub(t, "RSHUB_CHANGELIST_SIZE=3000")
	l := hubtest.SomeLoad(t)
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllWays {
		followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
	}
	in, feed := hubtest.Feed(t)
	source := hubtest.Start(t, nil, in, hubtest.Rspublish, "-hub", h.URL, "-set", set, "-key", "the-load", "-")
	direct := []*hubtest.Publisher{
		hubtest.Publishing(t, h, set, "keyed", true),
		hubtest.Publishing(t, h, set, "keyless", false),
	}
	// Each time the source is in the middle of a batch, or waits for an answer.
	wrote := make(chan struct{}, kills+1)
	killed := make(chan struct{}, kills)
	go func() {
		defer close(wrote)
		defer feed.Close()
		at := 0
		for i := range kills + 1 {
			to := len(l.Lines) * (i + 1) / (kills + 1)
			if _, err := feed.Write(l.NDJSON(at, to)); err != nil {
				return
			}
			at = to
			wrote <- struct{}{}
			if i < kills {
				<-killed
			}
		}
	}()
	for i := range kills {
		followers[0].Has(t, len(l.Lines)*i/(kills+1)+1500)
		h.Kill()
		h.Start(t)
		<-wrote
		killed <- struct{}{}
		// Somebody is busy again.
		n := direct[0].Acknowledged()
		hubtest.Until(t, "publishing goes on", func() error {
			if direct[0].Acknowledged() < n+3 {
				return io.ErrNoProgress
			}
			return nil
		})
	}
	if code := source.Wait(); code != 0 {
		t.Fatalf("rspublish ends with %d: %s", code, source.Stderr.String())
	}
	for _, p := range direct {
		p.Finish()
	}

	all := hubtest.Memory(t, h, set)
	for _, p := range direct {
		p.Check(t, all)
	}
	var loaded []trial.Entry
	for _, e := range all {
		if !strings.Contains(e.Text, "//direct.example.org/") {
			loaded = append(loaded, e)
		}
	}
	hubtest.SameTexts(t, "what rspublish published", loaded, l.Texts)
	for _, f := range followers {
		hubtest.Same(t, "the "+f.Way, f.Has(t, len(all)), all)
		if f.Diverged > 0 {
			t.Errorf("the %s was told that the memory diverged", f.Way)
		}
	}
	hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, h, set), all)
}
