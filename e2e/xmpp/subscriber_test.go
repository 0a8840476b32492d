package xmpp

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/conformance/trial"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A subscriber is a subscriber.py.
type subscriber struct{ *hubtest.Process }

func subscribe(t *testing.T, p *prosody, node string) *subscriber {
	t.Helper()
	s := &subscriber{hubtest.Start(t, nil, nil, "/usr/bin/python3", pathTo(t, "subscriber.py"), p.clients, "reader@example.org/test", "reader's", "pubsub.example.org", node)}
	s.ready(t, 1)
	return s
}

// ready waits until it has subscribed so many times.
func (s *subscriber) ready(t *testing.T, times int) {
	t.Helper()
	hubtest.Until(t, "the subscriber has subscribed", func() error {
		if s.Ended() {
			t.Fatalf("it has ended: %s", s.Stderr)
		}
		if n := strings.Count(s.Stdout.String(), `"ready": true`); n < times {
			return fmt.Errorf("%d times, not %d", n, times)
		}
		return nil
	})
}

// An item is a notification that a subscriber got.
type item struct {
	ID, Way string
	Payload string
	urlset
}

// A urlset is a payload as another program than rshub reads it.
type urlset struct {
	XMLName xml.Name `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 urlset"`
	Md      struct {
		Capability string `xml:"capability,attr"`
		After      string `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
		Cursor     string `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
		Gap        string `xml:"https://github.com/rshub/rshub/terms/ gap,attr"`
		Diverged   string `xml:"https://github.com/rshub/rshub/terms/ diverged,attr"`
	} `xml:"http://www.openarchives.org/rs/terms/ md"`
	Ln []struct {
		Rel  string `xml:"rel,attr"`
		Href string `xml:"href,attr"`
	} `xml:"http://www.openarchives.org/rs/terms/ ln"`
	URL []struct {
		Loc string `xml:"loc"`
		Md  struct {
			Change   string `xml:"change,attr"`
			Position uint64 `xml:"https://github.com/rshub/rshub/terms/ position,attr"`
		} `xml:"http://www.openarchives.org/rs/terms/ md"`
	} `xml:"url"`
}

// items returns what it got so far, in the order in which it came.
func (s *subscriber) items(t *testing.T) (all []item) {
	t.Helper()
	for line := range strings.Lines(s.Stdout.String()) {
		var it item
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &it) != nil || it.ID == "" {
			continue
		}
		if err := xml.Unmarshal([]byte(it.Payload), &it.urlset); err != nil {
			t.Fatalf("item %s: %v\n%s", it.ID, err, it.Payload)
		}
		if it.Md.Cursor != it.ID || it.Md.Capability != "change-notification" {
			t.Fatalf("item %s is %s", it.ID, it.Payload)
		}
		all = append(all, it)
	}
	return all
}

// took waits until it has what a memory has of a set, and checks that each change came in order:
// none is skipped, and one that comes again is the same as before. It returns how many came
// again.
func (s *subscriber) took(t *testing.T, h *hubtest.Hub, set string, memory []trial.Entry) (repeats int) {
	t.Helper()
	last := memory[len(memory)-1].Position
	hubtest.Until(t, "the subscriber has everything", func() error {
		head := uint64(0)
		for _, it := range s.items(t) {
			for _, u := range it.URL {
				head = max(head, u.Md.Position)
			}
		}
		if head < last {
			return fmt.Errorf("it has positions up to %d of %d", head, last)
		}
		return nil
	})
	locs := map[uint64]string{}
	at := uint64(0)
	for _, it := range s.items(t) {
		after, _, err := hubtest.SplitCursor(it.Md.After)
		if err != nil {
			t.Fatal(err)
		}
		if after > at {
			t.Errorf("an item goes on after position %d, and the subscriber has those up to %d", after, at)
		}
		if it.Md.Gap != "" {
			t.Errorf("item %s tells the gap %s", it.ID, it.Md.Gap)
		}
		for i, u := range it.URL {
			if u.Md.Position != after+1+uint64(i) {
				t.Errorf("item %s, after %d, has position %d as number %d", it.ID, after, u.Md.Position, i)
			}
			if was, ok := locs[u.Md.Position]; ok {
				repeats++
				if was != u.Loc {
					t.Errorf("position %d was %s, and is %s", u.Md.Position, was, u.Loc)
				}
			}
			locs[u.Md.Position] = u.Loc
		}
		if cursor, _, err := hubtest.SplitCursor(it.Md.Cursor); err != nil {
			t.Fatal(err)
		} else {
			at = max(at, cursor)
		}
	}
	for _, e := range memory {
		var c struct{ Loc string }
		if err := json.Unmarshal([]byte(e.Text), &c); err != nil || c.Loc == "" {
			t.Fatal(e.Text, err)
		}
		if locs[e.Position] != c.Loc {
			t.Errorf("position %d is %q at the subscriber, and %s in the memory", e.Position, locs[e.Position], c.Loc)
		}
	}
	return repeats
}

// metric waits until a metric of a hub has a value.
func metric(t *testing.T, h *hubtest.Hub, line string) {
	t.Helper()
	hubtest.Until(t, line, func() error {
		a, err := hubtest.Request("GET", h.Ops+"/metrics", nil)
		if err != nil {
			return err
		}
		if !strings.Contains(string(a.Body), "\n"+line+"\n") {
			return errors.New("not yet")
		}
		return nil
	})
}
