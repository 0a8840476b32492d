package framework

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden file")

func TestMain(m *testing.M) { memorytest.Main(m) }

const base = feed.Base("https://hub.example.org")

// A world is a memory on disk, a hub, and a Watcher that sees documents as the test says.
type world struct {
	t       *testing.T
	log     *disklog.Log
	hub     *hub.Hub
	watcher *Watcher
	shown   map[string]Shown
	fails   error // of Describe
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, log: memorytest.Open(t), shown: map[string]Shown{}}
	w.hub = hub.New(w.log, hub.Options{Base: base, ListSize: 4})
	t.Cleanup(w.hub.Close)
	w.watcher = w.another()
	return w
}

// another returns a Watcher that knows nothing but what is kept.
func (w *world) another() *Watcher {
	return New(failing{w.log, w}, w.hub, w, base, Options{})
}

// failing is a log in which Describe may fail.
type failing struct {
	*disklog.Log
	*world
}

func (l failing) Describe(ctx context.Context, set string, d feed.Description) error {
	if l.fails != nil {
		return l.fails
	}
	return l.Log.Describe(ctx, set, d)
}

func (l failing) State(ctx context.Context, set string) (feed.State, error) {
	return l.Log.State(ctx, set)
}

func (w *world) Shown(_ context.Context, st *feed.State, _ *Shown) (Shown, error) {
	s := w.shown[st.Set]
	if s.CapabilityList == "" {
		s.CapabilityList = "title " + st.Title
	}
	return s, nil
}

func (w *world) ChangeList(st *feed.State, n uint64) string {
	return base.Document(st.Set, fmt.Sprintf("changelist-%s-%d.xml", st.Epochs.Of(n), n))
}

func (w *world) Description(_ context.Context, sets []feed.State) string {
	var names []string
	for _, st := range sets {
		names = append(names, st.Set)
	}
	return "sets " + strings.Join(names, " ")
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) publish(set string, n int) {
	w.t.Helper()
	memorytest.Fill(w.t, w.log, set) // makes it with the size of its own if it is not there
	for i := range n {
		memorytest.Fill(w.t, w.log, set, memorytest.Changes(fmt.Sprint("r", i), 1))
	}
}

func (w *world) make(set string, d feed.Description) {
	w.t.Helper()
	w.ok(w.log.Make(w.t.Context(), set, d, 4))
}

func (w *world) open(set string) {
	w.t.Helper()
	w.ok(w.watcher.Open(w.t.Context(), feed.FrameworkTopic(set)))
}

// look has the documents of all sets looked at once.
func (w *world) look() {
	w.t.Helper()
	w.watcher.scanned = time.Time{}
	w.watcher.scan(w.t.Context())
	for w.watcher.round(w.t.Context()) {
	}
}

// told returns what the topic of a set has, from a position on, in short.
func (w *world) told(set string, from uint64) (all []string) {
	w.t.Helper()
	at, err := w.log.At(w.t.Context(), feed.FrameworkTopic(set), from)
	w.ok(err)
	b, err := w.log.Since(w.t.Context(), feed.FrameworkTopic(set), at, 0)
	w.ok(err)
	for _, e := range b.Entries {
		w.ok(short(&all, &e))
	}
	return all
}

func short(all *[]string, e *feed.Entry) error {
	text := string(e.AppendJSON(nil))
	_, capability, _ := strings.Cut(text, `"capability":"`)
	capability, _, _ = strings.Cut(capability, `"`)
	s := strings.TrimPrefix(e.Change.Loc, string(base)+"/") + " " + capability + " " + string(e.Change.Change)
	for _, l := range e.Change.Links {
		s += " " + l.Rel + "=" + strings.TrimPrefix(l.Href, string(base)+"/")
	}
	*all = append(*all, s)
	return nil
}

func (w *world) want(set string, from uint64, want ...string) {
	w.t.Helper()
	if got := w.told(set, from); !slices.Equal(got, want) {
		w.t.Errorf("told of %s are\n%s\nwant\n%s", set, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// All that happens to the documents of a set is told once, in order, in the topic of a set that
// somebody follows, and in no other.
func TestTell(t *testing.T) {
	w := newWorld(t)
	w.make("demo", feed.Description{})
	w.make("other", feed.Description{})
	w.publish("demo", 2)
	w.look()
	if _, err := w.log.State(t.Context(), "demo:framework"); !errors.Is(err, feed.ErrNoSet) {
		t.Fatalf("a log that nobody asked for: %v", err)
	}
	if err := w.watcher.Open(t.Context(), "none:framework"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("the topic of no set: %v", err)
	}
	w.open("demo")
	w.open("demo")
	w.look()
	w.look()
	w.want("demo", 0)

	w.publish("demo", 3)
	w.look()
	w.look()
	const index = " index=sets/demo/changelist-index.xml"
	w.want("demo", 0, "sets/demo/changelist--1.xml changelist updated"+index, "sets/demo/changelist--2.xml changelist created"+index)
	w.publish("demo", 3) // a list that is closed exactly has no successor yet
	w.look()
	w.want("demo", 2, "sets/demo/changelist--2.xml changelist updated"+index)
	w.publish("demo", 9)
	w.look()
	w.want("demo", 3, "sets/demo/changelist--3.xml changelist created"+index, "sets/demo/changelist--3.xml changelist updated"+index,
		"sets/demo/changelist--4.xml changelist created"+index, "sets/demo/changelist--4.xml changelist updated"+index, "sets/demo/changelist--5.xml changelist created"+index)

	w.ok(w.log.Describe(t.Context(), "demo", feed.Description{Title: "new"}))
	w.look()
	w.want("demo", 8, "sets/demo/capabilitylist.xml capabilitylist updated")

	list := Document{Version: "1", Loc: string(base) + "/list"}
	w.shown["demo"] = Shown{CapabilityList: "title new", ResourceList: list, ResourceDump: list, ChangeDump: list}
	w.look()
	w.want("demo", 9, "list resourcelist created", "list resourcedump created", "list changedump created")
	list.Version = "2"
	w.shown["demo"] = Shown{CapabilityList: "title new", ResourceList: list, ResourceDump: list, ChangeDump: list}
	w.look()
	w.want("demo", 12, "list resourcelist updated", "list resourcedump created", "list changedump updated")
	part := Document{Version: "3", Loc: string(base) + "/part", Index: list.Loc}
	w.shown["demo"] = Shown{CapabilityList: "title new", ResourceList: part, ResourceDump: list, ChangeDump: list}
	w.look()
	w.want("demo", 15, "part resourcelist created index=list")
	w.shown["demo"] = Shown{CapabilityList: "less"}
	w.look()
	w.want("demo", 16, "sets/demo/capabilitylist.xml capabilitylist updated")
	w.make("hidden", feed.Description{Private: true})
	w.look()
	w.want("demo", 17)
	w.make("third", feed.Description{})
	w.look()
	w.want("demo", 17, ".well-known/resourcesync description updated")
	if _, err := w.log.State(t.Context(), "other:framework"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("the other set has a log: %v", err)
	}
}

// A set that is deleted, and one that is made anew, are told of in the same topic.
func TestAnew(t *testing.T) {
	w := newWorld(t)
	w.make("demo", feed.Description{})
	w.publish("demo", 5)
	w.open("demo")
	w.look()
	w.ok(w.hub.Delete(t.Context(), "demo"))
	w.look()
	w.look()
	w.want("demo", 0, "sets/demo/capabilitylist.xml capabilitylist deleted", ".well-known/resourcesync description updated")
	w.make("demo", feed.Description{})
	w.publish("demo", 1)
	w.look()
	w.want("demo", 2, "sets/demo/capabilitylist.xml capabilitylist created", "sets/demo/changelist--1.xml changelist created index=sets/demo/changelist-index.xml", ".well-known/resourcesync description updated")
	w.ok(w.hub.Delete(t.Context(), "demo"))
	w.make("demo", feed.Description{}) // between two looks
	w.look()
	w.want("demo", 5, "sets/demo/capabilitylist.xml capabilitylist deleted", "sets/demo/capabilitylist.xml capabilitylist created")
}

// In a new epoch, lists have other names, and that is told.
func TestEpoch(t *testing.T) {
	w := newWorld(t)
	w.make("demo", feed.Description{})
	w.publish("demo", 6)
	w.open("demo")
	begun, err := w.log.BeginEpoch(t.Context(), "demo", feed.Cursor{})
	if !begun || err != nil {
		t.Fatalf("no epoch begins: %v", err)
	}
	w.look()
	w.look()
	if got := w.told("demo", 0); len(got) != 1 || !strings.Contains(got[0], "-2.xml changelist created") || strings.Contains(got[0], "--") {
		t.Errorf("told is %q", got)
	}
}

// A hub that ends after it has noted something, and before it has noted that, tells it once
// more. Nothing is left out.
func TestTwice(t *testing.T) {
	w := newWorld(t)
	w.make("demo", feed.Description{})
	w.publish("demo", 1)
	w.open("demo")
	w.look()
	w.publish("demo", 3)
	w.fails = errors.New("the hub ends")
	w.look()
	w.fails = nil
	w.watcher = w.another()
	w.look()
	w.look()
	const closed = "sets/demo/changelist--1.xml changelist updated index=sets/demo/changelist-index.xml"
	w.want("demo", 0, closed, closed)
}

// Two hubs that look at the same time tell a thing once. A thing that happens a second time is
// told a second time.
func TestTogether(t *testing.T) {
	w := newWorld(t)
	w.make("demo", feed.Description{})
	w.open("demo")
	w.look()
	topic, err := w.log.State(t.Context(), "demo:framework")
	w.ok(err)
	for _, title := range []string{"a", "", "a"} {
		w.ok(w.log.Describe(t.Context(), "demo", feed.Description{Title: title}))
		st, err := w.log.State(t.Context(), "demo")
		w.ok(err)
		for _, hub := range []*Watcher{w.watcher, w.another()} {
			hub.description = w.watcher.description
			_, err := hub.tell(t.Context(), &topic, &st)
			w.ok(err)
		}
		topic, err = w.log.State(t.Context(), "demo:framework")
		w.ok(err)
	}
	const changed = "sets/demo/capabilitylist.xml capabilitylist updated"
	w.want("demo", 0, changed, changed, changed)
}

// Many lists are told of in parts.
func TestManyLists(t *testing.T) {
	w := newWorld(t)
	w.make("demo", feed.Description{})
	w.open("demo")
	memorytest.Fill(t, w.log, "demo", memorytest.Changes("a", 4*2*mostLists+1))
	w.look()
	told := w.told("demo", 0)
	if n := 2*(2*mostLists) + 1; len(told) != n {
		t.Fatalf("%d things are told, want %d", len(told), n)
	}
	for i, text := range told {
		if !strings.HasPrefix(text, fmt.Sprintf("sets/demo/changelist--%d.xml changelist %s ", i/2+1, []string{"created", "updated"}[i%2])) {
			t.Fatalf("thing %d is %s", i, text)
		}
	}
}

// The log of a topic outlives its set for longer than any lease, and is removed then.
func TestExpire(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	w.watcher = New(w.log, w.hub, w, base, Options{Now: func() time.Time { return now }})
	w.make("demo", feed.Description{})
	w.open("demo")
	w.look()
	w.ok(w.hub.Delete(t.Context(), "demo"))
	w.look()
	now = now.Add(keepFor - time.Hour)
	w.look()
	if _, err := w.log.State(t.Context(), "demo:framework"); err != nil {
		t.Fatalf("too early: %v", err)
	}
	now = now.Add(2 * time.Hour)
	w.look()
	if _, err := w.log.State(t.Context(), "demo:framework"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("the log is still there: %v", err)
	}
}

// Run looks by itself, and at what others open, too.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.watcher.Run(ctx) }()
		w.make("demo", feed.Description{})
		w.ok(w.another().Open(t.Context(), "demo:framework"))
		w.publish("demo", 5)
		time.Sleep(scanEvery + lookEvery)
		synctest.Wait()
		if n := len(w.told("demo", 0)); n != 3 {
			t.Errorf("%d things are told", n)
		}
		w.publish("demo", 3)
		time.Sleep(lookEvery)
		synctest.Wait()
		if n := len(w.told("demo", 0)); n != 4 {
			t.Errorf("%d things are told", n)
		}
		cancel()
		w.ok(<-done)
		w.hub.Close()
	})
}

// What is told is a framework notification, as the standard has it.
func TestGolden(t *testing.T) {
	before := Shown{Begin: 1, Description: "1", CapabilityList: "1", ResourceList: Document{Version: "1"}, List: 1, Name: "https://hub.example.org/sets/demo/changelist-1-1.xml"}
	now := Shown{Begin: 1, Description: "2", CapabilityList: "2", List: 2, Closed: 1,
		ResourceList: Document{"2", "https://hub.example.org/sets/demo/resourcelist-9-9-1.xml", "https://hub.example.org/sets/demo/resourcelist.xml"},
		ResourceDump: Document{Version: "1", Loc: "https://hub.example.org/sets/demo/resourcedump.xml"}}
	events := difference(base, "demo", &before, &now, 1, func(n uint64) string { return fmt.Sprintf("https://hub.example.org/sets/demo/changelist-1-%d.xml", n) })
	for i := range events {
		c := events[i]
		c.Attrs = nil // the hub's own
		w := &c
		if err := w.Validate(); err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
	at := feed.Cursor{Position: uint64(len(events)), Micros: 1767323045000000}
	text := feed.NewBatch("demo:framework", feed.Cursor{Micros: at.Micros - 1_000_000}, at, events).XML()
	const file = "testdata/notification.golden.xml"
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, text, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(text, want) {
		t.Errorf("%v: the notification is\n%s", err, text)
	}
	doc, err := resourcesync.ReadXML(bytes.NewReader(text), resourcesync.Limits{})
	if err != nil || doc.Capability != resourcesync.FrameworkNotification || len(doc.Items) != len(events) || doc.Items[0].Capability != resourcesync.ChangeList {
		t.Errorf("it reads as %+v, %v", doc, err)
	}
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed: the notification is not held against the XML schemas")
	}
	cmd := exec.Command(xmllint, "--nonet", "--noout", "--schema", "../resourcesync/testdata/xsd/urlset.xsd", "-")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
