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

// A room is a memory with the parts that announce what changes in it.
type room struct {
	testing.TB
	log       changelog.Log
	hub       *hub.Hub
	announcer *Announcer
	at        feed.Cursor // behind what announced has returned
}

func newRoom(t testing.TB) *room {
	r := &room{TB: t, log: memorytest.Open(t)}
	r.hub = hub.New(r.log, hub.Options{ListSize: 10})
	r.restart()
	r.describe("demo", feed.Description{Framework: true})
	r.describe("demo.framework", feed.Description{})
	return r
}

// restart makes another announcer, which knows nothing.
func (r *room) restart() {
	anyone := func(ctx context.Context) context.Context {
		return access.NewContext(ctx, access.Caller{Rights: access.All()})
	}
	r.announcer = New(r.log, r.hub, documents.New(r.log, base, documents.Options{}), Options{Anyone: anyone})
}

func (r *room) describe(set string, d feed.Description) {
	r.Helper()
	if err := r.hub.Describe(r.Context(), set, d); err != nil {
		r.Fatal(err)
	}
}

func (r *room) publish(n int) {
	r.Helper()
	if _, err := r.hub.Publish(r.Context(), "demo", changelog.Publish{Changes: memorytest.Changes("a", n)}); err != nil {
		r.Fatal(err)
	}
}

// wants looks once, and compares what was announced then.
func (r *room) wants(want ...string) {
	r.Helper()
	if err := r.announcer.look(r.Context()); err != nil {
		r.Fatal(err)
	}
	b, err := r.log.Since(r.Context(), "demo.framework", r.at, 100)
	if err != nil {
		r.Fatal(err)
	}
	r.at = b.Cursor
	var got []string
	for _, e := range b.Entries {
		got = append(got, fmt.Sprint(e.Change.FrameworkCapability(), " ", e.Change.Change))
		if h := b.Header(); h.Capability != resourcesync.FrameworkNotification {
			r.Errorf("the capability of a notification is %q", h.Capability)
		}
	}
	if !slices.Equal(got, want) {
		r.Errorf("announced %q, want %q", got, want)
	}
}

// Each change of a document is announced once, also by a hub that has just begun.
func TestAnnounce(t *testing.T) {
	r := newRoom(t)
	r.wants("capabilitylist created", "description created")
	r.publish(10)
	r.wants("changelist created")
	r.publish(9)
	r.restart()
	r.wants()
	r.publish(21)
	r.wants("changelist created") // the newest that is closed
	r.describe("demo", feed.Description{Framework: true, ResourceDump: "https://example.org/dump.xml"})
	r.restart()
	r.wants("capabilitylist updated")
	r.describe("other", feed.Description{})
	r.wants("description updated")
	r.wants()
	r.describe("demo", feed.Description{Title: "it asks for no announcements"})
	r.publish(10)
	r.wants()
}

// That a set is deleted is announced, and what another set of the name has is announced anew.
func TestAnnounceDeleted(t *testing.T) {
	r := newRoom(t)
	r.wants("capabilitylist created", "description created")
	if err := r.hub.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	r.wants("capabilitylist deleted")
	r.wants()
	r.describe("demo", feed.Description{Framework: true})
	r.wants("capabilitylist created")
	if err := r.hub.Delete(t.Context(), "demo.framework"); err != nil {
		t.Fatal(err)
	}
	if err := r.announcer.look(t.Context()); err != nil {
		t.Error("without a channel:", err)
	}
	r.describe("demo.framework", feed.Description{})
	r.at = feed.Cursor{}
	r.wants("capabilitylist created", "description created")
}

// A forgetful memory loses what is published.
type forgetful struct{ Publisher }

func (forgetful) Publish(context.Context, string, changelog.Publish) (changelog.Appended, error) {
	return changelog.Appended{Cursor: feed.Cursor{Position: 2, Micros: 2}, Count: 2}, nil
}

// What the log of announcements has lost, as after a failover, is announced again.
func TestAnnounceLost(t *testing.T) {
	r := newRoom(t)
	r.announcer.hub = forgetful{r.hub}
	r.wants()
	r.announcer.hub = r.hub
	r.wants("capabilitylist created", "description created")
	r.wants()
}

// A look reads the newest announcements only.
func TestManyAnnouncements(t *testing.T) {
	r := newRoom(t)
	r.wants("capabilitylist created", "description created")
	many := memorytest.Changes("dumps", newest)
	for i := range many {
		many[i].Attrs = []resourcesync.Attr{resourcesync.CapabilityAttr(resourcesync.ResourceDump)}
	}
	a, err := r.hub.Publish(t.Context(), "demo.framework", changelog.Publish{Changes: many})
	if err != nil {
		t.Fatal(err)
	}
	r.at = a.Cursor
	r.wants()
	r.restart()
	r.wants("capabilitylist created", "description created")
}

// A deleting hub deletes the channel just before it publishes to it.
type deleting struct{ *hub.Hub }

func (d deleting) Publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error) {
	if err := d.Delete(ctx, set); err != nil {
		return changelog.Appended{}, err
	}
	return d.Hub.Publish(ctx, set, p)
}

// A channel that is deleted meanwhile is not made again: it would not be private any more.
func TestAnnounceToDeleted(t *testing.T) {
	r := newRoom(t)
	r.describe("demo.framework", feed.Description{Private: true})
	r.announcer.hub = deleting{r.hub}
	if err := r.announcer.look(t.Context()); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("it is announced: %v", err)
	}
	if st, err := r.log.State(t.Context(), "demo.framework"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("the channel is there, private is %t, with %d changes: %v", st.Private, st.Len(), err)
	}
}
