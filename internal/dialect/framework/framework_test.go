package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

const base = feed.Base("https://hub.example.org")

// A fixture is a memory with an Announcer.
type fixture struct {
	testing.TB
	log       changelog.Log
	hub       *hub.Hub
	announcer *Announcer
	at        feed.Cursor // cursor of the last announcement seen
}

func newFixture(t testing.TB) *fixture {
	r := &fixture{TB: t, log: memorytest.Open(t)}
	r.hub = hub.New(r.log, hub.Options{ListSize: 10})
	r.restart()
	r.describe("demo", feed.Description{Framework: true})
	r.describe("demo.framework", feed.Description{})
	return r
}

// restart replaces the Announcer by one without state.
func (f *fixture) restart() {
	anyone := func(ctx context.Context) context.Context {
		return access.NewContext(ctx, access.Caller{Rights: access.All()})
	}
	f.announcer = New(f.log, f.hub, documents.New(f.log, base, documents.Options{}), Options{AsAnonymous: anyone})
}

func (f *fixture) describe(set string, d feed.Description) {
	f.Helper()
	if err := f.hub.Describe(f.Context(), set, d); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) publish(n int) {
	f.Helper()
	if _, err := f.hub.Publish(f.Context(), "demo", changelog.Publish{Changes: memorytest.Changes("a", n)}); err != nil {
		f.Fatal(err)
	}
}

// wantAnnounced makes one check, and compares the new announcements.
func (f *fixture) wantAnnounced(want ...string) {
	f.Helper()
	if err := f.announcer.announceAll(f.Context()); err != nil {
		f.Fatal(err)
	}
	b, err := f.log.Since(f.Context(), "demo.framework", f.at, 100)
	if err != nil {
		f.Fatal(err)
	}
	f.at = b.Cursor
	var got []string
	for _, e := range b.Entries {
		got = append(got, fmt.Sprint(e.Change.FrameworkCapability(), " ", e.Change.Change))
		if h := b.Header(); h.Capability != resourcesync.FrameworkNotification {
			f.Errorf("got the capability %q, want framework-notification", h.Capability)
		}
	}
	if !slices.Equal(got, want) {
		f.Errorf("got announcements %q, want %q", got, want)
	}
}

// Each change of a document is announced once, even by a restarted hub.
func TestAnnounce(t *testing.T) {
	r := newFixture(t)
	r.wantAnnounced("capabilitylist created", "description created")
	r.publish(10)
	r.wantAnnounced("changelist created")
	r.publish(9)
	r.restart()
	r.wantAnnounced()
	r.publish(21)
	r.wantAnnounced("changelist created") // the newest closed one
	r.describe("demo", feed.Description{Framework: true, ResourceDump: "https://example.org/dump.xml"})
	r.restart()
	r.wantAnnounced("capabilitylist updated")
	r.describe("other", feed.Description{})
	r.wantAnnounced("description updated")
	r.wantAnnounced()
	r.describe("demo", feed.Description{Title: "no announcements"})
	r.publish(10)
	r.wantAnnounced()
}

// The deletion of a set is announced, and the documents of a new set with its name are announced
// again.
func TestAnnounceDeleted(t *testing.T) {
	r := newFixture(t)
	r.wantAnnounced("capabilitylist created", "description created")
	if err := r.hub.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	r.wantAnnounced("capabilitylist deleted")
	r.wantAnnounced()
	r.describe("demo", feed.Description{Framework: true})
	r.wantAnnounced("capabilitylist created")
	if err := r.hub.Delete(t.Context(), "demo.framework"); err != nil {
		t.Fatal(err)
	}
	if err := r.announcer.announceAll(t.Context()); err != nil {
		t.Error("announceAll() without a channel:", err)
	}
	r.describe("demo.framework", feed.Description{})
	r.at = feed.Cursor{}
	r.wantAnnounced("capabilitylist created", "description created")
}

// A lossyPublisher loses what is published.
type lossyPublisher struct{ Publisher }

func (lossyPublisher) Publish(context.Context, string, changelog.Publish) (changelog.Appended, error) {
	return changelog.Appended{Cursor: feed.Cursor{Position: 2, Micros: 2}, Count: 2}, nil
}

// Announcements that their log has lost, as after a failover, are repeated.
func TestAnnounceLost(t *testing.T) {
	r := newFixture(t)
	r.announcer.hub = lossyPublisher{r.hub}
	r.wantAnnounced()
	r.announcer.hub = r.hub
	r.wantAnnounced("capabilitylist created", "description created")
	r.wantAnnounced()
}

// A check reads only the newest announcements.
func TestManyAnnouncements(t *testing.T) {
	r := newFixture(t)
	r.wantAnnounced("capabilitylist created", "description created")
	many := memorytest.Changes("dumps", maxAnnouncements)
	for i := range many {
		many[i].Attrs = []resourcesync.Attr{resourcesync.CapabilityAttr(resourcesync.ResourceDump)}
	}
	a, err := r.hub.Publish(t.Context(), "demo.framework", changelog.Publish{Changes: many})
	if err != nil {
		t.Fatal(err)
	}
	r.at = a.Cursor
	r.wantAnnounced()
	r.restart()
	r.wantAnnounced("capabilitylist created", "description created")
}

// A deletingHub deletes a channel just before it publishes to it.
type deletingHub struct{ *hub.Hub }

func (d deletingHub) Publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error) {
	if err := d.Delete(ctx, set); err != nil {
		return changelog.Appended{}, err
	}
	return d.Hub.Publish(ctx, set, p)
}

// A channel that is deleted concurrently is not created again: it would no longer be private.
func TestAnnounceToDeleted(t *testing.T) {
	r := newFixture(t)
	r.describe("demo.framework", feed.Description{Private: true})
	r.announcer.hub = deletingHub{r.hub}
	if err := r.announcer.announceAll(t.Context()); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("announceAll() = %v, want ErrNoSet", err)
	}
	if st, err := r.log.State(t.Context(), "demo.framework"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("State(): got a channel (private: %t) with %d changes, %v, want ErrNoSet", st.Private, st.Len(), err)
	}
}
