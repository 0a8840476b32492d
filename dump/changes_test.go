package dump

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Change Dump has the changes of one closed Change List, in their order, with the contents
// that there still are.
func TestChangeDump(t *testing.T) {
	w := newWorld(t)
	w.ok(w.make()) // dumps are on from here
	if rec := w.get("changedump.xml"); rec.Code != 404 || !strings.Contains(rec.Body.String(), "when the Change List closes") {
		t.Errorf("before the first list closes: %d %s", rec.Code, rec.Body)
	}
	begin, err := w.memory.State(t.Context(), set)
	w.ok(err)
	w.publish(w.put("/a", "a"), w.put("/b", "b1"), w.put("/b", "b2"), w.put("/gone", "gone"), w.change(resourcesync.Deleted, "/gone", ""))
	w.publish(w.put("/same", "same"), w.put("/same", "same"), w.change(resourcesync.Updated, "/none", ""), w.put("/later", "old"))
	last := w.publish(w.put("/c", "c"))
	w.publish(w.put("/later", "new"), w.put("/more", "more")) // they are in the next list
	w.ok(w.make())

	d := w.document("changedump.xml")
	if d.Capability != resourcesync.ChangeDump || !d.From.Equal(begin.Head.Time()) || !d.Until.IsZero() || len(d.Items) != 1 {
		t.Fatalf("the dump is %+v", d)
	}
	if it := d.Items[0]; !it.From.Equal(begin.Head.Time()) || !it.Until.Equal(last.Time()) {
		t.Errorf("the package is %+v", it)
	}
	h := w.open(&d.Items[0])
	if m := h.manifest; m.Capability != resourcesync.ChangeDumpManifest || !m.From.Equal(d.From) || !m.Until.Equal(last.Time()) {
		t.Errorf("the manifest is %+v", m.Header)
	}
	var got []string
	for _, it := range h.manifest.Items {
		got = append(got, fmt.Sprintf("%s %s %s", strings.TrimPrefix(it.Loc, w.origin.URL), it.Change.Change, h.texts[it.Path]))
		if it.Datetime.IsZero() || (it.Path == "") != (it.Change.Change == resourcesync.Deleted) {
			t.Errorf("the manifest has %+v", it)
		}
	}
	if want := "[/a updated a /b updated b2 /gone deleted  /same updated same /same updated same /c updated c]"; fmt.Sprint(got) != want {
		t.Errorf("the changes are %v, want %s", got, want)
	}
	_, whys := w.contents(d)
	if want := map[string]string{"/b": whyChanged, "/gone": whyDeleted, "/none": "the answer is 404 Not Found", "/later": whyChanged}; !maps.Equal(whys, want) {
		t.Errorf("missing: %v", whys)
	}
	if n := w.requests("/b") + w.requests("/later") + w.requests("/gone"); n != 1 {
		t.Errorf("contents that nobody has any more were asked for %d times", n-1)
	}
	w.idle()
}

// Change Dumps follow each other without a gap, whatever their packages hold. When there are many
// packages, changedump.xml is an index of closed documents.
func TestManyChangeDumps(t *testing.T) {
	for _, most := range []int{100, 3} {
		w := newWorld(t, func(o *Options) { o.PackageCount, o.most = 4, most })
		w.ok(w.make())
		want := map[string]string{}
		for i := range 45 {
			path := fmt.Sprintf("/%d", i)
			want[path] = fmt.Sprint(i)
			w.publish(w.put(path, want[path]))
			if i%20 == 5 {
				w.ok(w.make())
			}
			if i >= 40 {
				delete(want, path)
			}
		}
		fail := 2
		w.place.fail = func(name string) error {
			if fail--; fail == 0 {
				return syscall.ENOSPC
			}
			return nil
		}
		if err := w.make(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		w.restart()
		w.ok(w.make())
		d := w.document("changedump.xml")
		from := d.From
		if d.Index != (most == 3) {
			t.Fatalf("it is an index: %v", d.Index)
		}
		if d.Index {
			if len(d.Items) != 4 {
				t.Errorf("the index names %d dumps", len(d.Items))
			}
			flat := new(resourcesync.Document)
			for _, it := range d.Items {
				one := w.document(w.nameOf(it.Loc))
				if !one.From.Equal(it.From) || !one.Until.Equal(it.Until) || one.Until.IsZero() || one.Index {
					t.Errorf("%s is %+v, and the index says %+v", it.Loc, one.Header, it)
				}
				flat.Items = append(flat.Items, one.Items...)
			}
			d = flat
		}
		for i := range d.Items {
			if it := &d.Items[i]; !it.From.Equal(from) || !it.Until.After(from) {
				t.Errorf("package %d is from %v until %v, and the one before is until %v", i, it.From, it.Until, from)
			} else {
				from = it.Until
			}
		}
		all, whys := w.contents(d)
		if !maps.Equal(all, want) || len(whys) > 0 {
			t.Errorf("they hold %v, missing %v", all, whys)
		}
		for path := range want {
			if n := w.requests(path); n > 2 {
				t.Errorf("%s was asked for %d times", path, n)
			}
		}
		rec, err := readRecord(t.Context(), w.Maker.place, set)
		w.ok(err)
		st, err := w.memory.State(t.Context(), set)
		w.ok(err)
		w.ok(w.memory.Delete(t.Context(), set))
		w.ok(w.memory.Make(t.Context(), set, feed.Description{Dumps: true}, listSize))
		if got := w.get("changedump.xml"); got.Code != 404 || len(rec.Changes) != 4 || st.Head.Position != 45 {
			t.Errorf("a set that was made anew has the dumps of the one before: %d", got.Code)
		}
	}
}

// What a Maker shows goes with the lists that the log has.
func TestFits(t *testing.T) {
	names := func(r *record) (text string) {
		for i := range r.Changes {
			text += fmt.Sprint(r.Changes[i].List, " ")
		}
		return text + fmt.Sprint(r.next())
	}
	full := func() *record {
		r := &record{Begin: 5, First: 3, BegunChanges: &begun{made: made{List: 6, Log: "5"}}}
		for n := range uint64(3) {
			r.Changes = append(r.Changes, made{List: 3 + n, Log: "5"})
		}
		return r
	}
	for _, test := range []struct {
		name  string
		state feed.State
		want  string
		begun bool
	}{
		{"as it was", feed.State{Begin: 5, Head: feed.Cursor{Position: 65}}, "3 4 5 6", true},
		{"retention", feed.State{Begin: 5, Floor: feed.Cursor{Position: 40}, Head: feed.Cursor{Position: 65}}, "5 6", true},
		{"retention of all", feed.State{Begin: 5, Floor: feed.Cursor{Position: 80}, Head: feed.Cursor{Position: 95}}, "9", false},
		{"another log", feed.State{Begin: 6, Head: feed.Cursor{Position: 15}}, "2", false},
		{"a log that lost its tail", feed.State{Begin: 5, Head: feed.Cursor{Position: 41}}, "3 4 5", false},
		{"and was filled anew", feed.State{Begin: 5, Head: feed.Cursor{Position: 65}, Epochs: "5-x"}, "3 4 5", false},
		{"and only behind", feed.State{Begin: 5, Head: feed.Cursor{Position: 65}, Epochs: "6-x"}, "3 4 5 6", false},
	} {
		test.state.ListSize = 10
		r := full()
		r.fits(&test.state)
		if got := names(r); got != test.want || (r.BegunChanges != nil) != test.begun {
			t.Errorf("%s: %s, begun %v; want %s", test.name, got, r.BegunChanges != nil, test.want)
		}
	}
}
