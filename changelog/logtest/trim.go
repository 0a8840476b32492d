package logtest

import (
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// trims calls Trim, and wants the floor at a position and all entries behind it.
func (m *memory) trims(r changelog.Retention, floor uint64) {
	m.Helper()
	before := m.state()
	all := m.all(before.Floor)
	removed, err := m.Trim(m.ctx, name, r)
	m.ok(err)
	want := before
	if floor > before.Floor.Position {
		want.Floor = all[floor-before.Floor.Position-1].Cursor
	}
	m.same("state", m.state(), want)
	m.same("number of removed entries", uint64(removed), want.Floor.Position-before.Floor.Position)
	m.same("entries", len(m.all(want.Floor)), len(all)-removed)
}

var trimTests = []test{
	{"no retention", false, func(m *memory) {
		m.make(name, k)
		m.add(100)
		m.trims(changelog.Retention{}, 0)
	}},
	{"an empty log", false, func(m *memory) {
		m.make(name, k)
		m.trims(changelog.Retention{Age: 1, Count: 1}, 0)
	}},
	{"by count", false, func(m *memory) {
		m.make(name, k)
		m.add(95)
		m.trims(changelog.Retention{Count: 95}, 0)
		m.trims(changelog.Retention{Count: 1000}, 0)
		m.trims(changelog.Retention{Count: 86}, 0)
		m.trims(changelog.Retention{Count: 85}, 10)
		m.trims(changelog.Retention{Count: 66}, 20)
		m.trims(changelog.Retention{Count: 65}, 30)
		m.trims(changelog.Retention{Count: 65}, 30)
		m.trims(changelog.Retention{Count: 95}, 30) // never back
		m.trims(changelog.Retention{Count: 1}, 80)
		m.reopen()
		m.trims(changelog.Retention{Count: 1}, 80)
		m.add(5)
		m.trims(changelog.Retention{Count: 1}, 90) // list 10 is the newest closed one now, list 11 is open and empty
		m.add(1)
		m.trims(changelog.Retention{Count: 1}, 90)
		m.add(9)
		m.trims(changelog.Retention{Count: 1}, 100)
	}},
	{"the newest closed list and the open one stay", true, func(m *memory) {
		m.make(name, k)
		for n, floor := range map[int]uint64{5: 0, 10: 0, 19: 0, 20: 10, 29: 10, 30: 20} {
			m.ok(m.Delete(m.ctx, name))
			m.make(name, k)
			m.add(n)
			m.clock.advance(time.Hour)
			m.trims(changelog.Retention{Age: time.Minute, Count: 1}, floor)
		}
	}},
	{"by age", true, func(m *memory) {
		at := m.spaced(95)
		age := func(p int) time.Duration { return m.clock.now().Sub(at[p].Time()) }
		m.trims(changelog.Retention{Age: age(0)}, 0)
		m.trims(changelog.Retention{Age: age(10)}, 0) // not older than that
		m.trims(changelog.Retention{Age: age(10) - time.Microsecond}, 10)
		m.trims(changelog.Retention{Age: age(29)}, 20) // not a part of a list
		m.trims(changelog.Retention{Age: 1000 * time.Hour}, 20)
		m.trims(changelog.Retention{Age: age(75)}, 70)
		m.clock.advance(24 * time.Hour)
		m.trims(changelog.Retention{Age: time.Hour}, 80)
	}},
	{"by age or count, what removes more", true, func(m *memory) {
		at := m.spaced(95)
		age := m.clock.now().Sub(at[31].Time())
		m.trims(changelog.Retention{Age: age, Count: 75}, 30)
		m.trims(changelog.Retention{Age: age, Count: 45}, 50)
	}},
	{"what is held stays", true, func(m *memory) {
		at := m.spaced(95)
		m.trims(changelog.Retention{Count: 1, Unread: &feed.Cursor{}}, 0)
		m.trims(changelog.Retention{Count: 1, Unread: &at[9]}, 0)
		m.trims(changelog.Retention{Count: 1, Unread: &at[10]}, 10)
		m.trims(changelog.Retention{Age: time.Microsecond, Unread: &at[29]}, 20)
		m.trims(changelog.Retention{Count: 1, Unread: &at[15]}, 20) // passed already
		m.trims(changelog.Retention{Count: 50, Unread: &at[94]}, 40)
		m.trims(changelog.Retention{Count: 1, Unread: &at[85]}, 80)
		m.trims(changelog.Retention{Unread: &at[94]}, 80)
	}},
	{"batches that cross lists", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(7), publish(8), publish(34), publish(4))
		m.trims(changelog.Retention{Count: 20}, 30)
		m.trims(changelog.Retention{Count: 2}, 40)
		m.add(1)
		m.same("entries", len(m.all(m.state().Floor)), 14)
	}},
	{"latest may be removed", false, func(m *memory) {
		m.make(name, k)
		a := m.add(95)
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		s := m.state()
		m.same("latest", s.BeforeLatest, a.After)
		m.same("head", s.Head, a.Cursor)
	}},
}
