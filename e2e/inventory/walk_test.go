package inventory

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestWalk has a client that knows the standard, and nothing else of hubs, synchronize
// while changes flow: discovery, baseline, increments, audit.
func TestWalk(t *testing.T) {
	t.Run("a hub on disk", func(t *testing.T) {
		t.Parallel()
		walk(t, hubtest.StartHub(t, "RSHUB_RESOURCELIST_INTERVAL=1s", "RSHUB_CHANGELIST_SIZE=1000"))
	})
	t.Run("two hubs on Redis", func(t *testing.T) {
		t.Parallel()
		walk(t, hubtest.StartCluster(t, 2, "RSHUB_RESOURCELIST_INTERVAL=1s", "RSHUB_CHANGELIST_SIZE=1000").Hubs...)
	})
}

func walk(t *testing.T, hubs ...*hubtest.Hub) {
	r := hubtest.Random(t)
	l := hubtest.SomeLoad(t)
	s := newSource("walked")
	first := len(l.Lines) / 4
	s.publish(t, hubs[0], l.Lines[:first])
	w := &walker{t: t, hub: hubs[0], set: s.set}
	// Nobody has said that the hub knows all.
	if w.discover(); w.resourceList != "" {
		t.Fatalf("%s is advertised, although nobody said that it is complete", w.resourceList)
	}
	s.complete(t, hubs[0])
	hubtest.Until(t, "the Resource List is advertised", func() error {
		if w.discover(); w.resourceList == "" {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	stream := &stream{source: s, truth: fold{}}
	done := stream.replay(t, r, l.Lines[first:], hubs)
	walks, lists := 0, map[string]bool{}
	for over := false; !over; walks++ {
		select {
		case <-done:
			over = true
		default:
		}
		if walks%3 == 0 {
			w.discover()
			w.baseline()
			lists[w.at.String()] = true
			same(t, "the Resource List", w.held, s.atTime(t, hubs[0], w.at))
		}
		w.audit()
	}
	for _, h := range hubs {
		s.proved(t, h)
	}
	w.baseline()
	w.audit()
	_, want := s.newest(t)
	same(t, "the walker", w.held, want)
	t.Logf("%d walks over %d documents, with %d Resource Lists, while changes flowed", walks, w.documents, len(lists))
}

// TestSizes looks at the forms of the Resource List: 0 and 1 resources, as many as one
// document may have, one less, and one more.
func TestSizes(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_RESOURCELIST_INTERVAL=1s")
	s := newSource("sized")
	w := &walker{t: t, hub: h, set: s.set}
	// A set that was emptied has a list that is empty, and does not offer it: the schema of
	// sitemaps has none without items.
	one := resources("sized", 1)
	s.publish(t, h, one)
	s.publish(t, h, [][]byte{resourceLine(locOf("sized", 0), "deleted", 0)})
	s.complete(t, h)
	has := 0
	for _, n := range []int{0, 1, 49_999, 50_000, 50_001} {
		for all := resources("sized", n)[has:]; len(all) > 0; {
			batch := min(len(all), 10_000)
			s.publish(t, h, all[:batch])
			all = all[batch:]
		}
		has = n
		head, want := s.newest(t)
		s.proved(t, h)
		tag := "-"
		hubtest.Until(t, fmt.Sprintf("the Resource List has %d resources", n), func() error {
			a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+s.set+"/resourcelist.xml", nil, "If-None-Match: "+tag, "Accept-Encoding: identity")
			if err != nil || a.Status == http.StatusNotModified {
				return fmt.Errorf("it was not renewed: %v", err)
			}
			if a.Status != http.StatusOK {
				return fmt.Errorf("%d: %s", a.Status, a.Body)
			}
			tag = a.Header.Get("ETag")
			d, err := readStrictly("resourcelist.xml", a.Body)
			if err != nil {
				t.Fatal(err)
			}
			if cursor := d.md[hubNS+" cursor"]; cursor != head {
				return fmt.Errorf("it is at %s, and not at %s", cursor, head)
			}
			if d.index != (n > maxItems) || !d.index && len(d.items) != n || d.index && len(d.items) != 2 {
				t.Fatalf("of %d resources: index %v with %d items", n, d.index, len(d.items))
			}
			return nil
		})
		if w.discover(); (w.resourceList == "") != (n == 0) {
			t.Fatalf("with %d resources the Resource List is %q", n, w.resourceList)
		}
		if n > 0 {
			w.baseline()
			same(t, fmt.Sprintf("the Resource List of %d", n), w.held, want)
			w.audit()
		}
	}
}
