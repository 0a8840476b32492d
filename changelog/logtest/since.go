package logtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// step is the time between the publishes of addSpaced.
const step = 20 * time.Second

// addSpaced creates a set with n entries, one each step, and returns the floor's cursor and their
// cursors: the cursor of position p is at index p.
func (m *memory) addSpaced(n int) []feed.Cursor {
	m.Helper()
	m.make(name, k)
	cursors := []feed.Cursor{m.state().Floor}
	for range n {
		m.clock.advance(step)
		cursors = append(cursors, m.add(1).Cursor)
	}
	return cursors
}

// wantDiverged reads after a cursor that this log does not have, and checks that the batch is
// diverged and follows want.
func (m *memory) wantDiverged(c, want feed.Cursor) {
	m.Helper()
	b := m.readBatch(c, 0)
	if !b.Diverged || b.After != want {
		m.Fatalf("Since(%v): After = %v, Diverged = %t, want %v, true", c, b.After, b.Diverged, want)
	}
	if head := m.state().Head; want != head && (len(b.Entries) == 0 || b.Entries[0].Position != want.Position+1) {
		m.Fatalf("diverged batch after %v does not start with the next entry", want)
	}
}

var sinceTests = []test{
	{"from every cursor", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(7), publish(1), publish(25), publish(1), publish(1), publish(4))
		s := m.state()
		all := m.readAll(s.Floor)
		m.wantEqual("entries", len(all), 39)
		check := func(c feed.Cursor, at int) {
			m.Helper()
			for _, limit := range []int{1, 2, 5, 9, 10, 11, 39, 40, 1000, 0, -1} {
				b := m.readBatch(c, limit)
				m.wantEqual("diverged", b.Diverged, false)
				m.wantEqual("after", b.After, c)
				if len(b.Entries) == 0 && at < len(all) {
					m.Fatalf("Since(%v, limit %d) is empty", c, limit)
				}
				for i, e := range b.Entries {
					m.wantEqual("entry", e, all[at+i])
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
		b := m.readBatch(head, 0)
		m.wantEqual("after", b.After, head)
		m.wantEqual("cursor", b.Cursor, head)
		m.wantEqual("entries", len(b.Entries), 0)
		m.wantEqual("diverged", b.Diverged, false)
		m.add(1)
		m.wantEqual("entries", len(m.readBatch(head, 0).Entries), 1)
	}},
	{"the limit is 1,000 by default", false, func(m *memory) {
		m.make(name, 10_000)
		for range 30 {
			m.add(100)
		}
		for _, limit := range []int{0, -5} {
			if n := len(m.readBatch(feed.Cursor{}, limit).Entries); n < 1 || n > 1000 {
				m.Errorf("got %d entries, want 1 to 1000", n)
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
		b := m.readBatch(feed.Cursor{}, 0)
		if n := len(b.Entries); n < 1 || n > 20 {
			m.Errorf("got %d entries of 200 kB in one batch, want 1 to 20", n)
		}
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 40)
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
		if n := len(m.readBatch(feed.Cursor{}, 0).Entries); n < 1 || n > 200 {
			m.Errorf("got %d entries of 60 kB in one batch, want 1 to 200", n)
		}
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 320)
	}},
	{"the zero cursor is gone with the first entries", false, func(m *memory) {
		m.make(name, k)
		m.add(35)
		begin := m.state().Floor
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		for _, c := range []feed.Cursor{{}, begin} {
			_, err = m.Since(m.ctx, name, c, 0)
			m.wantErr(feed.ErrGone, err)
		}
	}},
	{"the floor", false, func(m *memory) {
		m.make(name, k)
		m.add(35)
		all := m.readAll(feed.Cursor{})
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		floor := m.state().Floor
		m.wantEqual("floor", floor, all[19].Cursor)
		m.wantEqual("entries", m.readAll(floor), all[20:])
		for i := range 19 {
			_, err := m.Since(m.ctx, name, all[i].Cursor, 0)
			m.wantErr(feed.ErrGone, err)
		}
	}},
	{"cursors of another history", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(7), publish(8))
		s := m.state()
		last := m.readAll(s.Floor)[9].Cursor
		// All entries are younger than the skew, so the follower continues
		// after the floor.
		m.wantDiverged(feed.Cursor{Position: last.Position, Micros: last.Micros + 1_000_000}, s.Floor)
		m.wantDiverged(feed.Cursor{Position: last.Position + 1, Micros: last.Micros}, s.Floor)
		m.wantDiverged(feed.Cursor{Position: s.Head.Position + 1, Micros: s.Head.Micros + 1}, s.Floor)
		m.wantDiverged(feed.Cursor{Position: 0, Micros: s.Begin + 1}, s.Floor)
		m.wantDiverged(feed.Cursor{Position: 3, Micros: s.Begin}, s.Floor)
		for _, c := range []feed.Cursor{
			{Position: 0, Micros: s.Begin - 1},
			{Position: 1, Micros: 0},
			{Position: 1, Micros: s.Begin - 1},
			{Position: 1 << 50, Micros: s.Begin - 1},
		} {
			_, err := m.Since(m.ctx, name, c, 0)
			m.wantErr(feed.ErrGone, err)
		}
	}},
	{"diverged", true, func(m *memory) {
		at := m.addSpaced(35)
		head := at[35]
		skew := skew.Microseconds()
		// After the head: the follower keeps all entries that are older by the
		// skew.
		m.wantDiverged(feed.Cursor{Position: 36, Micros: head.Micros + skew}, head)
		m.wantDiverged(feed.Cursor{Position: 36, Micros: head.Micros + skew - 1}, at[34])
		m.wantDiverged(feed.Cursor{Position: 1000, Micros: head.Micros + 10*skew}, head)
		m.wantDiverged(feed.Cursor{Position: 36, Micros: at[20].Micros + skew}, at[20])
		m.wantDiverged(feed.Cursor{Position: 36, Micros: at[20].Micros + skew - 1}, at[19])
		// At a position of another entry: the follower keeps only entries
		// before it.
		m.wantDiverged(feed.Cursor{Position: 35, Micros: head.Micros + 10*skew}, at[34])
		m.wantDiverged(feed.Cursor{Position: 12, Micros: head.Micros + 10*skew}, at[11])
		m.wantDiverged(feed.Cursor{Position: 1, Micros: head.Micros + 10*skew}, at[0])
		m.wantDiverged(feed.Cursor{Position: 0, Micros: head.Micros + 10*skew}, at[0])
		m.wantDiverged(feed.Cursor{Position: 20, Micros: at[20].Micros + 1}, at[17])
		m.wantDiverged(feed.Cursor{Position: 20, Micros: at[20].Micros - 1}, at[16])
		m.wantDiverged(feed.Cursor{Position: 3, Micros: at[3].Micros + 1}, at[0]) // the floor, though it is younger
		m.wantDiverged(feed.Cursor{Position: 3, Micros: at[0].Micros}, at[0])
		_, err := m.Since(m.ctx, name, feed.Cursor{Position: 3, Micros: at[0].Micros - 1}, 0)
		m.wantErr(feed.ErrGone, err)

		_, err = m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		m.wantEqual("floor", m.state().Floor, at[20])
		m.wantEqual("entries", len(m.readAll(at[20])), 15)
		m.wantDiverged(feed.Cursor{Position: 36, Micros: at[20].Micros + skew}, at[20])
		m.wantDiverged(feed.Cursor{Position: 36, Micros: at[20].Micros}, at[20])
		m.wantDiverged(feed.Cursor{Position: 20, Micros: at[20].Micros + 1}, at[20])
		m.wantDiverged(feed.Cursor{Position: 5, Micros: head.Micros + 10*skew}, at[20])
		m.wantDiverged(feed.Cursor{Position: 24, Micros: head.Micros}, at[23])
		for _, c := range []feed.Cursor{at[19], at[0], {}, {Position: 36, Micros: at[20].Micros - 1}, {Position: 20, Micros: at[20].Micros - 1}} {
			_, err := m.Since(m.ctx, name, c, 0)
			m.wantErr(feed.ErrGone, err)
		}
	}},
	{"diverged in the middle of batches", true, func(m *memory) {
		m.make(name, 1000)
		m.clock.advance(time.Hour)
		first := m.add(100)
		m.clock.advance(time.Hour)
		m.add(100)
		all := m.readAll(first.After)
		for _, i := range []int{0, 1, 50, 98, 99} {
			c := feed.Cursor{Position: 201, Micros: all[i].Micros + skew.Microseconds()}
			m.wantDiverged(c, all[i].Cursor)
			before := first.After
			if i > 0 {
				before = all[i-1].Cursor
			}
			m.wantDiverged(feed.Cursor{Position: uint64(i) + 1, Micros: all[99].Micros + time.Hour.Microseconds()}, before)
		}
	}},
	{"a diverged batch is limited like any other", true, func(m *memory) {
		at := m.addSpaced(35)
		b := m.readBatch(feed.Cursor{Position: 36, Micros: at[20].Micros + skew.Microseconds()}, 3)
		m.wantEqual("entries", len(b.Entries), 3)
		m.wantEqual("cursor", b.Cursor, at[23])
		b = m.readBatch(feed.Cursor{Position: 99, Micros: at[35].Micros + skew.Microseconds()}, 3)
		m.wantEqual("cursor", b.Cursor, at[35]) // no entry follows, but the batch is diverged
		m.wantEqual("diverged", b.Diverged, true)
	}},
	{"errors name the set and the cursor", false, func(m *memory) {
		m.make(name, k)
		_, err := m.Since(m.ctx, name, feed.Cursor{Position: 77, Micros: 5}, 0)
		m.wantErr(feed.ErrGone, err)
		if s := fmt.Sprint(err); !strings.Contains(s, name) || !strings.Contains(s, "77-5") {
			m.Errorf("error = %q, want the set and the cursor in it", s)
		}
	}},
}
