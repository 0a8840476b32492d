package logtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// ahead is how far the clock is ahead in these tests.
const ahead = 10 * 365 * 24 * time.Hour

// spoil makes a set with five entries, and with five more that were added while the clock
// was ahead. It returns all cursors of the set.
func (m *memory) spoil() []feed.Cursor {
	m.Helper()
	at := m.spaced(5)
	m.clock.advance(ahead)
	for range 5 {
		m.clock.advance(step)
		at = append(at, m.add(1).Cursor)
	}
	m.clock.advance(step - ahead)
	return at
}

// gone checks that cursors of deleted sets are gone.
func (m *memory) gone(cursors []feed.Cursor) {
	m.Helper()
	for _, c := range cursors {
		_, err := m.Since(m.ctx, name, c, 0)
		m.wants(feed.ErrGone, err)
	}
}

var clockTests = []test{
	{"a set whose head lies in the future is refused alone", true, func(m *memory) {
		at := m.spoil()
		m.make("other", k)
		for range 2 {
			s := m.state()
			for _, p := range []changelog.Publish{publish(1), keyed("key", 1)} {
				_, err := m.Append(m.ctx, name, p)
				m.wants(feed.ErrClock, err)
				if text := err.Error(); !strings.Contains(text, at[10].Time().Format(time.RFC3339)) {
					m.Errorf("the error does not say when the newest entry is from: %v", err)
				}
			}
			m.same("state", m.state(), s)
			m.same("entries", len(m.all(feed.Cursor{})), 10)
			m.ok(m.Check(m.ctx))
			_, err := m.Append(m.ctx, "other", publish(1))
			m.ok(err)
			_, err = m.Trim(m.ctx, name, changelog.Retention{Age: time.Hour, Count: 1})
			m.ok(err)
			m.reopen()
		}
		m.clock.advance(ahead) // it takes changes again when that time has come
		m.add(1)
	}},
	{"made anew it begins at the right time", true, func(m *memory) {
		old := m.spoil()
		m.ok(m.Delete(m.ctx, name))
		m.gone(old)
		m.reopen()
		m.make(name, k)
		s := m.state()
		m.near(s.Begin)
		m.same("was", s.PriorMicros, old[10].Micros)
		m.gone(old)
		// The log passes the positions of the deleted one,
		for range 15 {
			m.clock.advance(step)
			m.add(1)
			m.gone(old)
		}
		m.same("entries", len(m.all(feed.Cursor{})), 15)
		m.reopen()
		m.gone(old)
		m.same("was", m.state().PriorMicros, old[10].Micros)
		// and years later also its datetimes.
		m.clock.advance(ahead - 600*time.Second)
		for range 40 {
			m.clock.advance(step)
			m.add(1)
			m.gone(old)
		}
		m.same("entries", len(m.all(feed.Cursor{})), 55)
		// A cursor that is later than all of them could be from this log, so it is only
		// diverged.
		head := m.state().Head
		m.diverged(feed.Cursor{Position: head.Position + 1, Micros: head.Micros + skew.Microseconds()}, head)
	}},
	{"made anew again and again", true, func(m *memory) {
		old := m.spoil()
		m.ok(m.Delete(m.ctx, name))
		latest := old[10].Micros
		for range 3 {
			m.make(name, k)
			s := m.state()
			m.same("was", s.PriorMicros, latest)
			m.near(s.Begin)
			m.gone(old)
			old = append(old, s.Floor, m.add(4).Cursor)
			m.ok(m.Delete(m.ctx, name)) // the clock stands
			m.gone(old)
		}
	}},
	{"deleted while the clock is ahead", true, func(m *memory) {
		m.clock.advance(ahead)
		m.make(name, k)
		old := []feed.Cursor{m.state().Floor, m.add(1).Cursor, m.add(3).Cursor}
		m.ok(m.Delete(m.ctx, name))
		m.make(name, k)
		old = append(old, m.state().Floor)
		m.ok(m.Delete(m.ctx, name))
		m.clock.advance(-ahead)
		for range 2 {
			m.make(name, k)
			m.near(m.state().Begin)
			m.gone(old)
			old = append(old, m.add(8).Cursor)
			m.ok(m.Delete(m.ctx, name))
			m.gone(old)
		}
	}},
	{"a clock that goes as it should is not in doubt", true, func(m *memory) {
		for range 200 {
			m.ticks(false)
			m.clock.advance(time.Minute)
		}
		m.reopen()
		for range 20 {
			m.ticks(false)
			m.clock.advance(40 * time.Minute)
		}
		m.clock.advance(-30 * time.Hour)
		m.ticks(false)
	}},
	{"a clock that went far ahead is in doubt for a day", true, func(m *memory) {
		m.ticks(false)
		m.clock.advance(changelog.ClockStep + time.Microsecond)
		m.ticks(true)
		m.reopen()
		for range 24*60 - 1 {
			m.clock.advance(time.Minute)
			m.ticks(true)
		}
		m.clock.advance(time.Minute)
		m.ticks(false)
		m.clock.advance(time.Minute)
		m.ticks(false)
		// It goes ahead twice.
		m.clock.advance(ahead)
		m.ticks(true)
		m.clock.advance(ahead)
		m.ticks(true)
		m.clock.advance(time.Hour)
		m.ticks(true)
	}},
	{"a clock that was set back is believed", true, func(m *memory) {
		m.ticks(false)
		m.clock.advance(ahead)
		m.ticks(true)
		m.clock.advance(time.Minute)
		m.ticks(true)
		m.clock.advance(-ahead)
		m.ticks(false)
		m.reopen()
		m.clock.advance(time.Minute)
		m.ticks(false)
	}},
	{"nothing is removed for its age while the clock is in doubt", true, func(m *memory) {
		m.make(name, k)
		kept := m.publish(keyed("key", 1))[0]
		m.add(94)
		m.clock.advance(ahead)
		m.trims(changelog.Retention{Age: time.Hour, Doubtful: true}, 0)
		m.trims(changelog.Retention{Age: time.Hour, Count: 85, Doubtful: true}, 10)
		m.clock.advance(-ahead)
		kept.Replayed = true
		m.same("a retry", m.publish(keyed("key", 1))[0], kept)
		m.clock.advance(ahead)
		m.trims(changelog.Retention{Age: time.Hour}, 80)
	}},
	{"no key expires by its age while the clock is in doubt", true, func(m *memory) {
		m.make(name, k)
		m.ticks(false)
		first := m.publish(keyed("key", 1))[0]
		first.Replayed = true
		known := func() {
			m.Helper()
			m.same("a retry", m.publish(keyed("key", 1))[0], first)
			m.wants(feed.ErrKeyReused, m.publish(keyed("key", 2))[0].Err)
			other := publish(1)
			other.Unless = "key"
			m.wants(feed.ErrKeyReused, m.publish(other)[0].Err)
		}
		m.clock.advance(2 * changelog.KeyAge)
		known() // before the first Tick,
		m.trims(changelog.Retention{}, 0)
		known()
		m.reopen() // in a hub that starts,
		known()
		m.ticks(true)
		known() // and until the doubt ends.
		m.reopen()
		known()
		for range 23 {
			m.clock.advance(time.Hour)
			m.ticks(true)
		}
		m.trims(changelog.Retention{Doubtful: true}, 0)
		known()
		m.clock.advance(time.Hour)
		m.ticks(false)
		m.same("replayed", m.publish(keyed("key", 2))[0].Replayed, false)
	}},
	{"keys expire by count while the clock is in doubt", true, func(m *memory) {
		if race {
			m.Skip("100,000 publishes take minutes with the race detector")
		}
		m.make(name, 10_000)
		m.ticks(false)
		m.publish(keyed("key", 1))
		m.clock.advance(ahead)
		m.ticks(true)
		for i := range 10 {
			p := make([]changelog.Publish, changelog.KeyCount/10)
			for j := range p {
				p[j] = keyed(fmt.Sprint("n", i*len(p)+j), 1)
			}
			m.publish(p...)
		}
		m.same("replayed", m.publish(keyed("key", 1))[0].Replayed, false)
	}},
}

// near wants a log to begin now, or only the few microseconds later that earlier logs
// of its name require.
func (m *memory) near(begin int64) {
	m.Helper()
	if d := begin - m.now(); d < 0 || d > 20 {
		m.Errorf("begins at %d, and now is %d", begin, m.now())
	}
}

// ticks calls Tick, and wants the clock to be in doubt or not.
func (m *memory) ticks(doubtful bool) {
	m.Helper()
	got, err := m.Tick(m.ctx)
	m.ok(err)
	if got != doubtful {
		m.Fatalf("at %v the clock is in doubt: %t", m.clock.now(), got)
	}
}
