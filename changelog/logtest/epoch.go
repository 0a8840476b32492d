package logtest

import (
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// epochs returns the epoch of each of the first n lists.
func (m *memory) epochs(n int) []string {
	m.Helper()
	e := m.state().Epochs
	names := make([]string, n)
	for i := range names {
		names[i] = e.Of(uint64(i + 1))
	}
	return names
}

// begins calls BeginEpoch, and returns whether an epoch has begun.
func (m *memory) begins(lost feed.Cursor) bool {
	m.Helper()
	before := m.state()
	begun, err := m.BeginEpoch(m.ctx, name, lost)
	m.ok(err)
	after := m.state()
	if (before.Epochs != after.Epochs) != begun {
		m.Fatalf("the epochs are %q, they were %q, begun %t", after.Epochs, before.Epochs, begun)
	}
	after.Epochs = before.Epochs
	m.same("all else of the state", after, before)
	return begun
}

var epochTests = []test{
	{"none at first", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		m.reopen()
		m.same("epochs", m.state().Epochs, feed.Epochs(""))
	}},
	{"for the open list on", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		m.same("begun", m.begins(feed.Cursor{}), true)
		first := m.epochs(4)
		m.same("closed lists", first[:2], []string{"", ""})
		if first[2] == "" || first[3] != first[2] {
			m.Fatalf("open lists are of the epochs %q", first[2:])
		}
		m.add(20)
		m.same("begun", m.begins(feed.Cursor{}), true)
		second := m.epochs(5)
		m.same("closed lists", second[:4], first)
		if second[4] == "" || second[4] == second[3] {
			m.Fatalf("lists are of the epochs %q", second)
		}
		m.same("begun", m.begins(feed.Cursor{}), true) // no list was closed in between
		third := m.epochs(5)
		m.same("closed lists", third[:4], first)
		if third[4] == second[4] {
			m.Fatalf("two epochs have the name %q", third[4])
		}
		m.ok(m.Describe(m.ctx, name, feed.Description{Title: "another"}))
		m.add(25)
		m.same("epochs", m.epochs(5), third)
		m.reopen()
		m.same("epochs", m.epochs(5), third)
	}},
	{"in an empty log", false, func(m *memory) {
		m.make(name, k)
		m.same("begun", m.begins(feed.Cursor{}), true)
		if names := m.epochs(1); names[0] == "" {
			m.Fatal("the first list is of epoch 0")
		}
	}},
	{"not for a cursor that the log has", false, func(m *memory) {
		m.make(name, k)
		floor := m.state().Floor
		m.add(25)
		m.add(1)
		for _, e := range m.all(floor) {
			m.same("begun", m.begins(e.Cursor), false)
		}
		m.same("begun", m.begins(floor), false)
		m.same("begun", m.begins(feed.Cursor{Position: 7, Micros: floor.Micros - 1}), false)
		m.add(50)
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 20})
		m.ok(err)
		m.same("begun", m.begins(m.state().Floor), false)
		m.same("begun", m.begins(floor), false) // retention removed it, so nobody knows
	}},
	{"for a cursor that the log lost", true, func(m *memory) {
		m.make(name, k)
		m.add(25)
		kept := m.state().Head
		m.clock.advance(2 * skew)
		m.add(3) // after the loss
		lost := feed.Cursor{Position: 45, Micros: kept.Micros + skew.Microseconds()}
		m.add(40)
		m.same("begun", m.begins(lost), true)
		names := m.epochs(7)
		m.same("lists that are the same", names[:2], []string{"", ""})
		for n, name := range names[2:] {
			if name == "" || name != names[2] {
				m.Errorf("list %d may differ from what it was, and is of epoch %q", n+3, name)
			}
		}
		// There may now be another entry at a lost cursor.
		m.clock.advance(2 * skew)
		m.add(10)
		m.clock.advance(2 * skew)
		m.same("begun", m.begins(feed.Cursor{Position: 3, Micros: m.state().Head.Micros - 1}), true)
		if again := m.epochs(1); again[0] == "" {
			m.Error("list 1 may differ from what it was, and is of epoch 0")
		}
	}},
	{"retention ends them", false, func(m *memory) {
		m.make(name, k)
		for range 3 {
			m.add(10)
			m.begins(feed.Cursor{})
		}
		m.add(40)
		before := m.epochs(8)
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 20})
		m.ok(err)
		m.begins(feed.Cursor{})
		m.same("names that are left", m.state().Epochs, feed.Epochs("4-"+before[3]+" 8-"+m.epochs(8)[7]))
	}},
	{"end with the set", false, func(m *memory) {
		_, err := m.BeginEpoch(m.ctx, name, feed.Cursor{})
		m.wants(feed.ErrNoSet, err)
		m.make(name, k)
		m.add(25)
		m.begins(feed.Cursor{})
		m.ok(m.Delete(m.ctx, name))
		_, err = m.BeginEpoch(m.ctx, name, feed.Cursor{})
		m.wants(feed.ErrNoSet, err)
		m.make(name, k)
		m.same("epochs", m.state().Epochs, feed.Epochs(""))
		m.add(25)
		m.begins(feed.Cursor{})
		m.same("closed lists", m.epochs(2), []string{"", ""})
	}},
	{"many at once", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		done := make(chan error)
		for range 8 {
			go func() {
				_, err := m.BeginEpoch(m.ctx, name, feed.Cursor{})
				if err == nil {
					_, err = m.Append(m.ctx, name, publish(3))
				}
				done <- err
			}()
		}
		for range 8 {
			m.ok(<-done)
		}
		names := m.epochs(6)
		m.same("closed lists", names[:2], []string{"", ""})
		for _, name := range names[2:] {
			if name == "" {
				m.Errorf("a list that was open is of epoch 0: %q", names)
			}
		}
	}},
}
