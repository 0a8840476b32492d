package logtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// step is the time between the publishes of spaced.
const step = 20 * time.Second

// spaced makes a set with n entries, one each step, and returns their cursors
// behind the floor's: the cursor of position p is at index p.
func (m *memory) spaced(n int) []feed.Cursor {
	m.Helper()
	m.make(name, k)
	cursors := []feed.Cursor{m.state().Floor}
	for range n {
		m.clock.advance(step)
		cursors = append(cursors, m.add(1).Cursor)
	}
	return cursors
}

// diverged reads from a cursor that this log does not know.
func (m *memory) diverged(c, want feed.Cursor) {
	m.Helper()
	b := m.after(c, 0)
	if !b.Diverged || b.After != want {
		m.Fatalf("after %v follows what is behind %v, diverged %t; want behind %v", c, b.After, b.Diverged, want)
	}
	if head := m.state().Head; want != head && (len(b.Entries) == 0 || b.Entries[0].Position != want.Position+1) {
		m.Fatalf("diverged behind %v without the entry that follows", want)
	}
}

var sinceTests = []test{
	{"from every place", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(7), publish(1), publish(25), publish(1), publish(1), publish(4))
		s := m.state()
		all := m.all(s.Floor)
		m.same("entries", len(all), 39)
		check := func(c feed.Cursor, at int) {
			m.Helper()
			for _, limit := range []int{1, 2, 5, 9, 10, 11, 39, 40, 1000, 0, -1} {
				b := m.after(c, limit)
				m.same("diverged", b.Diverged, false)
				m.same("after", b.After, c)
				if len(b.Entries) == 0 && at < len(all) {
					m.Fatalf("nothing after %v, limit %d", c, limit)
				}
				for i, e := range b.Entries {
					m.same("entry", e, all[at+i])
				}
			}
		}
		check(feed.Cursor{}, 0)
		check(s.Floor, 0)
		for i := range all {
			check(all[i].Cursor, i+1)
		}
	}},
	{"the head", false, func(m *memory) {
		m.make(name, k)
		head := m.add(3).Cursor
		b := m.after(head, 0)
		m.same("after", b.After, head)
		m.same("cursor", b.Cursor, head)
		m.same("entries", len(b.Entries), 0)
		m.same("diverged", b.Diverged, false)
		m.add(1)
		m.same("entries", len(m.after(head, 0).Entries), 1)
	}},
	{"the limit is 1,000 by default", false, func(m *memory) {
		m.make(name, 10_000)
		for range 30 {
			m.add(100)
		}
		for _, limit := range []int{0, -5} {
			if n := len(m.after(feed.Cursor{}, limit).Entries); n < 1 || n > 1000 {
				m.Errorf("%d entries", n)
			}
		}
	}},
	{"a read of large entries ends early, but never empty", false, func(m *memory) {
		m.make(name, 1000)
		for i := range 40 {
			p := publish(1)
			p.Changes[0].Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "big", Value: noise(200_000, uint32(i))}}
			m.publish(p)
		}
		b := m.after(feed.Cursor{}, 0)
		if n := len(b.Entries); n < 1 || n > 20 {
			m.Errorf("%d entries of 200 kB in one batch", n)
		}
		m.same("entries", len(m.all(feed.Cursor{})), 40)
	}},
	{"a read of entries that compress well ends early too", false, func(m *memory) {
		m.make(name, 1000)
		for range 80 {
			p := publish(4)
			for i := range p.Changes {
				p.Changes[i].Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "big", Value: strings.Repeat("x", 60_000)}}
			}
			m.publish(p)
		}
		if n := len(m.after(feed.Cursor{}, 0).Entries); n < 1 || n > 200 {
			m.Errorf("%d entries of 60 kB in one batch", n)
		}
		m.same("entries", len(m.all(feed.Cursor{})), 320)
	}},
	{"the zero cursor is gone with the first entries", false, func(m *memory) {
		m.make(name, k)
		m.add(35)
		begin := m.state().Floor
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		for _, c := range []feed.Cursor{{}, begin} {
			_, err = m.Since(m.ctx, name, c, 0)
			m.wants(feed.ErrGone, err)
		}
	}},
	{"the floor", false, func(m *memory) {
		m.make(name, k)
		m.add(35)
		all := m.all(feed.Cursor{})
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		floor := m.state().Floor
		m.same("floor", floor, all[19].Cursor)
		m.same("entries", m.all(floor), all[20:])
		for i := range 19 {
			_, err := m.Since(m.ctx, name, all[i].Cursor, 0)
			m.wants(feed.ErrGone, err)
		}
	}},
	{"cursors of another history", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(7), publish(8))
		s := m.state()
		last := m.all(s.Floor)[9].Cursor
		// All entries are younger than the skew, so the follower continues
		// after the floor.
		m.diverged(feed.Cursor{Position: last.Position, Micros: last.Micros + 1_000_000}, s.Floor)
		m.diverged(feed.Cursor{Position: last.Position + 1, Micros: last.Micros}, s.Floor)
		m.diverged(feed.Cursor{Position: s.Head.Position + 1, Micros: s.Head.Micros + 1}, s.Floor)
		m.diverged(feed.Cursor{Position: 0, Micros: s.Begin + 1}, s.Floor)
		m.diverged(feed.Cursor{Position: 3, Micros: s.Begin}, s.Floor)
		for _, c := range []feed.Cursor{
			{Position: 0, Micros: s.Begin - 1},
			{Position: 1, Micros: 0},
			{Position: 1, Micros: s.Begin - 1},
			{Position: 1 << 50, Micros: s.Begin - 1},
		} {
			_, err := m.Since(m.ctx, name, c, 0)
			m.wants(feed.ErrGone, err)
		}
	}},
	{"diverged", true, func(m *memory) {
		at := m.spaced(35)
		head := at[35]
		skew := skew.Microseconds()
		// After the head: the follower keeps all entries that are older by the
		// skew.
		m.diverged(feed.Cursor{Position: 36, Micros: head.Micros + skew}, head)
		m.diverged(feed.Cursor{Position: 36, Micros: head.Micros + skew - 1}, at[34])
		m.diverged(feed.Cursor{Position: 1000, Micros: head.Micros + 10*skew}, head)
		m.diverged(feed.Cursor{Position: 36, Micros: at[20].Micros + skew}, at[20])
		m.diverged(feed.Cursor{Position: 36, Micros: at[20].Micros + skew - 1}, at[19])
		// At a position of another entry: the follower keeps only entries
		// before it.
		m.diverged(feed.Cursor{Position: 35, Micros: head.Micros + 10*skew}, at[34])
		m.diverged(feed.Cursor{Position: 12, Micros: head.Micros + 10*skew}, at[11])
		m.diverged(feed.Cursor{Position: 1, Micros: head.Micros + 10*skew}, at[0])
		m.diverged(feed.Cursor{Position: 0, Micros: head.Micros + 10*skew}, at[0])
		m.diverged(feed.Cursor{Position: 20, Micros: at[20].Micros + 1}, at[17])
		m.diverged(feed.Cursor{Position: 20, Micros: at[20].Micros - 1}, at[16])
		m.diverged(feed.Cursor{Position: 3, Micros: at[3].Micros + 1}, at[0]) // the floor, though it is younger
		m.diverged(feed.Cursor{Position: 3, Micros: at[0].Micros}, at[0])
		_, err := m.Since(m.ctx, name, feed.Cursor{Position: 3, Micros: at[0].Micros - 1}, 0)
		m.wants(feed.ErrGone, err)

		_, err = m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		m.same("floor", m.state().Floor, at[20])
		m.same("entries", len(m.all(at[20])), 15)
		m.diverged(feed.Cursor{Position: 36, Micros: at[20].Micros + skew}, at[20])
		m.diverged(feed.Cursor{Position: 36, Micros: at[20].Micros}, at[20])
		m.diverged(feed.Cursor{Position: 20, Micros: at[20].Micros + 1}, at[20])
		m.diverged(feed.Cursor{Position: 5, Micros: head.Micros + 10*skew}, at[20])
		m.diverged(feed.Cursor{Position: 24, Micros: head.Micros}, at[23])
		for _, c := range []feed.Cursor{at[19], at[0], {}, {Position: 36, Micros: at[20].Micros - 1}, {Position: 20, Micros: at[20].Micros - 1}} {
			_, err := m.Since(m.ctx, name, c, 0)
			m.wants(feed.ErrGone, err)
		}
	}},
	{"diverged in the middle of batches", true, func(m *memory) {
		m.make(name, 1000)
		m.clock.advance(time.Hour)
		first := m.add(100)
		m.clock.advance(time.Hour)
		m.add(100)
		all := m.all(first.After)
		for _, i := range []int{0, 1, 50, 98, 99} {
			c := feed.Cursor{Position: 201, Micros: all[i].Micros + skew.Microseconds()}
			m.diverged(c, all[i].Cursor)
			before := first.After
			if i > 0 {
				before = all[i-1].Cursor
			}
			m.diverged(feed.Cursor{Position: uint64(i) + 1, Micros: all[99].Micros + time.Hour.Microseconds()}, before)
		}
	}},
	{"a diverged batch is limited like any other", true, func(m *memory) {
		at := m.spaced(35)
		b := m.after(feed.Cursor{Position: 36, Micros: at[20].Micros + skew.Microseconds()}, 3)
		m.same("entries", len(b.Entries), 3)
		m.same("cursor", b.Cursor, at[23])
		b = m.after(feed.Cursor{Position: 99, Micros: at[35].Micros + skew.Microseconds()}, 3)
		m.same("cursor", b.Cursor, at[35]) // nothing follows, and it is told
		m.same("diverged", b.Diverged, true)
	}},
	{"errors name the set and the cursor", false, func(m *memory) {
		m.make(name, k)
		_, err := m.Since(m.ctx, name, feed.Cursor{Position: 77, Micros: 5}, 0)
		m.wants(feed.ErrGone, err)
		if s := fmt.Sprint(err); !strings.Contains(s, name) || !strings.Contains(s, "77-5") {
			m.Errorf("error is %q", s)
		}
	}},
}
