package faults

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// checkpoint stops publishing, waits until all readers have caught up, and compares the
// acknowledged changes with what each reader received and each hub lists.
func (s *soak) checkpoint() {
	s.until("all publishes are acknowledged", func() error {
		if !s.gate.TryLock() {
			return errors.New("a publish is in progress")
		}
		return nil
	})
	defer s.gate.Unlock()
	for _, set := range soakSets {
		l := s.ledgers[set]
		if l.last.Load() == 0 {
			continue
		}
		all, err := l.since(s.compareDocuments(set))
		if err != nil {
			s.Fatalf("%s: %v", set, err)
		}
		for _, r := range s.readers {
			if r.Set == set && r.behavior != "sleeping" {
				s.checkReader(r, all)
			}
		}
		l.settle(l.last.Load())
	}
	if s.r.IntN(2) == 0 || s.Get("sets deleted") == nil {
		s.delete("reborn")
	}
	s.checkGrowth()
}

// checkGrowth compares the resources used by the third hub, which is never stopped, with the maximum
// in the first third of the soak. Any number of the clients may be at this hub, and the memory
// used per set grows for a while.
func (s *soak) checkGrowth() {
	third := s.Hubs[2]
	hubtest.Must(s, http.StatusOK, http.MethodGet, third.Ops+"/debug/pprof/heap?gc=1", nil)
	for metric, more := range map[string]struct{ times, besides float64 }{
		"process_resident_memory_bytes": {1.5, 64 << 20}, "go_memstats_heap_alloc_bytes": {1.5, 8 << 20}, "go_goroutines": {1, 150}, "process_open_fds": {1, 75},
	} {
		used, most := hubtest.Metric(s, third, metric), s.used[metric]
		if used == 0 || time.Now().After(s.grown) && used > more.times*most+more.besides {
			s.Errorf("%s of hub 2 = %.0f, earlier maximum %.0f", metric, used, most)
		}
		if time.Now().Before(s.grown) {
			s.used[metric] = max(most, used)
		}
	}
}

// checkReader waits until a reader has received the expected entries, and compares them. Entries that
// are no longer listed get their datetime from the first reader that has them.
func (s *soak) checkReader(r *reader, all []trial.Entry) {
	var want []*trial.Entry
	s.until(r.name()+" has caught up", func() error {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		skips := slices.Clone(r.skips)
		if n := len(skips); n > 0 {
			if !r.Started {
				return errors.New("restarting")
			}
			skips[n-1][1], _, _ = hubtest.SplitCursor(r.From) // retention may have advanced in the meantime
		}
		want = want[:0]
		for i, e := range all {
			gone := slices.ContainsFunc(skips, func(k [2]uint64) bool { return e.Position > k[0] && e.Position <= k[1] })
			if !gone && (r.change == "" || strings.Contains(e.Text, `"change":"`+r.change+`"`)) {
				want = append(want, &all[i])
			}
		}
		if len(r.Entries) < len(want) {
			return fmt.Errorf("got %d of %d entries up to %s; errors %q", len(r.Entries), len(want), r.Cursor, r.Errs)
		}
		return nil
	})
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for i, due := range want {
		got := r.Entries[i]
		if due.Datetime == "" {
			due.Datetime = got.Datetime
		}
		if got != *due {
			s.Fatalf("%s: got %+v, want %+v", r.name(), got, *due)
		}
	}
	if len(r.Entries) > len(want) {
		s.Fatalf("%s: got %d entries, want %d; the next is %+v", r.name(), len(r.Entries), len(want), r.Entries[len(want)])
	}
	s.Add("changes delivered by "+r.Transport, int64(len(want)))
	r.Entries, r.skips = nil, nil
}

// compareDocuments compares the documents of a set at all hubs byte by byte, and returns the entries of
// the Change Lists. It retries if retention has interfered.
func (s *soak) compareDocuments(set string) map[uint64]trial.Entry {
	var all map[uint64]trial.Entry
	s.until("the hubs list the same entries of "+set, func() error {
		before, err := state(s.Hubs[0], set)
		if err != nil {
			return err
		}
		if all, err = s.documents("/sets/" + set + "/"); err != nil {
			return err
		}
		floor, _, _ := hubtest.SplitCursor(before.Floor)
		head, _, _ := hubtest.SplitCursor(before.Head)
		if last := s.ledgers[set].last.Load(); head != last || uint64(len(all)) != head-floor {
			return fmt.Errorf("got %d listed entries, floor %s, head %s, last acknowledged position %d", len(all), before.Floor, before.Head, last)
		}
		return nil
	})
	return all
}

// documents reads all Change Lists of a set.
func (s *soak) documents(dir string) (map[uint64]trial.Entry, error) {
	for _, name := range []string{"capabilitylist.xml", "changelist.xml", "changes"} {
		if _, err := s.fetch(dir + name); err != nil {
			return nil, err
		}
	}
	index, err := s.list(dir + "changelist-index.xml")
	if err != nil {
		return nil, err
	}
	all := map[uint64]trial.Entry{}
	for _, it := range index.Items {
		list, err := s.list(strings.TrimPrefix(it.Loc, s.base))
		if err != nil {
			return nil, err
		}
		for _, e := range list.Entries {
			all[e.Position] = e
		}
	}
	return all, nil
}

// list reads a list. A closed list must not have changed.
func (s *soak) list(path string) (*trial.List, error) {
	b, err := s.fetch(path)
	if err != nil {
		return nil, err
	}
	list, err := trial.ReadList(b)
	if err == nil && !list.Until.IsZero() {
		if old, ok := s.closed[path]; ok && old != sum(b) {
			s.Fatalf("closed list %s has changed", path)
		}
		s.closed[path] = sum(b)
	}
	return list, err
}

// fetch fetches a document from every hub, and returns an error if they differ.
func (s *soak) fetch(path string) (first []byte, err error) {
	for i, h := range s.Hubs {
		b, err := get(h.URL + path)
		switch {
		case err != nil:
			return nil, err
		case i == 0:
			first = b
		case !bytes.Equal(b, first):
			return nil, fmt.Errorf("%s differs at hub %d", path, i)
		}
	}
	return first, nil
}

// delete deletes a set at a random hub, and waits until all its followers have been notified.
func (s *soak) delete(set string) {
	l := s.ledgers[set]
	if l.last.Load() == 0 {
		return
	}
	told := map[*reader]int64{}
	for _, r := range s.readers {
		if r.Set == set && r.position() > 0 {
			told[r] = r.goneCount.Load()
		}
	}
	l.deleted.Store(true)
	hubtest.Must(s, http.StatusNoContent, http.MethodDelete, s.hub(s.r).URL+"/sets/"+set, nil)
	s.until("all followers know that "+set+" was deleted", func() error {
		for r, n := range told {
			if r.goneCount.Load() == n {
				return fmt.Errorf("%s at %s does not", r.name(), r.CurrentCursor())
			}
		}
		return nil
	})
	for _, p := range s.sources {
		delete(p.last, set)
	}
	s.Add("sets deleted", 1)
	l.settle(0)
}
