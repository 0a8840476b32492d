package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/internal/mirror/filename"
)

// An end is the source's end of the wire.
type end struct {
	*origin
	dir     string                   // has the resources
	plays   func()                   // plays the programs that publish to the set "files", and mirrors that need no hub
	changes func()                   // changes the resources at random for a while
	stamps  func() map[string]string // the versions that the hubs know in the end, by loc; nil: they are the hashes
}

// directory is a directory under rspublish watch.
func directory(s *stage) *end {
	t := newTree(s, s.of(1), size(300, 20_000))
	e := &end{dir: t.dir, origin: newOrigin(s, t.dir, true)}
	e.plays = func() {
		s.program("watch", []string{"XDG_CACHE_HOME=" + s.TempDir()}, hubtest.Rspublish, "watch", "-hub", s.base, "-set", "files",
			"-settle", "100ms", "-max-delete", "all", "-retry", "2s", "-base", e.base(), t.dir)
	}
	e.changes = func() { t.keep(size(600, 20_000), size(20*time.Millisecond, 8*time.Millisecond)) }
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
	e := &end{dir: t.dir, origin: newOrigin(s, t.dir, true)}
	site := newSite(e.origin, t.dir, s.of(3))
	e.plays = func() {
		s.relay(size("1s", "2s"), e.URL+"/capabilitylist.xml")
		s.mirror("mirror of the site", e.base(), e.URL, "-every", size("100ms", "2s"))
	}
	e.changes = func() {
		var over atomic.Bool
		go func() {
			t.keep(size(500, 8_000), size(15*time.Millisecond, 10*time.Millisecond))
			over.Store(true)
		}()
		site.keep(size(150*time.Millisecond, time.Second), 25, &over)
	}
	return e
}

// papers are the resources of a repository that speaks OAI-PMH, of a program that somebody
// else wrote.
func papers(s *stage) *end {
	p := newRepository(s, s.of(1), size(120, 3_000))
	e := &end{dir: p.dir, origin: newOrigin(s, p.dir, false)} // OAI-PMH has no hashes, but datestamps
	e.stamps = func() map[string]string {
		all := map[string]string{}
		for _, r := range p.records {
			if !r.Deleted {
				all[e.loc(r.ID)] = r.Datestamp
			}
		}
		return all
	}
	e.plays = func() {
		s.play("repository", p.start)
		s.relay("1s", "-oai", "-loc", e.base()+"{local}", "http://"+p.addr+"/oai")
	}
	e.changes = func() { p.keep(size(80, 600), size(100*time.Millisecond, 200*time.Millisecond)) }
	return e
}

// TestEnds changes what a source has, at random. Two mirrors and a command follow it through
// two hubs. All programs are killed the whole time, and hubs, Redis and NATS fail. In the end
// the mirrors are what the source is, and the command was handed every change.
func TestEnds(t *testing.T) {
	for name, begin := range map[string]func(*stage) *end{"directory": directory, "site": staticSite, "repository": papers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, hubtest.Seed(t, rand.Uint64()%1_000_000), 2, size(400*time.Millisecond, 3*time.Second), nil)
			s.ends(begin(s))
		})
	}
}

func (s *stage) ends(e *end) {
	in := s.command(e)
	first := len(s.players) - 1
	e.plays()
	s.mirror("mirror of a hub", e.base(), s.Hubs[1].Topic("files"))
	s.mirror("mirror of the hubs", e.base(), s.topic("files"))
	s.kinds = []string{"hub killed", "hub killed", "hub stopped", "hub drained", "hubs moved", "hubs moved", "NATS ended", "Redis killed", "link to Redis cut"}
	for _, p := range s.players[first:] {
		s.kinds = append(s.kinds, p.name+" killed", p.name+" killed")
	}
	s.during(e.changes)
	e.faulty.Store(false)
	began, want, versions := time.Now(), contents(e.dir), map[string]string{}
	for name, hash := range want {
		versions[e.loc(name)] = "sha-256:" + hash
	}
	if e.stamps != nil {
		versions = e.stamps()
	}
	s.until("the hubs know what the source is", func() error {
		_, got := s.log()
		return compare(got, versions)
	})
	for _, m := range s.mirrors {
		s.until("the "+m.name+" is what the source is", func() error { return m.differs(want) })
		s.until("an audit says so", func() error { // the mirror may not have read the last changes yet
			if code, stdout, stderr := hubtest.Run(s, nil, nil, hubtest.Rsmirror, "audit", m.dir); code != 0 || stdout != "" {
				return fmt.Errorf("it ends with %d: %s%s", code, stdout, stderr)
			}
			return nil
		})
	}
	s.until("the command was handed the log", func() error {
		all, err := in.handed()
		if log, _ := s.log(); err == nil && !slices.Equal(all, log) {
			err = fmt.Errorf("it was handed %d changes of %d", len(all), len(log))
		}
		return err
	})
	s.Logf("all have the %d resources of the source after %v", len(want), time.Since(began).Round(time.Millisecond))
	for _, p := range s.players[first:] {
		if p.name != "repository" {
			p.end(syscall.SIGTERM)
			s.down(p)
		}
	}
	for _, m := range s.mirrors {
		if err := m.differs(want); err != nil {
			s.Errorf("in the end, the %s: %v", m.name, err)
		}
	}
}

// command plays rsmirror with a command, and returns what that was handed. A baseline would
// not say every change, so it has only one resource, which is deleted before others come.
func (s *stage) command(e *end) inbox {
	publish := func(change string) {
		hubtest.Publish(s, s.Hubs[0], "files", fmt.Appendf(nil, `{"loc":%q,"change":%q}`, e.loc("the first"), change))
	}
	publish("created")
	in := inbox(s.TempDir())
	s.program("command", nil, hubtest.Rsmirror, "-to", "exec:"+in.command(), s.topic("files"), s.TempDir()).WaitLog("baseline is complete")
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

// A mirrored is a mirror of the files of an origin.
type mirrored struct {
	*player
	dir, base string
}

// mirror plays rsmirror.
func (s *stage) mirror(name, base, of string, more ...string) {
	m := &mirrored{dir: s.TempDir(), base: base}
	m.player = s.program(name, nil, hubtest.Rsmirror, append(append([]string{"-strip", base, "-max-delete", "all"}, more...), of, m.dir)...)
	s.mirrors = append(s.mirrors, m)
}

// differs returns how the mirror differs from the files with these contents; nil: it does
// not.
func (m *mirrored) differs(files map[string]string) error {
	names := filename.Names{Strip: m.base}
	want, got := map[string]string{}, map[string]string{} // by their plain paths
	for name, content := range files {
		p, err := names.Path(m.base + escape(name))
		if err != nil {
			return err
		}
		want[p] = content
	}
	for name, content := range contents(m.dir) {
		plain := strings.TrimSuffix(strings.ReplaceAll(name, "%~dir/", "/"), "%~file") // of what has the name of a directory
		if loc, whole := names.Loc(name); whole {
			var err error
			if plain, err = names.Path(loc); err != nil {
				return err
			}
		}
		if _, twice := got[plain]; twice {
			return fmt.Errorf("%q is there twice, once as %q", plain, name)
		}
		got[plain] = content
	}
	return compare(got, want)
}

// compare returns how two sets of files differ, by name and hash; nil: they do not.
func compare(got, want map[string]string) error {
	both := maps.Clone(want)
	maps.Copy(both, got)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if got[name] != want[name] {
			all = append(all, fmt.Sprintf("%q: %.16q is there, not %.16q", name, got[name], want[name]))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d differences: %s", len(all), strings.Join(all[:min(len(all), 5)], "; "))
}

// An inbox is a directory that keeps the batches that a command is handed, in their order.
type inbox string

// command takes a batch as a whole. Now and then it fails, and may have taken it or not.
func (b inbox) command() string {
	return fmt.Sprintf(`[ $(($$ %% 7)) -ne 0 ] && t=$(mktemp %[1]s/in.XXXXXX) && cat >"$t" && mv "$t" %[1]s/$(date +%%s%%N) && [ $(($$ %% 9)) -ne 0 ]`, b)
}

// A said is what a change says of a resource.
type said struct {
	Position                   uint64
	Loc, Change, Hash, Lastmod string
}

// handed returns the changes of the log up to the newest one that was handed over. It is an
// error that one came before those that come before it; it may come again.
func (b inbox) handed() (all []said, err error) {
	batches, err := filepath.Glob(string(b) + "/[0-9]*") // in the order of their names; without those that a killed command has left
	for _, batch := range batches {
		text, err := os.ReadFile(batch)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			var c said
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			if newest := uint64(len(all)); c.Position == newest+1 {
				all = append(all, c)
			} else if c.Position < 1 || c.Position > newest || all[c.Position-1] != c {
				return nil, fmt.Errorf("%+v comes after change %d", c, newest)
			}
		}
	}
	return all, err
}

// log returns what the log of the set has, and after it the version of each resource by its
// loc: the hash, or without one the modification time.
func (s *stage) log() (all []said, versions map[string]string) {
	versions = map[string]string{}
	for _, e := range hubtest.ReadMemory(s, s.Hubs[0], "files") {
		c := said{Position: e.Position}
		hubtest.Decode(s, []byte(e.Text), &c)
		all = append(all, c)
		if versions[c.Loc] = cmp.Or(c.Hash, c.Lastmod); c.Change == "deleted" {
			delete(versions, c.Loc)
		}
	}
	return all, versions
}
