package e2e

import (
	"io"
	"strings"
	"testing"
)

// TestKill kills the hub while everybody is busy. What it has acknowledged has
// to be in the memory once, and at every follower.
func TestKill(t *testing.T) {
	t.Parallel()
	const set, kills = "killed", 5
	h := startHub(t, "RSHUB_CHANGELIST_SIZE=3000")
	l := someLoad(t)
	var followers []*follower
	for _, way := range allWays {
		followers = append(followers, follow(t, h, way, set, "start"))
	}
	in, feed := feed(t)
	source := start(t, nil, in, rspublishBin, "-hub", h.url, "-set", set, "-key", "the-load", "-")
	direct := []*publisher{
		publishing(t, h, set, "keyed", true),
		publishing(t, h, set, "keyless", false),
	}
	// Each time the source is in the middle of a batch, or waits for an answer.
	wrote := make(chan struct{}, kills+1)
	killed := make(chan struct{}, kills)
	go func() {
		defer close(wrote)
		defer feed.Close()
		at := 0
		for i := range kills + 1 {
			to := len(l.lines) * (i + 1) / (kills + 1)
			if _, err := feed.Write(l.ndjson(at, to)); err != nil {
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
		followers[0].has(t, len(l.lines)*i/(kills+1)+1500)
		h.kill()
		h.start(t)
		<-wrote
		killed <- struct{}{}
		// Somebody is busy again.
		n := direct[0].acknowledged()
		until(t, "publishing goes on", func() error {
			if direct[0].acknowledged() < n+3 {
				return io.ErrNoProgress
			}
			return nil
		})
	}
	if code := source.wait(); code != 0 {
		t.Fatalf("rspublish ends with %d: %s", code, source.stderr.String())
	}
	for _, p := range direct {
		p.finish()
	}

	all := memory(t, h, set)
	for _, p := range direct {
		p.check(t, all)
	}
	var loaded []entry
	for _, e := range all {
		if !strings.Contains(e.text, "//direct.example.org/") {
			loaded = append(loaded, e)
		}
	}
	sameTexts(t, "what rspublish published", loaded, l.texts)
	for _, f := range followers {
		same(t, "the "+f.way, f.has(t, len(all)), all)
		if f.diverged > 0 {
			t.Errorf("the %s was told that the memory diverged", f.way)
		}
	}
	same(t, "the walk over all Change Lists", walk(t, h, set), all)
}
