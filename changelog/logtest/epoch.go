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

// begin begins an epoch, and makes sure that nothing else changes.
func (m *memory) begin(after uint64) {
	m.Helper()
	before := m.state()
	m.ok(m.BeginEpoch(m.ctx, name, after))
	now := m.state()
	if before.Epochs == now.Epochs {
		m.Fatalf("the epochs are still %q", before.Epochs)
	}
	now.Epochs = before.Epochs
	m.same("all else of the state", now, before)
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
		m.begin(feed.MaxNumber)
		first := m.epochs(4)
		m.same("closed lists", first[:2], []string{"", ""})
		if first[2] == "" || first[3] != first[2] {
			m.Fatalf("open lists are of the epochs %q", first[2:])
		}
		m.add(20)
		m.begin(feed.MaxNumber)
		second := m.epochs(5)
		m.same("closed lists", second[:4], first)
		if second[4] == "" || second[4] == second[3] {
			m.Fatalf("lists are of the epochs %q", second)
		}
		m.begin(feed.MaxNumber) // no list was closed in between
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
		m.begin(feed.MaxNumber)
		if names := m.epochs(1); names[0] == "" {
			m.Fatal("the first list is of epoch 0")
		}
	}},
	{"for the lists behind a position", false, func(m *memory) {
		m.make(name, k)
		m.add(45)
		for _, begins := range []struct {
			after uint64
			list  int // the first that gets another name
		}{{45, 5}, {29, 3}, {30, 4}, {20, 3}, {1, 1}, {0, 1}} {
			before := m.epochs(6)
			m.begin(begins.after)
			names := m.epochs(6)
			m.same("lists that are the same", names[:begins.list-1], before[:begins.list-1])
			for n, name := range names[begins.list-1:] {
				if name == "" || name == before[begins.list-1+n] || name != names[5] {
					m.Errorf("behind %d list %d is of epoch %q", begins.after, begins.list+n, name)
				}
			}
		}
	}},
	{"retention ends them", false, func(m *memory) {
		m.make(name, k)
		for range 3 {
			m.add(10)
			m.begin(feed.MaxNumber)
		}
		m.add(40)
		before := m.epochs(8)
		_, err := m.Trim(m.ctx, name, changelog.Retention{Count: 20})
		m.ok(err)
		m.begin(feed.MaxNumber)
		m.same("names that are left", m.state().Epochs, feed.Epochs("4-"+before[3]+" 8-"+m.epochs(8)[7]))
	}},
	{"end with the set", false, func(m *memory) {
		m.wants(feed.ErrNoSet, m.BeginEpoch(m.ctx, name, 0))
		m.make(name, k)
		m.add(25)
		m.begin(feed.MaxNumber)
		m.ok(m.Delete(m.ctx, name))
		m.wants(feed.ErrNoSet, m.BeginEpoch(m.ctx, name, 0))
		m.make(name, k)
		m.same("epochs", m.state().Epochs, feed.Epochs(""))
		m.add(25)
		m.begin(feed.MaxNumber)
		m.same("closed lists", m.epochs(2), []string{"", ""})
	}},
	{"many at once", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		done := make(chan error)
		for range 8 {
			go func() {
				err := m.BeginEpoch(m.ctx, name, feed.MaxNumber)
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
