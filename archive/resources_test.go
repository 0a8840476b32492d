package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A held is the newest Resource List of the tests.
type held struct {
	at        feed.Cursor
	completed time.Time
	parts     int
	err       error
}

// give lets the archive of w have Resource Lists, each a day after the last.
func (w *world) give(h *held) {
	w.opts.Every = 24 * time.Hour
	w.opts.Resources = func(context.Context, feed.State) (*ResourceList, error) {
		if h.parts == 0 {
			return nil, h.err
		}
		n := 1
		if h.parts > 1 {
			n += h.parts
		}
		return &ResourceList{At: h.at, Completed: h.completed, Documents: n, Write: func(_ context.Context, w io.Writer, n int, loc func(int) string) error {
			if h.err != nil && n > 0 {
				return h.err
			}
			_, err := w.Write(h.document(n, loc))
			return err
		}}, nil
	}
	w.restart()
}

// document returns document n of the list.
func (h *held) document(n int, loc func(int) string) []byte {
	doc := &resourcesync.Document{Header: resourcesync.Header{Capability: resourcesync.ResourceList, At: h.at.Time(), Completed: h.completed, Links: []resourcesync.Link{{Rel: "up", Href: base.CapabilityList(set)}}}}
	add := func(loc string) {
		var it resourcesync.Item
		it.Loc = loc
		doc.Items = append(doc.Items, it)
	}
	switch {
	case n == 0 && h.parts > 1:
		doc.Index = true
		for i := range h.parts {
			add(loc(i + 1))
		}
	default:
		add(fmt.Sprintf("https://example.org/%d", n))
	}
	ns := resourcesync.NewNamespaces("h", resourcesync.Terms)
	ns.Index = doc.Index
	b := resourcesync.AppendXMLHeader(nil, &doc.Header, ns)
	for i := range doc.Items {
		b = resourcesync.AppendXMLItem(b, &doc.Items[i], ns)
	}
	return resourcesync.AppendXMLFooter(b, &doc.Header)
}

// later makes the archive look again at once, as a hub that has started does.
func (w *world) later() {
	w.restart()
	w.look()
}

// head returns the cursor of the head.
func (w *world) head() feed.Cursor { return w.state().Head }

// Resource Lists are archived, one in a while, with all their parts.
func TestResourceLists(t *testing.T) {
	w := newWorld(t)
	h := &held{}
	w.give(h)
	w.publish(3)
	w.look()
	if rec := w.get("resourcelist-archive.xml"); rec.Code != http.StatusNotFound {
		t.Errorf("without a list: %d", rec.Code)
	}
	if changes, resources, err := w.Has(t.Context(), set); changes || resources || err != nil {
		t.Errorf("there are %v, %v, %v", changes, resources, err)
	}

	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h.at, h.completed, h.parts = w.head(), began, 1
	w.later()
	w.publish(2)
	h.at, h.completed, h.parts = w.head(), began.Add(23*time.Hour), 3 // too early
	w.later()
	if doc := w.read("resourcelist-archive.xml"); len(doc.Items) != 1 || doc.Capability != resourcesync.ResourceListArchive || doc.Links[0].Href != base.CapabilityList(set) ||
		!doc.Items[0].Completed.Equal(began) || doc.Items[0].At.IsZero() {
		t.Fatalf("the archive is %+v", doc)
	}
	h.completed = began.Add(24 * time.Hour)
	w.later()
	h.completed = began.Add(48 * time.Hour) // nothing has changed
	w.later()
	h.completed = began.Add(24 * time.Hour)
	doc := w.read("resourcelist-archive.xml")
	if len(doc.Items) != 2 || !doc.Items[0].At.Before(doc.Items[1].At) {
		t.Fatalf("the archive is %+v", doc)
	}
	index := w.read(doc.Items[1].Loc)
	if !index.Index || len(index.Items) != 3 {
		t.Fatalf("the index is %+v", index)
	}
	for i, it := range index.Items {
		rec := w.get(it.Loc)
		if want := h.document(i+1, nil); rec.Body.String() != string(want) || !strings.Contains(rec.Header().Get("Cache-Control"), "immutable") || !strings.HasPrefix(rec.Header().Get("Repr-Digest"), "sha-256=:") {
			t.Errorf("part %d is %d %v %s", i+1, rec.Code, rec.Header(), rec.Body)
		}
	}
	if got := w.read(doc.Items[0].Loc); got.Index || len(got.Items) != 1 {
		t.Errorf("the first list is %+v", got)
	}
	if changes, resources, err := w.Has(t.Context(), set); !changes || !resources || err != nil {
		t.Errorf("there are %v, %v, %v", changes, resources, err)
	}

	// Both archives are in one record, and are removed together.
	w.ok(w.memory.Describe(t.Context(), set, feed.Description{}))
	w.look()
	if n := w.files(); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// A list that breaks off is nothing, and is copied again. Change Lists go on meanwhile.
func TestResourceListBreaksOff(t *testing.T) {
	w := newWorld(t)
	h := &held{completed: time.Unix(1e9, 0), parts: 2, err: errors.New("the list was renewed")}
	w.give(h)
	w.publish(5)
	h.at = w.head()
	w.look()
	if rec := w.get("resourcelist-archive.xml"); rec.Code != http.StatusNotFound {
		t.Errorf("half a list is served: %d", rec.Code)
	}
	if doc := w.read("changelist-archive.xml"); len(doc.Items) != 1 {
		t.Errorf("there are %d Change Lists", len(doc.Items))
	}
	if n := testutil.ToFloat64(w.metrics.failed); n != 1 {
		t.Errorf("%v failures are counted", n)
	}
	h.err = nil
	w.look() // not yet
	if rec := w.get("resourcelist-archive.xml"); rec.Code != http.StatusNotFound {
		t.Errorf("it was tried again at once: %d", rec.Code)
	}
	w.later()
	if doc := w.read(w.read("resourcelist-archive.xml").Items[0].Loc); len(doc.Items) != 2 {
		t.Errorf("the list is %+v", doc)
	}

	// The place is away: the next look tries again.
	h.at.Position, h.completed = h.at.Position+1, h.completed.Add(48*time.Hour)
	w.place.fail = func(name string) error {
		if strings.Contains(name, "resourcelist-") {
			return errAway
		}
		return nil
	}
	w.later()
	w.place.fail = nil
	if doc := w.read("resourcelist-archive.xml"); len(doc.Items) != 1 {
		t.Errorf("there are %d Resource Lists", len(doc.Items))
	}
}

// Another hub makes the archive by now: this one keeps nothing.
func TestResourceListNotMine(t *testing.T) {
	w := newWorld(t)
	mine := true
	w.opts.Mine = func(string) bool { return mine }
	h := &held{completed: time.Unix(1e9, 0), parts: 1}
	w.give(h)
	give := w.opts.Resources
	w.opts.Resources = func(ctx context.Context, st feed.State) (*ResourceList, error) {
		mine = false
		return give(ctx, st)
	}
	w.publish(2)
	h.at = w.head()
	w.later()
	if rec := w.get("resourcelist-archive.xml"); rec.Code != http.StatusNotFound {
		t.Errorf("it is served: %d", rec.Code)
	}
}

// What the log has lost makes the lists void that knew it; what retention removed does not.
func TestResourceListsFit(t *testing.T) {
	st := feed.State{Set: set, Begin: 17, ListSize: 4, Head: feed.Cursor{Position: 30, Micros: 30}, Floor: feed.Cursor{Position: 8, Micros: 8}}
	rec := &record{Begin: 17}
	for _, n := range []uint64{0, 3, 9, 20, 29} {
		rec = rec.withResources(keptResources{Log: listLog(&st, listOf(&st, n)), At: feed.Cursor{Position: n, Micros: int64(n)}, Files: []file{{1, "00"}}})
	}
	for _, test := range []struct {
		head, epoch uint64 // the list of the epoch; 0: there is none
		want        int
	}{{30, 0, 5}, {28, 0, 4}, {19, 0, 3}, {30, 8, 4}, {30, 6, 4}, {30, 5, 3}, {30, 1, 2}} {
		now := st
		now.Head.Position = test.head
		if test.epoch > 0 {
			now.Epochs = feed.Epochs("").Begin("e", test.epoch, 1)
		}
		if got := len(rec.fits(&now).Resources); got != test.want {
			t.Errorf("with the head %d and an epoch from list %d, %d lists fit, want %d", test.head, test.epoch, got, test.want)
		}
	}
	now := st
	now.Begin = 18
	if got := len(rec.fits(&now).Resources); got != 0 {
		t.Errorf("of another log, %d lists fit", got)
	}
}

// A record finds the files of its Resource Lists, and nothing else.
func FuzzFile(f *testing.F) {
	rec := &record{}
	names := map[string]file{}
	for i := range 3 {
		k := keptResources{Log: "17", At: feed.Cursor{Position: uint64(7 * i), Micros: int64(i + 1)}, Whole: i == 1}
		for n := range i + 1 {
			k.Files = append(k.Files, file{int64(n), fmt.Sprint(i)})
			names[k.name(n)] = k.Files[n]
			f.Add(k.name(n))
		}
		f.Add(k.name(i + 1))
		rec = rec.withResources(k)
	}
	f.Add("resourcelist-17-7-2-01-seconds.xml")
	f.Add("resourcelist-17-7-2--1-seconds.xml")
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := rec.file(name)
		if want, there := names[name]; ok != there || got != want {
			t.Errorf("%q is %+v, %v", name, got, ok)
		}
	})
}
