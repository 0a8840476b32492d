package soak

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// checkpoint has nobody publish until everybody has caught up, and compares what
// was acknowledged with what each follower got and what each hub lists. Then it
// may delete a set.
func (s *soak) checkpoint() {
	begun := time.Now()
	locked := make(chan struct{})
	go func() {
		s.gate.Lock()
		close(locked)
	}()
	defer func() {
		<-locked
		s.gate.Unlock()
	}()
	hubtest.Until(s, "what is being published is acknowledged", func() error {
		s.healthy()
		select {
		case <-locked:
			return nil
		default:
			return errors.New("it is not")
		}
	})
	for _, set := range soakSets {
		s.compare(set)
	}
	if s.rand.IntN(2) == 0 || s.most == moment {
		s.delete("reborn")
	}
	s.report.sample(s)
	s.Logf("%v: all have the same, after %v", time.Since(s.begun).Round(time.Second), time.Since(begun).Round(time.Millisecond))
}

func (s *soak) compare(set string) {
	l := s.ledgers[set]
	if l.last == 0 {
		return
	}
	listed := s.listed(set)
	all := make([]trial.Entry, 0, l.last-l.settled)
	for p := l.settled + 1; p <= l.last; p++ {
		e, ok := l.texts[p]
		if !ok {
			s.Fatalf("position %d of %s was not acknowledged to anybody, and %d was", p, set, l.last)
		}
		if d, ok := listed[p]; ok {
			if d.Text != e.Text || e.Datetime != "" && d.Datetime != e.Datetime {
				s.Fatalf("the list of %s has %+v, and acknowledged was %+v", set, d, e)
			}
			e = d
		}
		all = append(all, e)
	}
	for _, r := range s.readers {
		if r.Set == set && r.manner != "sleeping" {
			s.same(r, all)
		}
	}
	l.settled, l.texts = l.last, nil
}

// same waits until a reader has what it should, and compares. What no list has
// any more gets its datetime from the first reader that has it.
func (s *soak) same(r *reader, all []trial.Entry) {
	var want []int
	hubtest.Until(s, r.name()+" has caught up", func() error {
		s.healthy()
		r.Mu.Lock()
		defer r.Mu.Unlock()
		want = want[:0]
		skips := slices.Clone(r.skips)
		if n := len(skips); n > 0 {
			if !r.Begun {
				return errors.New("it begins anew")
			}
			skips[n-1][1], _, _ = hubtest.SplitCursor(r.From) // retention may have gone on meanwhile
		}
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
	r.total += len(want)
	r.Entries, r.skips = nil, nil
}

// listed compares the documents of a set at all hubs, byte for byte, and returns
// what the Change Lists list. It tries again when retention came between.
func (s *soak) listed(set string) map[uint64]trial.Entry {
	var all map[uint64]trial.Entry
	hubtest.Until(s, "the hubs list the same of "+set, func() error {
		before, err := state(s.c.Hubs[0], set)
		if err != nil {
			return err
		}
		all = map[uint64]trial.Entry{}
		err = s.documents(set, all)
		after, serr := state(s.c.Hubs[0], set)
		switch {
		case serr != nil:
			return serr
		case before != after:
			return fmt.Errorf("it moved from %+v to %+v", before, after)
		case err != nil:
			return err
		}
		floor, _, _ := hubtest.SplitCursor(after.Floor)
		head, _, _ := hubtest.SplitCursor(after.Head)
		if head != s.ledgers[set].last || uint64(len(all)) != head-floor {
			return fmt.Errorf("%d entries are listed, the floor is %s and the head %s, and %d was acknowledged last", len(all), after.Floor, after.Head, s.ledgers[set].last)
		}
		return nil
	})
	return all
}

func (s *soak) documents(set string, all map[uint64]trial.Entry) error {
	dir := "/sets/" + set + "/"
	fetch := func(path string) ([]byte, error) {
		var first []byte
		for i, h := range s.c.Hubs {
			a, err := hubtest.Request("GET", h.URL+path, nil)
			if err != nil {
				return nil, err
			}
			if a.Status != 200 {
				return nil, fmt.Errorf("%s of hub %d: %d %s", path, i, a.Status, a.Body)
			}
			if i == 0 {
				first = a.Body
			} else if !bytes.Equal(a.Body, first) {
				return nil, fmt.Errorf("%s differs at hub %d", path, i)
			}
		}
		return first, nil
	}
	for _, name := range []string{"capabilitylist.xml", "changelist.xml", "changes"} {
		if _, err := fetch(dir + name); err != nil {
			return err
		}
	}
	b, err := fetch(dir + "changelist-index.xml")
	if err != nil {
		return err
	}
	index, err := trial.ReadList(b)
	if err != nil {
		return err
	}
	for _, it := range index.Items {
		u, err := url.Parse(it.Loc)
		if err != nil {
			return err
		}
		if b, err = fetch(u.Path); err != nil {
			return err
		}
		list, err := trial.ReadList(b)
		if err != nil {
			return err
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
	return nil
}

// delete deletes a set, at a random hub, and waits until all who follow it know.
func (s *soak) delete(set string) {
	l := s.ledgers[set]
	if l.last == 0 {
		return
	}
	told := map[*reader]int{}
	for _, r := range s.readers {
		r.Mu.Lock()
		if r.Set == set && r.Begun && !strings.HasPrefix(r.Cursor, "0-") {
			told[r] = r.gones
		}
		r.Mu.Unlock()
	}
	l.mu.Lock()
	l.deleted = true
	l.mu.Unlock()
	hubtest.Must(s, 204, "DELETE", s.c.Hubs[s.rand.IntN(3)].URL+"/sets/"+set, nil)
	hubtest.Until(s, "all know that "+set+" is gone", func() error {
		s.healthy()
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
	s.report.deleted++
	l.mu.Lock()
	l.deleted, l.last, l.settled, l.texts = false, 0, 0, nil
	l.mu.Unlock()
}
