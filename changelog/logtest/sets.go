package logtest

import (
	"context"
	"fmt"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var setTests = []test{
	{"make", false, func(m *memory) {
		before := m.now()
		d := feed.Description{Title: "Two words & <more>, ünïcode", DescribedBy: "https://example.org/about", ChangeList: "https://example.org/changelist.xml?a=1", ResourceList: "https://example.org/list <1>"}
		m.ok(m.Make(m.ctx, name, d, 123))
		s := m.state()
		if s.Begin < before-skew.Microseconds() || s.Begin > before+skew.Microseconds() {
			m.Errorf("log begins at %d, want about %d", s.Begin, before)
		}
		floor := feed.Cursor{Micros: s.Begin}
		m.same("state", s, feed.State{Set: name, Description: d, ListSize: 123, Begin: s.Begin, Floor: floor, Head: floor, BeforeLatest: floor})
		if b := m.after(feed.Cursor{}, 0); len(b.Entries) > 0 {
			m.Error("a new log has entries")
		}
	}},
	{"a log begins at the store's now", true, func(m *memory) {
		m.make(name, k)
		m.same("begin", m.state().Begin, m.now())
	}},
	{"make again changes nothing", false, func(m *memory) {
		m.make(name, k)
		m.add(3)
		s := m.state()
		m.ok(m.Make(m.ctx, name, feed.Description{Title: "other"}, k+1))
		m.same("state", m.state(), s)
	}},
	{"make refuses names and list sizes that are none", false, func(m *memory) {
		for _, bad := range []string{"", "a/b", "A", ".a", "a b", "é"} {
			m.wants(resourcesync.ErrInvalid, m.Make(m.ctx, bad, feed.Description{}, k))
		}
		for _, size := range []int{-1, 0, changelog.MaxListSize + 1} {
			m.wants(resourcesync.ErrInvalid, m.Make(m.ctx, name, feed.Description{}, size))
		}
		m.ok(m.Make(m.ctx, name, feed.Description{}, changelog.MaxListSize))
		m.ok(m.Make(m.ctx, "a.b-c_9", feed.Description{}, 1))
	}},
	{"describe", false, func(m *memory) {
		m.make(name, k)
		m.add(3)
		want := m.state()
		for _, want.Description = range []feed.Description{
			{DescribedBy: "https://example.org/new", ChangeList: "https://example.org/new.xml"},
			{ResourceList: "https://example.org/resources.xml", ResourceDump: "https://example.org/dump.xml?a=\"b\"", ChangeDump: "https://example.org/changedump.xml", NoInventory: true},
			{},
			{NoInventory: true, Lastmod: feed.LastmodSeconds, NoPush: true, Sitemap: true},
			{CloudEvents: `{"types":{"\u003ca\u003e":"none"},"loc":"https://example.org/{subject}"}`},
			{Source: "https://example.org/sitemap.xml?a=1", Every: 15 * time.Minute},
		} {
			m.ok(m.Describe(m.ctx, name, want.Description))
			m.same("state", m.state(), want)
			m.reopen()
			m.same("state", m.state(), want)
		}
		m.ok(m.Delete(m.ctx, name))
		m.make(name, k)
		m.same("description", m.state().Description, feed.Description{Title: "Title of " + name})
	}},
	{"sets are sorted and apart", false, func(m *memory) {
		for _, set := range []string{"b", "a-b", "a", "a.b", "a0", "c", "ab"} {
			m.make(set, k)
		}
		for i, set := range []string{"a", "a-b", "a.b", "a0", "ab"} {
			_, err := m.Append(m.ctx, set, publish(i+1))
			m.ok(err)
		}
		m.ok(m.Delete(m.ctx, "c"))
		m.ok(m.Delete(m.ctx, "a"))
		check := func() {
			states, err := m.Sets(m.ctx)
			m.ok(err)
			var got []string
			for _, s := range states {
				got = append(got, fmt.Sprint(s.Set, " ", s.Head.Position))
				one, err := m.State(m.ctx, s.Set)
				m.ok(err)
				m.same("state", s, one)
				b, err := m.Since(m.ctx, s.Set, feed.Cursor{}, 0)
				m.ok(err)
				m.same("entries", uint64(len(b.Entries)), s.Head.Position)
			}
			m.same("sets", got, []string{"a-b 2", "a.b 3", "a0 4", "ab 5", "b 0"})
			some, err := m.Sets(m.ctx, "b", "a", "never", "a.b")
			m.ok(err)
			m.same("sets by name", some, []feed.State{states[1], states[4]})
		}
		check()
		m.reopen()
		check()
	}},
	{"no sets", false, func(m *memory) {
		states, err := m.Sets(m.ctx)
		m.ok(err)
		m.same("number of sets", len(states), 0)
	}},
	{"what is not made", false, func(m *memory) {
		m.make("other", k)
		m.wants(feed.ErrNoSet, m.Describe(m.ctx, name, feed.Description{}))
		m.wants(feed.ErrNoSet, m.Delete(m.ctx, name))
		_, err := m.State(m.ctx, name)
		m.wants(feed.ErrNoSet, err)
		_, err = m.Append(m.ctx, name, publish(1))
		m.wants(feed.ErrNoSet, err)
		_, err = m.At(m.ctx, name, 0)
		m.wants(feed.ErrNoSet, err)
		_, err = m.Seek(m.ctx, name, 0)
		m.wants(feed.ErrNoSet, err)
		_, err = m.Trim(m.ctx, name, changelog.Retention{})
		m.wants(feed.ErrNoSet, err)
		_, err = m.Since(m.ctx, name, feed.Cursor{Position: 1, Micros: 1}, 0)
		m.wants(feed.ErrGone, err)
		_, err = m.Since(m.ctx, name, feed.Cursor{Micros: 1}, 0)
		m.wants(feed.ErrGone, err)
		b, err := m.Since(m.ctx, name, feed.Cursor{}, 0)
		m.ok(err)
		if b.Set != name || b.Diverged || len(b.Entries) > 0 || !b.After.IsZero() || !b.Cursor.IsZero() {
			m.Errorf("batch is %+v", b)
		}
	}},
	{"delete", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		m.ok(m.Delete(m.ctx, name))
		for range 2 {
			_, err := m.State(m.ctx, name)
			m.wants(feed.ErrNoSet, err)
			_, err = m.Append(m.ctx, name, publish(1))
			m.wants(feed.ErrNoSet, err)
			m.wants(feed.ErrNoSet, m.Delete(m.ctx, name))
			m.reopen()
		}
	}},
	{"made again", false, func(m *memory) {
		m.make(name, k)
		m.publish(keyed("key", 1))
		m.add(25)
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		old := m.state()
		gone := m.all(old.Floor)
		m.ok(m.Delete(m.ctx, name))
		m.ok(m.Make(m.ctx, name, feed.Description{Title: "new"}, 7))
		s := m.state()
		if s.Begin <= old.Head.Micros {
			m.Errorf("begins at %d, not later than %d", s.Begin, old.Head.Micros)
		}
		floor := feed.Cursor{Micros: s.Begin}
		m.same("state", s, feed.State{Set: name, Description: feed.Description{Title: "new"}, ListSize: 7, Begin: s.Begin, Floor: floor, Head: floor, BeforeLatest: floor})
		check := func() {
			m.Helper()
			for _, c := range []feed.Cursor{{Micros: old.Begin}, old.Floor, gone[0].Cursor, old.BeforeLatest, old.Head} {
				_, err := m.Since(m.ctx, name, c, 0)
				m.wants(feed.ErrGone, err)
			}
		}
		check()
		m.publish(keyed("another", 1)) // the new set numbers its keys as the old one did
		if a := m.publish(keyed("key", 2))[0]; a.Err != nil || a.Replayed {
			m.Errorf("a key of the deleted set is remembered: %+v", a)
		}
		m.add(40)
		check()
		m.same("entries", len(m.all(feed.Cursor{})), 42)
		m.reopen()
		check()
		m.same("entries", len(m.all(feed.Cursor{})), 42)
	}},
	{"made again begins later although the clock went back", true, func(m *memory) {
		m.make(name, k)
		head := m.add(25).Cursor
		m.ok(m.Delete(m.ctx, name))
		m.clock.advance(-30 * time.Second)
		m.reopen()
		m.make(name, k)
		if s := m.state(); s.Begin <= head.Micros {
			m.Errorf("begins at %d, not later than %d", s.Begin, head.Micros)
		}
		again := m.state().Head
		m.ok(m.Delete(m.ctx, name)) // empty this time
		m.make(name, k)
		if s := m.state(); s.Begin <= again.Micros {
			m.Errorf("begins at %d, not later than %d", s.Begin, again.Micros)
		}
	}},
	{"the identity stays", false, func(m *memory) {
		id := m.ID()
		if len(id) < 16 {
			m.Errorf("identity %q is short", id)
		}
		m.reopen()
		m.same("identity", m.ID(), id)
	}},
	{"all stays", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(3), publish(30), publish(5))
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		s := m.state()
		entries := m.all(s.Floor)
		m.reopen()
		m.same("state", m.state(), s)
		m.same("entries", m.all(s.Floor), entries)
		a := m.add(1)
		m.same("after", a.After, s.Head)
	}},
	{"check", false, func(m *memory) {
		m.ok(m.Check(m.ctx))
		m.make(name, k)
		m.add(1)
		m.ok(m.Check(m.ctx))
	}},
	{"a context that is done", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		s := m.state()
		ctx, cancel := context.WithCancel(m.ctx)
		cancel()
		_, err := m.Append(ctx, name, publish(1))
		m.wants(context.Canceled, err)
		_, err = m.Since(ctx, name, feed.Cursor{}, 0)
		m.wants(context.Canceled, err)
		_, err = m.State(ctx, name)
		m.wants(context.Canceled, err)
		_, err = m.Sets(ctx)
		m.wants(context.Canceled, err)
		_, err = m.At(ctx, name, 1)
		m.wants(context.Canceled, err)
		_, err = m.Seek(ctx, name, s.Head.Micros)
		m.wants(context.Canceled, err)
		_, err = m.Trim(ctx, name, changelog.Retention{Count: 1})
		m.wants(context.Canceled, err)
		m.wants(context.Canceled, m.Make(ctx, "other", feed.Description{}, k))
		m.wants(context.Canceled, m.Describe(ctx, name, feed.Description{}))
		m.wants(context.Canceled, m.Delete(ctx, name))
		m.wants(context.Canceled, m.Check(ctx))
		m.same("state", m.state(), s)
	}},
}
