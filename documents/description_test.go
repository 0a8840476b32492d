package documents_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A changing log deletes one set after the other, each time that somebody has read what sets
// there are, as often as left says.
type changing struct {
	*memory
	left int
}

func (c *changing) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	states, err := c.memory.Sets(ctx, names...)
	if c.left > 0 && err == nil {
		c.left--
		err = c.Delete(ctx, states[0].Set)
	}
	return states, err
}

// Sets that are deleted while the Source Description is made are no fault of the memory: it
// is made anew.
func TestSetsDeletedWhileRead(t *testing.T) {
	for _, test := range []struct {
		deleted int
		kept    int64 // bytes of the cache; few: the description is streamed
		status  int
	}{{0, 0, 200}, {1, 0, 200}, {5, 0, 200}, {5, 1, 200}, {40, 0, 503}} {
		m := newMemory(t)
		for i := range 50 {
			m.make(fmt.Sprint("s", i), 4)
		}
		s := newServer(m, documents.Options{CacheBytes: test.kept})
		s.Server = documents.New(&changing{m, test.deleted}, base, documents.Options{CacheBytes: test.kept})
		w := s.get("/.well-known/resourcesync")
		if n := strings.Count(w.Body.String(), "<url>"); w.Code != test.status || w.Code == 200 && n != 50-test.deleted {
			t.Errorf("with %d deleted: %d with %d sets", test.deleted, w.Code, n)
		}
		if retry := w.Header().Get("Retry-After"); (retry != "") != (w.Code == 503) || w.Code == 503 && !strings.Contains(w.Body.String(), "the sets changed") {
			t.Errorf("with %d deleted: Retry-After is %q: %s", test.deleted, retry, w.Body)
		}
	}
}

// A Capability List names the source's own documents where the hub has none, and never the
// source's own Change List, whose URL may be a secret.
func TestSourcesOwnDocuments(t *testing.T) {
	m := newMemory(t)
	m.make("demo", 4)
	s := newServer(m, documents.Options{})
	before := s.get("/sets/demo/capabilitylist.xml")
	if err := m.Describe(m.Context(), "demo", feed.Description{
		ResourceList: "https://example.org/resourcelist.xml?a=1&b=2", ResourceDump: "https://example.org/dump.xml",
		ChangeDump: "https://example.org/changedump.xml", ChangeList: "https://example.org/secret",
	}); err != nil {
		t.Fatal(err)
	}
	w := s.get("/sets/demo/capabilitylist.xml")
	doc, err := resourcesync.ReadXML(w.Body, resourcesync.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range doc.Items {
		got = append(got, item.Capability+" "+item.Change.Loc)
	}
	want := []string{
		"resourcelist https://example.org/resourcelist.xml?a=1&b=2", "resourcedump https://example.org/dump.xml",
		"changelist " + feed.Base(base).ChangeListIndex("demo"), "changedump https://example.org/changedump.xml",
		"change-notification " + feed.Base(base).Topic("demo"), "framework-notification " + feed.Base(base).Topic(feed.FrameworkTopic("demo")),
	}
	if !slices.Equal(got, want) {
		t.Errorf("it has\n\t%q, want\n\t%q", got, want)
	}
	if tag := w.Header().Get("ETag"); tag == "" || tag == before.Header().Get("ETag") {
		t.Errorf("the ETag is %q, it was %q", tag, before.Header().Get("ETag"))
	}
}
