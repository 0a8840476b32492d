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

// A sourceSide is the source of a scenario.
type sourceSide struct {
	*origin
	dir             string                   // directory of the resources
	startPrograms   func()                   // starts the programs that publish to the set "files", and mirrors that need no hub
	changeResources func()                   // changes resources at random for a while
	versions        func() map[string]string // versions that the hubs have in the end, by loc; nil means the hashes
}

// directorySource returns a directory that rspublish watch publishes.
func directorySource(s *harness) *sourceSide {
	t := newTree(s, s.rng(1), size(300, 20_000))
	e := &sourceSide{dir: t.dir, origin: newOrigin(s, t.dir, true)}
	e.startPrograms = func() {
		s.startProgram("watch", []string{"XDG_CACHE_HOME=" + s.TempDir()}, hubtest.Rspublish, "watch", "-hub", s.base, "-set", "files",
			"-settle", "100ms", "-max-delete", "all", "-retry", "2s", "-base", e.base(), t.dir)
	}
	e.changeResources = func() { t.changeRandomly(size(600, 20_000), size(20*time.Millisecond, 8*time.Millisecond)) }
	return e
}

// relay starts rspublish relay.
func (s *harness) relay(every string, args ...string) {
	s.startProgram("relay", nil, hubtest.Rspublish, append([]string{"relay", "-hub", s.base, "-set", "files", "-every", every, "-retry", "2s",
		"-max-delete", "all", "-state", filepath.Join(s.TempDir(), "state.json")}, args...)...)
}

// staticSite returns a directory that is published as a site with ResourceSync documents and
// without a hub.
func staticSite(s *harness) *sourceSide {
	t := newTree(s, s.rng(1), size(200, 5_000))
	e := &sourceSide{dir: t.dir, origin: newOrigin(s, t.dir, true)}
	site := newSite(e.origin, t.dir, s.rng(3))
	e.startPrograms = func() {
		s.relay(size("1s", "2s"), e.URL+"/capabilitylist.xml")
		s.mirror("mirror of the site", e.base(), e.URL, "-every", size("100ms", "2s"))
	}
	e.changeResources = func() {
		var over atomic.Bool
		go func() {
			t.changeRandomly(size(500, 8_000), size(15*time.Millisecond, 10*time.Millisecond))
			over.Store(true)
		}()
		site.changeRandomly(size(150*time.Millisecond, time.Second), 25, &over)
	}
	return e
}

// oaiRepository returns the resources of an OAI-PMH repository, served by a third-party program.
func oaiRepository(s *harness) *sourceSide {
	p := newRepository(s, s.rng(1), size(120, 3_000))
	e := &sourceSide{dir: p.dir, origin: newOrigin(s, p.dir, false)} // OAI-PMH has datestamps instead of hashes
	e.versions = func() map[string]string {
		all := map[string]string{}
		for _, r := range p.records {
			if !r.Deleted {
				all[e.loc(r.ID)] = r.Datestamp
			}
		}
		return all
	}
	e.startPrograms = func() {
		s.addProgram("repository", p.start)
		s.relay("1s", "-oai", "-loc", e.base()+"{local}", "http://"+p.addr+"/oai")
	}
	e.changeResources = func() { p.changeRandomly(size(80, 600), size(100*time.Millisecond, 200*time.Millisecond)) }
	return e
}

// TestSourceToMirrors changes the resources of a source at random. Two mirrors and a command
// follow it through two hubs. All programs are killed repeatedly, and hubs, Redis and NATS fail.
// In the end the mirrors equal the source, and the command has received every change.
func TestSourceToMirrors(t *testing.T) {
	for name, begin := range map[string]func(*harness) *sourceSide{"directory": directorySource, "site": staticSite, "repository": oaiRepository} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHarness(t, hubtest.Seed(t, rand.Uint64()%1_000_000), 2, size(400*time.Millisecond, 3*time.Second), nil)
			s.runSourceToMirrors(begin(s))
		})
	}
}

func (s *harness) runSourceToMirrors(e *sourceSide) {
	in := s.command(e)
	first := len(s.programs) - 1
	e.startPrograms()
	s.mirror("mirror of a hub", e.base(), s.Hubs[1].Topic("files"))
	s.mirror("mirror of the hubs", e.base(), s.topic("files"))
	s.kinds = []string{"hub killed", "hub killed", "hub stopped", "hub drained", "hubs moved", "hubs moved", "NATS ended", "Redis killed", "link to Redis cut"}
	for _, p := range s.programs[first:] {
		s.kinds = append(s.kinds, p.name+" killed", p.name+" killed")
	}
	s.injectDuring(e.changeResources)
	e.faulty.Store(false)
	start, want, versions := time.Now(), contents(e.dir), map[string]string{}
	for name, hash := range want {
		versions[e.loc(name)] = "sha-256:" + hash
	}
	if e.versions != nil {
		versions = e.versions()
	}
	s.until("the hubs have the versions of the source", func() error {
		_, got := s.log()
		return diffFiles(got, versions)
	})
	for _, m := range s.mirrors {
		s.until("the "+m.name+" equals the source", func() error { return m.diff(want) })
		s.until("an audit finds no problems", func() error { // the mirror may not have followed the last changes yet
			if code, stdout, stderr := hubtest.Run(s, nil, nil, hubtest.Rsmirror, "audit", m.dir); code != 0 || stdout != "" {
				return fmt.Errorf("exit status %d: %s%s", code, stdout, stderr)
			}
			return nil
		})
	}
	s.until("the command has received the log", func() error {
		all, err := in.received()
		if log, _ := s.log(); err == nil && !slices.Equal(all, log) {
			err = fmt.Errorf("got %d of %d changes", len(all), len(log))
		}
		return err
	})
	s.Logf("all mirrors have the %d resources of the source after %v", len(want), time.Since(start).Round(time.Millisecond))
	for _, p := range s.programs[first:] {
		if p.name != "repository" {
			p.stop(syscall.SIGTERM)
			s.waitExit(p)
		}
	}
	for _, m := range s.mirrors {
		if err := m.diff(want); err != nil {
			s.Errorf("%s in the end: %v", m.name, err)
		}
	}
}

// command starts rsmirror with a command, and returns the inbox of the command. A baseline would
// not have every change, so it has only one resource, which is deleted before others are added.
func (s *harness) command(e *sourceSide) inbox {
	publish := func(change string) {
		hubtest.Publish(s, s.Hubs[0], "files", fmt.Appendf(nil, `{"loc":%q,"change":%q}`, e.loc("the first"), change))
	}
	publish("created")
	in := inbox(s.TempDir())
	s.startProgram("command", nil, hubtest.Rsmirror, "-to", "exec:"+in.command(), s.topic("files"), s.TempDir()).WaitLog("baseline is complete")
	publish("deleted")
	s.until("the command receives changes after its baseline", func() error {
		all, err := in.received()
		if err == nil && len(all) < 2 {
			err = fmt.Errorf("got %+v", all)
		}
		return err
	})
	return in
}

// A mirrorProgram is a running rsmirror with its directory.
type mirrorProgram struct {
	*program
	dir, base string
}

// mirror starts rsmirror.
func (s *harness) mirror(name, base, of string, more ...string) {
	m := &mirrorProgram{dir: s.TempDir(), base: base}
	m.program = s.startProgram(name, nil, hubtest.Rsmirror, append(append([]string{"-strip", base, "-max-delete", "all"}, more...), of, m.dir)...)
	s.mirrors = append(s.mirrors, m)
}

// diff returns an error that describes how the mirror differs from the files with these
// contents, or nil.
func (m *mirrorProgram) diff(files map[string]string) error {
	names := filename.Names{Strip: m.base}
	want, got := map[string]string{}, map[string]string{} // by plain path
	for name, content := range files {
		p, err := names.Path(m.base + escape(name))
		if err != nil {
			return err
		}
		want[p] = content
	}
	for name, content := range contents(m.dir) {
		plain := strings.TrimSuffix(strings.ReplaceAll(name, "%~dir/", "/"), "%~file") // suffix of a file with the name of a directory
		if loc, whole := names.Loc(name); whole {
			var err error
			if plain, err = names.Path(loc); err != nil {
				return err
			}
		}
		if _, twice := got[plain]; twice {
			return fmt.Errorf("%q exists twice, once as %q", plain, name)
		}
		got[plain] = content
	}
	return diffFiles(got, want)
}

// diffFiles returns an error that describes how two sets of files differ by name and hash, or nil.
func diffFiles(got, want map[string]string) error {
	both := maps.Clone(want)
	maps.Copy(both, got)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if got[name] != want[name] {
			all = append(all, fmt.Sprintf("%q: got %.16q, want %.16q", name, got[name], want[name]))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d differences: %s", len(all), strings.Join(all[:min(len(all), 5)], "; "))
}

// An inbox is a directory with the batches that a command received, in order.
type inbox string

// command returns a shell command that stores a batch atomically. At times it fails before or
// after that.
func (b inbox) command() string {
	return fmt.Sprintf(`[ $(($$ %% 7)) -ne 0 ] && t=$(mktemp %[1]s/in.XXXXXX) && cat >"$t" && mv "$t" %[1]s/$(date +%%s%%N) && [ $(($$ %% 9)) -ne 0 ]`, b)
}

// A loggedChange is a change in the log of the hub.
type loggedChange struct {
	Position                   uint64
	Loc, Change, Hash, Lastmod string
}

// received returns the changes of the log up to the newest one that the command received. It
// returns an error if a change came before an earlier one; changes may repeat.
func (b inbox) received() (all []loggedChange, err error) {
	batches, err := filepath.Glob(string(b) + "/[0-9]*") // in name order; without temporary files of killed commands
	for _, batch := range batches {
		text, err := os.ReadFile(batch)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			var c loggedChange
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			if newest := uint64(len(all)); c.Position == newest+1 {
				all = append(all, c)
			} else if c.Position < 1 || c.Position > newest || all[c.Position-1] != c {
				return nil, fmt.Errorf("got %+v after change %d", c, newest)
			}
		}
	}
	return all, err
}

// log returns the log of the set, and the resulting version of each resource by loc: its hash
// or, without one, its modification time.
func (s *harness) log() (all []loggedChange, versions map[string]string) {
	versions = map[string]string{}
	for _, e := range hubtest.ReadMemory(s, s.Hubs[0], "files") {
		c := loggedChange{Position: e.Position}
		hubtest.Decode(s, []byte(e.Text), &c)
		all = append(all, c)
		if versions[c.Loc] = cmp.Or(c.Hash, c.Lastmod); c.Change == "deleted" {
			delete(versions, c.Loc)
		}
	}
	return all, versions
}
