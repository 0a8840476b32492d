package logtest

import (
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var seekTests = []test{
	{"at", false, func(m *memory) {
		m.make(name, k)
		check := func() {
			m.Helper()
			s := m.state()
			c, err := m.At(m.ctx, name, s.Floor.Position)
			m.ok(err)
			m.wantEqual("floor", c, s.Floor)
			for _, e := range m.readAll(s.Floor) {
				c, err := m.At(m.ctx, name, e.Position)
				m.ok(err)
				m.wantEqual("cursor", c, e.Cursor)
			}
			for _, p := range []uint64{s.Head.Position + 1, s.Head.Position + 1000, 1 << 60} {
				_, err := m.At(m.ctx, name, p)
				m.wantErr(resourcesync.ErrInvalid, err)
			}
			for p := range s.Floor.Position {
				_, err := m.At(m.ctx, name, p)
				m.wantErr(feed.ErrGone, err)
			}
		}
		check()
		m.publish(publish(3), publish(1), publish(30), publish(1))
		check()
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		check()
	}},
	{"seek", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(3), publish(1), publish(30))
		m.add(4)
		s := m.state()
		seek := func(micros int64, want feed.Cursor) {
			m.Helper()
			c, err := m.Seek(m.ctx, name, micros)
			m.ok(err)
			m.wantEqual("cursor", c, want)
		}
		all := m.readAll(s.Floor)
		before := s.Floor
		for _, e := range all {
			seek(e.Micros, before)
			seek(e.Micros+1, e.Cursor)
			before = e.Cursor
		}
		seek(s.Head.Micros+time.Hour.Microseconds(), s.Head)
		seek(s.Begin, s.Floor) // the log had started, but had no entries yet
		seek(s.Begin+1, s.Floor)
		_, err := m.Seek(m.ctx, name, s.Begin-1)
		m.wantErr(feed.ErrGone, err)
		_, err = m.Seek(m.ctx, name, 0)
		m.wantErr(feed.ErrGone, err)

		_, err = m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		floor := m.state().Floor
		m.wantEqual("floor", floor, all[19].Cursor)
		_, err = m.Seek(m.ctx, name, floor.Micros-1)
		m.wantErr(feed.ErrGone, err)
		_, err = m.Seek(m.ctx, name, floor.Micros) // the entry with that datetime was removed
		m.wantErr(feed.ErrGone, err)
		seek(floor.Micros+1, floor)
		seek(s.Head.Micros, all[len(all)-2].Cursor)
	}},
	{"seek in an empty log", false, func(m *memory) {
		m.make(name, k)
		s := m.state()
		for _, micros := range []int64{s.Begin, s.Begin + 1, s.Begin + time.Hour.Microseconds()} {
			c, err := m.Seek(m.ctx, name, micros)
			m.ok(err)
			m.wantEqual("cursor", c, s.Floor)
		}
		_, err := m.Seek(m.ctx, name, s.Begin-1)
		m.wantErr(feed.ErrGone, err)
	}},
	{"seek between distant entries", true, func(m *memory) {
		at := m.addSpaced(35)
		for p := 1; p < len(at); p++ {
			for _, back := range []time.Duration{0, 1, step / 2 / time.Microsecond, step/time.Microsecond - 1} {
				c, err := m.Seek(m.ctx, name, at[p].Micros-int64(back))
				m.ok(err)
				m.wantEqual("cursor", c, at[p-1])
			}
		}
	}},
	{"read from the cursor of a seek", false, func(m *memory) {
		m.make(name, k)
		m.publish(publish(3), publish(30))
		all := m.readAll(feed.Cursor{})
		for i, e := range all {
			c, err := m.Seek(m.ctx, name, e.Micros)
			m.ok(err)
			b := m.readBatch(c, 0)
			m.wantEqual("diverged", b.Diverged, false)
			m.wantEqual("entry", b.Entries[0], all[i])
		}
	}},
}
