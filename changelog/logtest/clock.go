package logtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// ahead is the time by which the clock is wrong in these tests.
const ahead = 10 * 365 * 24 * time.Hour

// addFuture creates a set with five entries, and five more that were added while the clock was
// ahead. It returns all cursors of the set.
func (m *memory) addFuture() []feed.Cursor {
	m.Helper()
	at := m.addSpaced(5)
	m.clock.advance(ahead)
	for range 5 {
		m.clock.advance(step)
		at = append(at, m.add(1).Cursor)
	}
	m.clock.advance(step - ahead)
	return at
}

// wantGone checks that cursors of deleted sets are gone.
func (m *memory) wantGone(cursors []feed.Cursor) {
	m.Helper()
	for _, c := range cursors {
		_, err := m.Since(m.ctx, name, c, 0)
		m.wantErr(feed.ErrGone, err)
	}
}

var clockTests = []test{
	{"only a set with its head in the future is refused", true, func(m *memory) {
		at := m.addFuture()
		m.make("other", k)
		for range 2 {
			s := m.state()
			for _, p := range []changelog.Publish{publish(1), keyedPublish("key", 1)} {
				_, err := m.Append(m.ctx, name, p)
				m.wantErr(feed.ErrClock, err)
				if text := err.Error(); !strings.Contains(text, at[10].Time().Format(time.RFC3339)) {
					m.Errorf("error = %v, want the datetime of the newest entry in it", err)
				}
			}
			m.wantEqual("state", m.state(), s)
			m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 10)
			m.ok(m.Check(m.ctx))
			_, err := m.Append(m.ctx, "other", publish(1))
			m.ok(err)
			_, err = m.Trim(m.ctx, name, changelog.Retention{Age: time.Hour, Count: 1})
			m.ok(err)
			m.reopen()
		}
		m.clock.advance(ahead) // the set accepts changes again when that time has come
		m.add(1)
	}},
	{"recreated set starts now", true, func(m *memory) {
		old := m.addFuture()
		m.ok(m.Delete(m.ctx, name))
		m.wantGone(old)
		m.reopen()
		m.make(name, k)
		s := m.state()
		m.wantBegin(s.Begin)
		m.wantEqual("was", s.PriorMicros, old[10].Micros)
		m.wantGone(old)
		// The log passes the positions of the deleted log,
		for range 15 {
			m.clock.advance(step)
			m.add(1)
			m.wantGone(old)
		}
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 15)
		m.reopen()
		m.wantGone(old)
		m.wantEqual("was", m.state().PriorMicros, old[10].Micros)
		// and years later its datetimes, too.
		m.clock.advance(ahead - 600*time.Second)
		for range 40 {
			m.clock.advance(step)
			m.add(1)
			m.wantGone(old)
		}
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 55)
		// A cursor that is later than all of them could belong to this log, so it is only
		// diverged.
		head := m.state().Head
		m.wantDiverged(feed.Cursor{Position: head.Position + 1, Micros: head.Micros + skew.Microseconds()}, head)
	}},
	{"recreated repeatedly", true, func(m *memory) {
		old := m.addFuture()
		m.ok(m.Delete(m.ctx, name))
		latest := old[10].Micros
		for range 3 {
			m.make(name, k)
			s := m.state()
			m.wantEqual("was", s.PriorMicros, latest)
			m.wantBegin(s.Begin)
			m.wantGone(old)
			old = append(old, s.Floor, m.add(4).Cursor)
			m.ok(m.Delete(m.ctx, name)) // the clock stands still
			m.wantGone(old)
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
			m.wantBegin(m.state().Begin)
			m.wantGone(old)
			old = append(old, m.add(8).Cursor)
			m.ok(m.Delete(m.ctx, name))
			m.wantGone(old)
		}
	}},
	{"a correct clock is not in doubt", true, func(m *memory) {
		for range 200 {
			m.wantTick(false)
			m.clock.advance(time.Minute)
		}
		m.reopen()
		for range 20 {
			m.wantTick(false)
			m.clock.advance(40 * time.Minute)
		}
		m.clock.advance(-30 * time.Hour)
		m.wantTick(false)
	}},
	{"a clock far ahead is in doubt for a day", true, func(m *memory) {
		m.wantTick(false)
		m.clock.advance(changelog.ClockStep + time.Microsecond)
		m.wantTick(true)
		m.reopen()
		for range 24*60 - 1 {
			m.clock.advance(time.Minute)
			m.wantTick(true)
		}
		m.clock.advance(time.Minute)
		m.wantTick(false)
		m.clock.advance(time.Minute)
		m.wantTick(false)
		// The clock jumps ahead twice.
		m.clock.advance(ahead)
		m.wantTick(true)
		m.clock.advance(ahead)
		m.wantTick(true)
		m.clock.advance(time.Hour)
		m.wantTick(true)
	}},
	{"a clock that was set back is not in doubt", true, func(m *memory) {
		m.wantTick(false)
		m.clock.advance(ahead)
		m.wantTick(true)
		m.clock.advance(time.Minute)
		m.wantTick(true)
		m.clock.advance(-ahead)
		m.wantTick(false)
		m.reopen()
		m.clock.advance(time.Minute)
		m.wantTick(false)
	}},
	{"nothing is removed by age while the clock is in doubt", true, func(m *memory) {
		m.make(name, k)
		kept := m.publish(keyedPublish("key", 1))[0]
		m.add(94)
		m.clock.advance(ahead)
		m.wantTrim(changelog.Retention{Age: time.Hour, Doubtful: true}, 0)
		m.wantTrim(changelog.Retention{Age: time.Hour, Count: 85, Doubtful: true}, 10)
		m.clock.advance(-ahead)
		kept.Replayed = true
		m.wantEqual("a retry", m.publish(keyedPublish("key", 1))[0], kept)
		m.clock.advance(ahead)
		m.wantTrim(changelog.Retention{Age: time.Hour}, 80)
	}},
	{"no key expires by age while the clock is in doubt", true, func(m *memory) {
		m.make(name, k)
		m.wantTick(false)
		first := m.publish(keyedPublish("key", 1))[0]
		first.Replayed = true
		known := func() {
			m.Helper()
			m.wantEqual("a retry", m.publish(keyedPublish("key", 1))[0], first)
			m.wantErr(feed.ErrKeyReused, m.publish(keyedPublish("key", 2))[0].Err)
			other := publish(1)
			other.Unless = "key"
			m.wantErr(feed.ErrKeyReused, m.publish(other)[0].Err)
		}
		m.clock.advance(2 * changelog.KeyAge)
		known() // before the first Tick,
		m.wantTrim(changelog.Retention{}, 0)
		known()
		m.reopen() // in a hub that starts,
		known()
		m.wantTick(true)
		known() // and until the doubt ends.
		m.reopen()
		known()
		for range 23 {
			m.clock.advance(time.Hour)
			m.wantTick(true)
		}
		m.wantTrim(changelog.Retention{Doubtful: true}, 0)
		known()
		m.clock.advance(time.Hour)
		m.wantTick(false)
		m.wantEqual("replayed", m.publish(keyedPublish("key", 2))[0].Replayed, false)
	}},
	{"keys expire by count while the clock is in doubt", true, func(m *memory) {
		if race {
			m.Skip("100,000 publishes take minutes with the race detector")
		}
		m.make(name, 10_000)
		m.wantTick(false)
		m.publish(keyedPublish("key", 1))
		m.clock.advance(ahead)
		m.wantTick(true)
		for i := range 10 {
			p := make([]changelog.Publish, changelog.KeyCount/10)
			for j := range p {
				p[j] = keyedPublish(fmt.Sprint("n", i*len(p)+j), 1)
			}
			m.publish(p...)
		}
		m.wantEqual("replayed", m.publish(keyedPublish("key", 1))[0].Replayed, false)
	}},
}

// wantBegin checks that a log started now, or only the few microseconds later that earlier logs
// with its name require.
func (m *memory) wantBegin(begin int64) {
	m.Helper()
	if d := begin - m.now(); d < 0 || d > 20 {
		m.Errorf("Begin = %d, want about %d", begin, m.now())
	}
}

// wantTick calls Tick, and checks whether the clock is in doubt.
func (m *memory) wantTick(doubtful bool) {
	m.Helper()
	got, err := m.Tick(m.ctx)
	m.ok(err)
	if got != doubtful {
		m.Fatalf("Tick() at %v = %t", m.clock.now(), got)
	}
}
