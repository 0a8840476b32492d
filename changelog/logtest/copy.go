package logtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
)

var copyTests = []test{
	{"answers everything the same", false, func(m *memory) {
		m.long()
		history := m.eventful()
		store := m.store()
		p, err := m.copyTo(store, nil)
		m.ok(err)
		states, err := m.Sets(m.ctx)
		m.ok(err)
		var changes uint64
		for _, s := range states {
			changes += s.Head.Position - s.Floor.Position
		}
		m.same("progress", p, changelog.Progress{Sets: len(states), SetsDone: len(states), Changes: changes, ChangesDone: changes})
		m.twins(m.opened(store), history)
	}},
	{"of an empty memory", false, func(m *memory) {
		store := m.store()
		_, err := m.copyTo(store, nil)
		m.ok(err)
		m.twins(m.opened(store), nil)
	}},
	{"of a copy", false, func(m *memory) {
		m.long()
		history := m.eventful()
		first, second := m.store(), m.store()
		_, err := m.copyTo(first, nil)
		m.ok(err)
		twin := m.opened(first)
		_, err = twin.copyTo(second, nil)
		m.ok(err)
		m.twins(m.opened(second), history)
	}},
	{"is no memory before it is finished", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		store := m.store()
		for stop := 1; ; stop++ {
			_, err := m.copyTo(store, failing(stop, false))
			if err == nil {
				break
			}
			m.wants(errInterrupted, err)
			_, err = store.Open()
			m.wants(changelog.ErrUnfinished, err)
		}
		m.twins(m.opened(store), nil)
	}},
	{"interrupted at every step", false, func(m *memory) {
		m.long()
		history := m.eventful()
		for _, done := range []bool{false, true} {
			store := m.store()
			stop := 1
			for ; ; stop++ {
				_, err := m.copyTo(store, failing(stop, done))
				if err == nil || errors.Is(err, changelog.ErrCopied) { // then the step that failed last was Finish
					break
				}
				m.wants(errInterrupted, err)
			}
			if stop < 10 {
				m.Errorf("a copy of much has %d steps", stop)
			}
			m.twins(m.opened(store), history)
		}
	}},
	{"goes on where it was interrupted", false, func(m *memory) {
		m.long()
		m.make(name, 10_000)
		m.publish(publish(30_000), publish(5))
		store := m.store()
		at, runs := uint64(0), 0
		for p := (changelog.Progress{}); ; {
			runs++
			imp, err := store.Import(m.ID())
			m.ok(err)
			adds := 0
			p, err = changelog.Copy(m.ctx, m.exporter(), &stepping{imp, func(step string, do func() error) error {
				if step == "add" {
					if adds++; adds == 2 {
						return errInterrupted
					}
				}
				return do()
			}}, nil, nil)
			m.ok(imp.Close())
			if p.Before != at {
				m.Fatalf("goes on at %d, was interrupted at %d", p.Before, at)
			}
			at = p.ChangesDone
			if err == nil {
				break
			}
			m.wants(errInterrupted, err)
		}
		m.same("entries", at, uint64(30_005))
		if runs < 3 {
			m.Errorf("it took %d runs", runs)
		}
		m.twins(m.opened(store), nil)
	}},
	{"the source goes on between two runs", false, func(m *memory) {
		m.long()
		for stop := 1; ; stop += 5 {
			history := m.eventful()
			store := m.store()
			if _, err := m.copyTo(store, failing(stop, true)); err == nil {
				return
			}
			m.later(history)
			m.reopen()
			_, err := m.copyTo(store, nil)
			if errors.Is(err, changelog.ErrCopied) {
				return // the first run was interrupted behind its last step
			}
			m.ok(err)
			m.twins(m.opened(store), history)
			m.clear()
		}
	}},
	{"the source goes on meanwhile", false, func(m *memory) {
		step := 2
		if race {
			step = 100
		}
		for at := 1; ; at += step {
			history := m.eventful()
			store := m.store()
			imp, err := store.Import(m.ID())
			m.ok(err)
			n := 0
			_, err = changelog.Copy(m.ctx, m.exporter(), &stepping{imp, func(_ string, do func() error) error {
				if n++; n == at {
					m.later(history)
				}
				return do()
			}}, nil, nil)
			m.ok(err)
			m.ok(imp.Close())
			copied := m.opened(store)
			m.same("identity", copied.ID(), m.ID())
			states, err := copied.Sets(m.ctx)
			m.ok(err)
			for _, s := range states {
				m.isMoment(copied, s, history[s.Set])
			}
			if at > n {
				return
			}
			m.clear()
		}
	}},
	{"what was copied is no more so", true, func(m *memory) {
		other := m.opened(m.store())
		for _, mem := range []*memory{m, other} { // at the same time, so that they begin alike
			mem.make(name, k)
			mem.make("shorter", k)
		}
		m.make("unknown", k)
		m.add(25)
		_, err := m.Append(m.ctx, "shorter", publish(25))
		m.ok(err)
		m.clock.advance(time.Second)
		other.add(95)
		_, err = other.Append(m.ctx, "shorter", publish(5))
		m.ok(err)

		store := m.store()
		imp, err := store.Import(other.ID())
		m.ok(err)
		_, err = changelog.Copy(m.ctx, m.exporter(), &stepping{imp, func(step string, do func() error) error {
			if step == "finish" {
				return errInterrupted
			}
			return do()
		}}, nil, nil)
		m.wants(errInterrupted, err)
		m.ok(imp.Close())
		p, err := other.copyTo(store, nil)
		m.ok(err)
		m.same("changes from before", p.Before, uint64(0))
		other.twins(m.opened(store), nil)
	}},
	{"a key that is used anew between two runs", true, func(m *memory) {
		m.make(name, k)
		m.publish(keyed("key", 1))
		store := m.store()
		_, err := m.copyTo(store, failing(4, false))
		m.wants(errInterrupted, err) // behind begin, add and keys
		m.clock.advance(changelog.KeyAge + time.Second)
		want := m.publish(keyed("key", 2))[0]
		want.Replayed = true
		_, err = m.copyTo(store, nil)
		m.ok(err)
		copied := m.opened(store)
		_, err = copied.Trim(m.ctx, name, changelog.Retention{}) // takes the first use, if it is there
		m.ok(err)
		m.same("answer", copied.publish(keyed("key", 2))[0], want)
	}},
	{"a finished copy is left alone", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		store := m.store()
		_, err := m.copyTo(store, nil)
		m.ok(err)
		copied := m.opened(store)
		copied.add(3)
		s := copied.state()
		m.ok(copied.Close())
		_, err = store.Import(m.ID())
		m.wants(changelog.ErrCopied, err)
		m.same("state", m.opened(store).state(), s)
	}},
	{"another memory is left alone", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		memories, unfinished := m.store(), m.store()
		other := m.opened(memories)
		other.make(name, k)
		other.add(3)
		s := other.state()
		m.ok(other.Close())
		imp, err := unfinished.Import(other.ID())
		m.ok(err)
		m.ok(imp.Close())
		for _, store := range []Store{memories, unfinished} {
			_, err := store.Import(m.ID())
			if err == nil || errors.Is(err, changelog.ErrCopied) {
				m.Fatalf("another memory is copied over: %v", err)
			}
			if !strings.Contains(err.Error(), other.ID()) {
				m.Errorf("the error does not name the memory: %v", err)
			}
		}
		again := m.opened(memories)
		m.same("identity", again.ID(), other.ID())
		m.same("state", again.state(), s)
		imp, err = unfinished.Import(other.ID())
		m.ok(err)
		m.ok(imp.Close())
	}},
	{"a context that is done", false, func(m *memory) {
		m.make(name, k)
		m.add(25)
		store := m.store()
		imp, err := store.Import(m.ID())
		m.ok(err)
		ctx, cancel := context.WithCancel(m.ctx)
		_, err = changelog.Copy(ctx, m.exporter(), imp, nil, func(changelog.Progress) { cancel() })
		m.wants(context.Canceled, err)
		m.ok(imp.Close())
		_, err = m.copyTo(store, nil)
		m.ok(err)
		m.twins(m.opened(store), nil)
	}},
}
