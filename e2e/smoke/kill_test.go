package smoke

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestKill kills a hub with its memory on disk while four sources publish. After the restart the
// memory has every acknowledged change once, at the acknowledged position, and the changes of each
// source in order. A source without a response retries with the same key. Followers continue at
// their cursors, and have all entries of the memory.
func TestKill(t *testing.T) {
	t.Parallel()
	const set = "killed"
	h := hubtest.StartHub(t)
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllTransports {
		followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
	}
	var sources []*hubtest.Publisher
	for i := range 4 {
		sources = append(sources, hubtest.StartPublisher(t, h, set, "source"+strconv.Itoa(i), true))
	}
	hubtest.Until(t, "300 publishes are acknowledged", func() error {
		n := 0
		for _, p := range sources {
			n += p.Acknowledged()
		}
		if n < 300 {
			return fmt.Errorf("got %d", n)
		}
		return nil
	})
	h.Kill()
	h.Start(t)
	hubtest.WaitPublishing(t, 5, sources...)
	for _, p := range sources {
		p.Finish()
	}

	all := hubtest.ReadMemory(t, h, set)
	n := 0
	for _, p := range sources {
		p.Check(t, all)
		published := textsOf(p)
		hubtest.WantTexts(t, "changes of "+p.Name, ofSource(all, p.Name), published)
		n += len(published)
	}
	if len(all) != n {
		t.Errorf("got %d changes, want the %d published ones", len(all), n)
	}
	for _, f := range followers {
		hubtest.WantEntries(t, "the "+f.Transport, f.WaitEntries(t, len(all)), all)
		if f.Diverged > 0 {
			t.Errorf("the %s got a divergence", f.Transport)
		}
	}
}

// textsOf returns the changes of a finished source in order.
func textsOf(p *hubtest.Publisher) (all []string) {
	for _, b := range p.Batches {
		all = append(all, b.Texts...)
	}
	return all
}

// ofSource returns the entries of a source.
func ofSource(all []trial.Entry, name string) (own []trial.Entry) {
	for _, e := range all {
		if strings.Contains(e.Text, "//direct.example.org/"+name+"/") {
			own = append(own, e)
		}
	}
	return own
}
