package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
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
	until(s, "what is being published is acknowledged", func() error {
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
	all := make([]entry, 0, l.last-l.settled)
	for p := l.settled + 1; p <= l.last; p++ {
		e, ok := l.texts[p]
		if !ok {
			s.Fatalf("position %d of %s was not acknowledged to anybody, and %d was", p, set, l.last)
		}
		if d, ok := listed[p]; ok {
			if d.text != e.text || e.datetime != "" && d.datetime != e.datetime {
				s.Fatalf("the list of %s has %+v, and acknowledged was %+v", set, d, e)
			}
			e = d
		}
		all = append(all, e)
	}
	for _, r := range s.readers {
		if r.set == set && r.manner != "sleeping" {
			s.same(r, all)
		}
	}
	l.settled, l.texts = l.last, nil
}

// same waits until a reader has what it should, and compares. What no list has
// any more gets its datetime from the first reader that has it.
func (s *soak) same(r *reader, all []entry) {
	var want []int
	until(s, r.name()+" has caught up", func() error {
		s.healthy()
		r.mu.Lock()
		defer r.mu.Unlock()
		want = want[:0]
		skips := slices.Clone(r.skips)
		if n := len(skips); n > 0 {
			if !r.begun {
				return errors.New("it begins anew")
			}
			skips[n-1][1], _, _ = splitCursor(r.from) // retention may have gone on meanwhile
		}
		for i, e := range all {
			gone := slices.ContainsFunc(skips, func(k [2]uint64) bool { return e.position > k[0] && e.position <= k[1] })
			if !gone && (r.change == "" || strings.Contains(e.text, `"change":"`+r.change+`"`)) {
				want = append(want, i)
			}
		}
		if len(r.entries) < len(want) {
			return fmt.Errorf("it has %d entries of %d, and is at %s; ends %q", len(r.entries), len(want), r.cursor, r.ends)
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, i := range want {
		got := r.entries[n]
		if all[i].datetime == "" {
			all[i].datetime = got.datetime
		}
		if got != all[i] {
			s.Fatalf("%s: got %+v, and %+v is due", r.name(), got, all[i])
		}
	}
	if len(r.entries) > len(want) {
		s.Fatalf("%s has %d entries, not %d: %+v", r.name(), len(r.entries), len(want), r.entries[len(want)])
	}
	r.total += len(want)
	r.entries, r.skips = nil, nil
}

// listed compares the documents of a set at all hubs, byte for byte, and returns
// what the Change Lists list. It tries again when retention came between.
func (s *soak) listed(set string) map[uint64]entry {
	var all map[uint64]entry
	until(s, "the hubs list the same of "+set, func() error {
		before, err := state(s.c.hubs[0], set)
		if err != nil {
			return err
		}
		all = map[uint64]entry{}
		err = s.documents(set, all)
		after, serr := state(s.c.hubs[0], set)
		switch {
		case serr != nil:
			return serr
		case before != after:
			return fmt.Errorf("it moved from %+v to %+v", before, after)
		case err != nil:
			return err
		}
		floor, _, _ := splitCursor(after.Floor)
		head, _, _ := splitCursor(after.Head)
		if head != s.ledgers[set].last || uint64(len(all)) != head-floor {
			return fmt.Errorf("%d entries are listed, the floor is %s and the head %s, and %d was acknowledged last", len(all), after.Floor, after.Head, s.ledgers[set].last)
		}
		return nil
	})
	return all
}

func (s *soak) documents(set string, all map[uint64]entry) error {
	dir := "/sets/" + set + "/"
	fetch := func(path string) ([]byte, error) {
		var first []byte
		for i, h := range s.c.hubs {
			a, err := request("GET", h.url+path, nil)
			if err != nil {
				return nil, err
			}
			if a.status != 200 {
				return nil, fmt.Errorf("%s of hub %d: %d %s", path, i, a.status, a.body)
			}
			if i == 0 {
				first = a.body
			} else if !bytes.Equal(a.body, first) {
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
	index, err := readList(b)
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
		list, err := readList(b)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(b); !list.Until.IsZero() {
			if old, ok := s.closed[u.Path]; ok && old != sum {
				s.Fatalf("the closed list %s has changed", u.Path)
			}
			s.closed[u.Path] = sum
		}
		for _, e := range list.entries {
			all[e.position] = e
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
		r.mu.Lock()
		if r.set == set && r.begun && !strings.HasPrefix(r.cursor, "0-") {
			told[r] = r.gones
		}
		r.mu.Unlock()
	}
	l.mu.Lock()
	l.deleted = true
	l.mu.Unlock()
	must(s, 204, "DELETE", s.c.hubs[s.rand.IntN(3)].url+"/sets/"+set, nil)
	until(s, "all know that "+set+" is gone", func() error {
		s.healthy()
		for r, n := range told {
			r.mu.Lock()
			gones, ends := r.gones, r.ends
			r.mu.Unlock()
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
