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
			m.Errorf("Begin = %d, want about %d", s.Begin, before)
		}
		floor := feed.Cursor{Micros: s.Begin}
		m.wantEqual("state", s, feed.State{Set: name, Description: d, ListSize: 123, Begin: s.Begin, Floor: floor, Head: floor, BeforeLatest: floor})
		if b := m.readBatch(feed.Cursor{}, 0); len(b.Entries) > 0 {
			m.Error("new log has entries")
		}
	}},
	{"log starts at the store's time", true, func(m *memory) {
		m.make(name, k)
		m.wantEqual("begin", m.state().Begin, m.now())
	}},
	{"make again changes nothing", false, func(m *memory) {
		m.make(name, k)
		m.add(3)
		s := m.state()
		m.ok(m.Make(m.ctx, name, feed.Description{Title: "other"}, k+1))
		m.wantEqual("state", m.state(), s)
	}},
	{"make refuses invalid names and list sizes", false, func(m *memory) {
		for _, bad := range []string{"", "a/b", "A", ".a", "a b", "é"} {
			m.wantErr(resourcesync.ErrInvalid, m.Make(m.ctx, bad, feed.Description{}, k))
		}
		for _, size := range []int{-1, 0, changelog.MaxListSize + 1} {
			m.wantErr(resourcesync.ErrInvalid, m.Make(m.ctx, name, feed.Description{}, size))
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
			m.wantEqual("state", m.state(), want)
			m.reopen()
			m.wantEqual("state", m.state(), want)
		}
		m.ok(m.Delete(m.ctx, name))
		m.make(name, k)
		m.wantEqual("description", m.state().Description, feed.Description{Title: "Title of " + name})
	}},
	{"sets are sorted and independent", false, func(m *memory) {
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
				m.wantEqual("state", s, one)
				b, err := m.Since(m.ctx, s.Set, feed.Cursor{}, 0)
				m.ok(err)
				m.wantEqual("entries", uint64(len(b.Entries)), s.Head.Position)
			}
			m.wantEqual("sets", got, []string{"a-b 2", "a.b 3", "a0 4", "ab 5", "b 0"})
			some, err := m.Sets(m.ctx, "b", "a", "never", "a.b")
			m.ok(err)
			m.wantEqual("sets by name", some, []feed.State{states[1], states[4]})
		}
		check()
		m.reopen()
		check()
	}},
	{"no sets", false, func(m *memory) {
		states, err := m.Sets(m.ctx)
		m.ok(err)
		m.wantEqual("number of sets", len(states), 0)
	}},
	{"nonexistent set", false, func(m *memory) {
		m.make("other", k)
		m.wantErr(feed.ErrNoSet, m.Describe(m.ctx, name, feed.Description{}))
		m.wantErr(feed.ErrNoSet, m.Delete(m.ctx, name))
		_, err := m.State(m.ctx, name)
		m.wantErr(feed.ErrNoSet, err)
		_, err = m.Append(m.ctx, name, publish(1))
		m.wantErr(feed.ErrNoSet, err)
		_, err = m.At(m.ctx, name, 0)
		m.wantErr(feed.ErrNoSet, err)
		_, err = m.Seek(m.ctx, name, 0)
		m.wantErr(feed.ErrNoSet, err)
		_, err = m.Trim(m.ctx, name, changelog.Retention{})
		m.wantErr(feed.ErrNoSet, err)
		_, err = m.Since(m.ctx, name, feed.Cursor{Position: 1, Micros: 1}, 0)
		m.wantErr(feed.ErrGone, err)
		_, err = m.Since(m.ctx, name, feed.Cursor{Micros: 1}, 0)
		m.wantErr(feed.ErrGone, err)
		b, err := m.Since(m.ctx, name, feed.Cursor{}, 0)
		m.ok(err)
		if b.Set != name || b.Diverged || len(b.Entries) > 0 || !b.After.IsZero() || !b.Cursor.IsZero() {
			m.Errorf("Since(zero cursor) = %+v, want an empty batch", b)
		}
	}},
	{"delete", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		m.ok(m.Delete(m.ctx, name))
		for range 2 {
			_, err := m.State(m.ctx, name)
			m.wantErr(feed.ErrNoSet, err)
			_, err = m.Append(m.ctx, name, publish(1))
			m.wantErr(feed.ErrNoSet, err)
			m.wantErr(feed.ErrNoSet, m.Delete(m.ctx, name))
			m.reopen()
		}
	}},
	{"recreated set", false, func(m *memory) {
		m.make(name, k)
		m.publish(keyedPublish("key", 1))
		m.add(25)
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		old := m.state()
		gone := m.readAll(old.Floor)
		m.ok(m.Delete(m.ctx, name))
		m.ok(m.Make(m.ctx, name, feed.Description{Title: "new"}, 7))
		s := m.state()
		if s.Begin <= old.Head.Micros {
			m.Errorf("Begin = %d, want later than %d", s.Begin, old.Head.Micros)
		}
		floor := feed.Cursor{Micros: s.Begin}
		m.wantEqual("state", s, feed.State{Set: name, Description: feed.Description{Title: "new"}, ListSize: 7, Begin: s.Begin, Floor: floor, Head: floor, BeforeLatest: floor})
		check := func() {
			m.Helper()
			for _, c := range []feed.Cursor{{Micros: old.Begin}, old.Floor, gone[0].Cursor, old.BeforeLatest, old.Head} {
				_, err := m.Since(m.ctx, name, c, 0)
				m.wantErr(feed.ErrGone, err)
			}
		}
		check()
		m.publish(keyedPublish("another", 1)) // the new set also numbers its keys from 1
		if a := m.publish(keyedPublish("key", 2))[0]; a.Err != nil || a.Replayed {
			m.Errorf("Appended with a key of the deleted set = %+v, want it added", a)
		}
		m.add(40)
		check()
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 42)
		m.reopen()
		check()
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 42)
	}},
	{"recreated set starts later although the clock was set back", true, func(m *memory) {
		m.make(name, k)
		head := m.add(25).Cursor
		m.ok(m.Delete(m.ctx, name))
		m.clock.advance(-30 * time.Second)
		m.reopen()
		m.make(name, k)
		if s := m.state(); s.Begin <= head.Micros {
			m.Errorf("Begin = %d, want later than %d", s.Begin, head.Micros)
		}
		again := m.state().Head
		m.ok(m.Delete(m.ctx, name)) // an empty log this time
		m.make(name, k)
		if s := m.state(); s.Begin <= again.Micros {
			m.Errorf("Begin = %d, want later than %d", s.Begin, again.Micros)
		}
	}},
	{"identity survives reopen", false, func(m *memory) {
		id := m.ID()
		if len(id) < 16 {
			m.Errorf("ID() = %q, want at least 16 bytes", id)
		}
		m.reopen()
		m.wantEqual("identity", m.ID(), id)
	}},
	{"state survives reopen", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(3), publish(30), publish(5))
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		s := m.state()
		entries := m.readAll(s.Floor)
		m.reopen()
		m.wantEqual("state", m.state(), s)
		m.wantEqual("entries", m.readAll(s.Floor), entries)
		a := m.add(1)
		m.wantEqual("after", a.After, s.Head)
	}},
	{"check", false, func(m *memory) {
		m.ok(m.Check(m.ctx))
		m.make(name, k)
		m.add(1)
		m.ok(m.Check(m.ctx))
	}},
	{"canceled context", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		s := m.state()
		ctx, cancel := context.WithCancel(m.ctx)
		cancel()
		_, err := m.Append(ctx, name, publish(1))
		m.wantErr(context.Canceled, err)
		_, err = m.Since(ctx, name, feed.Cursor{}, 0)
		m.wantErr(context.Canceled, err)
		_, err = m.State(ctx, name)
		m.wantErr(context.Canceled, err)
		_, err = m.Sets(ctx)
		m.wantErr(context.Canceled, err)
		_, err = m.At(ctx, name, 1)
		m.wantErr(context.Canceled, err)
		_, err = m.Seek(ctx, name, s.Head.Micros)
		m.wantErr(context.Canceled, err)
		_, err = m.Trim(ctx, name, changelog.Retention{Count: 1})
		m.wantErr(context.Canceled, err)
		m.wantErr(context.Canceled, m.Make(ctx, "other", feed.Description{}, k))
		m.wantErr(context.Canceled, m.Describe(ctx, name, feed.Description{}))
		m.wantErr(context.Canceled, m.Delete(ctx, name))
		m.wantErr(context.Canceled, m.Check(ctx))
		m.wantEqual("state", m.state(), s)
	}},
}
