package faults

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// An end is the source's end of the wire.
type end struct {
	*origin
	dir     string                                           // has the resources
	plays   func() []*mirrored                               // plays the programs that publish to the set "files", and mirrors that need no hub
	changes func() error                                     // changes the resources at random for a while
	says    func(hashes map[string]string) map[string]string // the versions that the hubs know in the end, by loc
}

// newEnd returns an end of which somebody says the hashes.
func newEnd(s *stage, dir string) *end {
	e := &end{dir: dir, origin: newOrigin(s, dir, true)}
	e.says = func(hashes map[string]string) map[string]string {
		all := map[string]string{}
		for name, hash := range hashes {
			all[e.loc(name)] = "sha-256:" + hash
		}
		return all
	}
	return e
}

// directory is a directory under rspublish watch.
func directory(s *stage) *end {
	t := newTree(s, s.of(1), size(300, 20_000))
	e := newEnd(s, t.dir)
	e.plays = func() []*mirrored {
		s.program("watch", []string{"XDG_CACHE_HOME=" + s.TempDir()}, hubtest.Rspublish, "watch", "-hub", s.base, "-set", "files",
			"-settle", "100ms", "-max-delete", "all", "-retry", "2s", "-base", e.base(), t.dir)
		return nil
	}
	e.changes = func() error {
		t.keep(size(600, 20_000), size(20*time.Millisecond, 8*time.Millisecond))
		return nil
	}
	return e
}

// relay plays rspublish relay.
func (s *stage) relay(every string, args ...string) {
	s.program("relay", nil, hubtest.Rspublish, append([]string{"relay", "-hub", s.base, "-set", "files", "-every", every, "-retry", "2s",
		"-max-delete", "all", "-state", filepath.Join(s.TempDir(), "state.json")}, args...)...)
}

// staticSite is a directory as a site that has no hub, but documents of ResourceSync.
func staticSite(s *stage) *end {
	t := newTree(s, s.of(1), size(200, 5_000))
	e := newEnd(s, t.dir)
	site := newSite(e.origin, t.dir, s.of(3))
	if _, err := site.run(true); err != nil {
		s.Fatal(err)
	}
	e.plays = func() []*mirrored {
		s.relay(size("1s", "2s"), e.URL+"/capabilitylist.xml")
		return []*mirrored{s.mirror("mirror of the site", e.base(), e.URL, "-every", size("100ms", "2s"))}
	}
	e.changes = func() error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			t.keep(size(500, 8_000), size(15*time.Millisecond, 10*time.Millisecond))
		}()
		return site.keep(size(150*time.Millisecond, time.Second), size(4*time.Second, 20*time.Second), done)
	}
	return e
}

// papers are the resources of a repository that speaks OAI-PMH, of a program that somebody
// else wrote.
func papers(s *stage) *end {
	p := newRepository(s, s.of(1), size(120, 3_000))
	e := &end{dir: p.dir, origin: newOrigin(s, p.dir, false)} // OAI-PMH has no hashes, but datestamps
	e.says = func(map[string]string) map[string]string {
		all := map[string]string{}
		for _, r := range p.records {
			if !r.Deleted {
				all[e.loc(r.ID)] = r.Datestamp
			}
		}
		return all
	}
	e.plays = func() []*mirrored {
		s.play("repository", p.start)
		s.relay("1s", "-oai", "-loc", e.base()+"{local}", "http://"+p.addr+"/oai")
		return nil
	}
	e.changes = func() error {
		p.keep(size(80, 600), size(100*time.Millisecond, 200*time.Millisecond))
		return nil
	}
	return e
}

// TestEnds changes what a source has, at random. Two mirrors and a command follow it through
// two hubs. All programs are killed the whole time, and hubs, Redis and NATS fail. In the end
// the mirrors are what the source is, and the command was handed every change.
func TestEnds(t *testing.T) {
	for name, begin := range map[string]func(*stage) *end{"directory": directory, "site": staticSite, "repository": papers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, seed(hubtest.Seed(t, rand.Uint64()%1_000_000)), 2, size(400*time.Millisecond, 3*time.Second), nil)
			s.ends(begin(s))
		})
	}
}

func (s *stage) ends(e *end) {
	in := s.command(e)
	first := len(s.players) - 1
	mirrors := append(e.plays(), s.mirror("mirror of a hub", e.base(), s.Hubs[1].Topic("files")), s.mirror("mirror of the hubs", e.base(), s.topic("files")))
	s.kinds = []string{"hub killed", "hub killed", "hub stopped", "hub drained", "hubs moved", "hubs moved", "NATS ended", "Redis killed", "link to Redis cut"}
	for _, p := range s.players[first:] {
		s.kinds = append(s.kinds, p.name+" killed", p.name+" killed")
	}
	var work sync.WaitGroup
	changed := make(chan error, 1)
	work.Go(func() { changed <- e.changes() })
	s.Cleanup(work.Wait)
	for over := false; !over || !s.dealt(); {
		s.round()
		select {
		case err := <-changed:
			if over = true; err != nil {
				s.Fatal(err)
			}
		default:
		}
	}
	e.mend()
	want, err := contents(e.dir)
	if err != nil {
		s.Fatal(err)
	}
	began := time.Now()
	s.until("the hubs know what the source is", func() error {
		_, got := s.log()
		return compare(got, e.says(want))
	})
	for _, m := range mirrors {
		s.until("the "+m.name+" is what the source is", func() error { return m.differs(want) })
		s.until("an audit says so", func() error { // the mirror may not have read the last changes yet
			if code, stdout, stderr := hubtest.Run(s, nil, nil, hubtest.Rsmirror, "audit", m.dir); code != 0 || stdout != "" {
				return fmt.Errorf("it ends with %d: %s%s", code, stdout, stderr)
			}
			return nil
		})
		s.Logf("the %s is what the source is after %v", m.name, time.Since(began).Round(time.Millisecond))
	}
	s.until("the command was handed the log", func() error {
		all, err := in.handed()
		if log, _ := s.log(); err == nil && !slices.Equal(all, log) {
			err = fmt.Errorf("it was handed %d changes of %d", len(all), len(log))
		}
		return err
	})
	for _, p := range s.players[first:] {
		if p.name == "repository" {
			continue
		}
		p.ending = "drained"
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(); code != 0 {
			s.Errorf("%s ended with %d after SIGTERM: %s", p.name, code, p.Stderr)
		}
	}
	for _, m := range mirrors {
		if err := m.differs(want); err != nil {
			s.Errorf("in the end, the %s: %v", m.name, err)
		}
	}
	s.Logf("the source has %d resources", len(want))
}

// command plays rsmirror with a command, and returns what that was handed. A baseline would
// not say every change, so it has only one resource, which is deleted before others come.
func (s *stage) command(e *end) inbox {
	publish := func(change string) {
		line := fmt.Sprintf(`{"loc":%q,"change":%q}`, e.loc("the first"), change)
		hubtest.Publish(s, s.Hubs[0], "files", []byte(line))
	}
	publish("created")
	in := inbox{s.TempDir()}
	s.program("command", nil, hubtest.Rsmirror, "-to", "exec:"+in.command(), s.topic("files"), s.TempDir()).Says("the baseline is complete")
	publish("deleted")
	s.until("the command goes on behind its baseline", func() error {
		all, err := in.handed()
		if err == nil && len(all) < 2 {
			err = fmt.Errorf("it was handed %+v", all)
		}
		return err
	})
	return in
}
