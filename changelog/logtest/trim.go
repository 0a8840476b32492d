package logtest

import (
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// wantTrim calls Trim, and checks that the floor is at a position afterwards, and that all entries
// after it exist.
func (m *memory) wantTrim(r changelog.Retention, floor uint64) {
	m.Helper()
	before := m.state()
	all := m.readAll(before.Floor)
	removed, err := m.Trim(m.ctx, name, r)
	m.ok(err)
	want := before
	if floor > before.Floor.Position {
		want.Floor = all[floor-before.Floor.Position-1].Cursor
	}
	m.wantEqual("state", m.state(), want)
	m.wantEqual("number of removed entries", uint64(removed), want.Floor.Position-before.Floor.Position)
	m.wantEqual("entries", len(m.readAll(want.Floor)), len(all)-removed)
}

var trimTests = []test{
	{"no retention", false, func(m *memory) {
		m.make(name, k)
		m.add(100)
		m.wantTrim(changelog.Retention{}, 0)
	}},
	{"an empty log", false, func(m *memory) {
		m.make(name, k)
		m.wantTrim(changelog.Retention{Age: 1, Count: 1}, 0)
	}},
	{"by count", false, func(m *memory) {
		m.make(name, k)
		m.add(95)
		m.wantTrim(changelog.Retention{Count: 95}, 0)
		m.wantTrim(changelog.Retention{Count: 1000}, 0)
		m.wantTrim(changelog.Retention{Count: 86}, 0)
		m.wantTrim(changelog.Retention{Count: 85}, 10)
		m.wantTrim(changelog.Retention{Count: 66}, 20)
		m.wantTrim(changelog.Retention{Count: 65}, 30)
		m.wantTrim(changelog.Retention{Count: 65}, 30)
		m.wantTrim(changelog.Retention{Count: 95}, 30) // the floor never moves back
		m.wantTrim(changelog.Retention{Count: 1}, 80)
		m.reopen()
		m.wantTrim(changelog.Retention{Count: 1}, 80)
		m.add(5)
		m.wantTrim(changelog.Retention{Count: 1}, 90) // list 10 is the newest closed list now, list 11 is open and empty
		m.add(1)
		m.wantTrim(changelog.Retention{Count: 1}, 90)
		m.add(9)
		m.wantTrim(changelog.Retention{Count: 1}, 100)
	}},
	{"the newest closed list and the open list stay", true, func(m *memory) {
		m.make(name, k)
		for n, floor := range map[int]uint64{5: 0, 10: 0, 19: 0, 20: 10, 29: 10, 30: 20} {
			m.ok(m.Delete(m.ctx, name))
			m.make(name, k)
			m.add(n)
			m.clock.advance(time.Hour)
			m.wantTrim(changelog.Retention{Age: time.Minute, Count: 1}, floor)
		}
	}},
	{"by age", true, func(m *memory) {
		at := m.addSpaced(95)
		age := func(p int) time.Duration { return m.clock.now().Sub(at[p].Time()) }
		m.wantTrim(changelog.Retention{Age: age(0)}, 0)
		m.wantTrim(changelog.Retention{Age: age(10)}, 0) // an entry with that age is not older
		m.wantTrim(changelog.Retention{Age: age(10) - time.Microsecond}, 10)
		m.wantTrim(changelog.Retention{Age: age(29)}, 20) // no part of a list is removed
		m.wantTrim(changelog.Retention{Age: 1000 * time.Hour}, 20)
		m.wantTrim(changelog.Retention{Age: age(75)}, 70)
		m.clock.advance(24 * time.Hour)
		m.wantTrim(changelog.Retention{Age: time.Hour}, 80)
	}},
	{"by age or count, whichever removes more", true, func(m *memory) {
		at := m.addSpaced(95)
		age := m.clock.now().Sub(at[31].Time())
		m.wantTrim(changelog.Retention{Age: age, Count: 75}, 30)
		m.wantTrim(changelog.Retention{Age: age, Count: 45}, 50)
	}},
	{"unread entries stay", true, func(m *memory) {
		at := m.addSpaced(95)
		m.wantTrim(changelog.Retention{Count: 1, Unread: &feed.Cursor{}}, 0)
		m.wantTrim(changelog.Retention{Count: 1, Unread: &at[9]}, 0)
		m.wantTrim(changelog.Retention{Count: 1, Unread: &at[10]}, 10)
		m.wantTrim(changelog.Retention{Age: time.Microsecond, Unread: &at[29]}, 20)
		m.wantTrim(changelog.Retention{Count: 1, Unread: &at[15]}, 20) // before the floor
		m.wantTrim(changelog.Retention{Count: 50, Unread: &at[94]}, 40)
		m.wantTrim(changelog.Retention{Count: 1, Unread: &at[85]}, 80)
		m.wantTrim(changelog.Retention{Unread: &at[94]}, 80)
	}},
	{"batches that cross lists", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(7), publish(8), publish(34), publish(4))
		m.wantTrim(changelog.Retention{Count: 20}, 30)
		m.wantTrim(changelog.Retention{Count: 2}, 40)
		m.add(1)
		m.wantEqual("entries", len(m.readAll(m.state().Floor)), 14)
	}},
	{"latest may be removed", false, func(m *memory) {
		m.make(name, k)
		a := m.add(95)
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		s := m.state()
		m.wantEqual("latest", s.BeforeLatest, a.After)
		m.wantEqual("head", s.Head, a.Cursor)
	}},
}
