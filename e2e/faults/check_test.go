package faults

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// checkpoint has nobody publish until everybody has caught up, and compares what was
// acknowledged with what each reader got and what each hub lists.
func (s *soak) checkpoint() {
	locked := make(chan struct{})
	go func() {
		s.gate.Lock()
		close(locked)
	}()
	defer func() {
		<-locked
		s.gate.Unlock()
	}()
	s.until("what is being published is acknowledged", func() error {
		select {
		case <-locked:
			return nil
		default:
			return errors.New("it is not")
		}
	})
	for _, set := range soakSets {
		l := s.ledgers[set]
		if l.last == 0 {
			continue
		}
		all, err := l.since(s.listed(set))
		if err != nil {
			s.Fatalf("%s: %v", set, err)
		}
		for _, r := range s.readers {
			if r.Set == set && r.manner != "sleeping" {
				s.same(r, all)
			}
		}
		l.settle(l.last)
	}
	if s.r.IntN(2) == 0 || s.count("sets deleted") == 0 {
		s.delete("reborn")
	}
	s.usage = append(s.usage, s.sample())
}

// same waits until a reader has what it should, and compares. What no list has any more gets
// its datetime from the first reader that has it.
func (s *soak) same(r *reader, all []trial.Entry) {
	var want []int
	s.until(r.name()+" has caught up", func() error {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		skips := slices.Clone(r.skips)
		if n := len(skips); n > 0 {
			if !r.Begun {
				return errors.New("it begins anew")
			}
			skips[n-1][1], _, _ = hubtest.SplitCursor(r.From) // retention may have gone on meanwhile
		}
		want = want[:0]
		for i, e := range all {
			gone := slices.ContainsFunc(skips, func(k [2]uint64) bool { return e.Position > k[0] && e.Position <= k[1] })
			if !gone && (r.change == "" || strings.Contains(e.Text, `"change":"`+r.change+`"`)) {
				want = append(want, i)
			}
		}
		if len(r.Entries) < len(want) {
			return fmt.Errorf("it has %d entries of %d, and is at %s; ends %q", len(r.Entries), len(want), r.Cursor, r.Ends)
		}
		return nil
	})
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for n, i := range want {
		got := r.Entries[n]
		if all[i].Datetime == "" {
			all[i].Datetime = got.Datetime
		}
		if got != all[i] {
			s.Fatalf("%s: got %+v, and %+v is due", r.name(), got, all[i])
		}
	}
	if len(r.Entries) > len(want) {
		s.Fatalf("%s has %d entries, not %d: %+v", r.name(), len(r.Entries), len(want), r.Entries[len(want)])
	}
	s.add("changes delivered by "+r.Way, len(want))
	r.Entries, r.skips = nil, nil
}

// listed compares the documents of a set at all hubs, byte for byte, and returns what the
// Change Lists list. It tries again when retention came between.
func (s *soak) listed(set string) map[uint64]trial.Entry {
	var all map[uint64]trial.Entry
	s.until("the hubs list the same of "+set, func() error {
		before, err := state(s.Hubs[0], set)
		if err != nil {
			return err
		}
		var lerr error
		all, lerr = s.documents(set)
		after, err := state(s.Hubs[0], set)
		switch {
		case err != nil:
			return err
		case before != after:
			return fmt.Errorf("it moved from %+v to %+v", before, after)
		case lerr != nil:
			return lerr
		}
		floor, _, _ := hubtest.SplitCursor(after.Floor)
		head, _, _ := hubtest.SplitCursor(after.Head)
		if last := s.ledgers[set].last; head != last || uint64(len(all)) != head-floor {
			return fmt.Errorf("%d entries are listed, the floor is %s and the head %s, and %d was acknowledged last", len(all), after.Floor, after.Head, last)
		}
		return nil
	})
	return all
}

// documents reads all Change Lists of a set. A closed one has to be as it was.
func (s *soak) documents(set string) (map[uint64]trial.Entry, error) {
	dir := "/sets/" + set + "/"
	for _, name := range []string{"capabilitylist.xml", "changelist.xml", "changes"} {
		if _, err := s.fetch(dir + name); err != nil {
			return nil, err
		}
	}
	b, err := s.fetch(dir + "changelist-index.xml")
	if err != nil {
		return nil, err
	}
	index, err := trial.ReadList(b)
	if err != nil {
		return nil, err
	}
	all := map[uint64]trial.Entry{}
	for _, it := range index.Items {
		u, err := url.Parse(it.Loc)
		if err != nil {
			return nil, err
		}
		if b, err = s.fetch(u.Path); err != nil {
			return nil, err
		}
		list, err := trial.ReadList(b)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(b); !list.Until.IsZero() {
			if old, ok := s.closed[u.Path]; ok && old != sum {
				s.Fatalf("the closed list %s has changed", u.Path)
			}
			s.closed[u.Path] = sum
		}
		for _, e := range list.Entries {
			all[e.Position] = e
		}
	}
	return all, nil
}

// fetch gets a document of every hub, which has to be the same.
func (s *soak) fetch(path string) (first []byte, err error) {
	for i, h := range s.Hubs {
		a, err := hubtest.Request(http.MethodGet, h.URL+path, nil)
		switch {
		case err != nil:
			return nil, err
		case a.Status != http.StatusOK:
			return nil, fmt.Errorf("%s of hub %d: %d %s", path, i, a.Status, a.Body)
		case i == 0:
			first = a.Body
		case !bytes.Equal(a.Body, first):
			return nil, fmt.Errorf("%s differs at hub %d", path, i)
		}
	}
	return first, nil
}

// delete deletes a set, at a random hub, and waits until all who follow it know.
func (s *soak) delete(set string) {
	l := s.ledgers[set]
	if l.last == 0 {
		return
	}
	told := map[*reader]int{}
	for _, r := range s.readers {
		at := r.position()
		r.Mu.Lock()
		if r.Set == set && r.Begun && at > 0 {
			told[r] = r.gones
		}
		r.Mu.Unlock()
	}
	l.delete()
	hubtest.Must(s, http.StatusNoContent, http.MethodDelete, s.hub(s.r).URL+"/sets/"+set, nil)
	s.until("all know that "+set+" is gone", func() error {
		for r, n := range told {
			r.Mu.Lock()
			gones, ends := r.gones, r.Ends
			r.Mu.Unlock()
			if gones == n {
				return fmt.Errorf("%s does not; ends %q", r.name(), ends)
			}
		}
		return nil
	})
	for _, p := range s.sources {
		delete(p.last, set)
	}
	s.add("sets deleted", 1)
	l.settle(0)
}
