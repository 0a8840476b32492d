package smoke

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestKill kills a hub, which has its memory on the disk, while four sources publish. After
// the restart the memory has what was acknowledged once, at the place that the source was
// told, and each source's changes in their order. A source that got no answer asks again with
// the same key. Followers go on where they were, and have all that the memory has.
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
			return fmt.Errorf("%d are", n)
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
		hubtest.WantTexts(t, "of "+p.Name+" the memory", ofSource(all, p.Name), published)
		n += len(published)
	}
	if len(all) != n {
		t.Errorf("the memory has %d changes, and %d were published", len(all), n)
	}
	for _, f := range followers {
		hubtest.WantEntries(t, "the "+f.Transport, f.WaitEntries(t, len(all)), all)
		if f.Diverged > 0 {
			t.Errorf("the %s was told that the memory diverged", f.Transport)
		}
	}
}

// textsOf returns what a source that has finished has published, in order.
func textsOf(p *hubtest.Publisher) (all []string) {
	for _, b := range p.Batches {
		all = append(all, b.Texts...)
	}
	return all
}

// ofSource returns what a source has published, of all entries.
func ofSource(all []trial.Entry, name string) (its []trial.Entry) {
	for _, e := range all {
		if strings.Contains(e.Text, "//direct.example.org/"+name+"/") {
			its = append(its, e)
		}
	}
	return its
}
