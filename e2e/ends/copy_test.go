package ends

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/mirror/filename"
)

// A copy is a mirror of the files of an origin.
type mirrored struct {
	*player
	dir, base string
}

// args are those of rsmirror for this mirror.
func (c *mirrored) args(of string, more ...string) []string {
	return append(append([]string{"-strip", c.base, "-max-delete", "all"}, more...), of, c.dir)
}

// differs returns how the mirror differs from the files with these contents; nil: it does
// not.
func (c *mirrored) differs(want map[string]string) error {
	names := filename.Names{Strip: c.base}
	found, err := contents(c.dir)
	if err != nil {
		return err
	}
	whole := map[string]string{} // paths that do not say the whole URL
	for name := range want {
		if p, err := names.Path(c.base + escape(name)); err == nil && strings.Contains(p, "%~~") {
			whole[p] = name
		}
	}
	got := map[string]string{}
	for p, content := range found {
		name, ok := whole[strings.TrimSuffix(strings.ReplaceAll(p, "%~dir/", "/"), "%~file")]
		if loc, whole := names.Loc(p); whole {
			name, err = url.PathUnescape(strings.TrimPrefix(loc, c.base))
			ok = err == nil
		}
		if !ok {
			name = p // of no file that there is
		}
		if _, twice := got[name]; twice {
			return fmt.Errorf("%q is there twice, once as %q", name, p)
		}
		got[name] = content
	}
	return compare(got, want)
}

// compare returns how two sets of files differ, by name and hash.
func compare(got, want map[string]string) error {
	if maps.Equal(got, want) {
		return nil
	}
	var all []string
	for name, content := range want {
		if got[name] != content {
			all = append(all, fmt.Sprintf("%q: %.8s is wanted, and %.8s is there", name, content, got[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			all = append(all, fmt.Sprintf("%q ought not to be there, and %.8s is", name, got[name]))
		}
	}
	slices.Sort(all)
	return fmt.Errorf("%d differences: %s", len(all), strings.Join(all[:min(len(all), 5)], "; "))
}

// settled waits until an audit of the running mirror finds nothing. The mirror may have the
// newest contents before it has worked through the newest changes.
func (c *mirrored) settled(t testing.TB) {
	t.Helper()
	hubtest.Until(t, "an audit finds nothing", func() error {
		c.runs(t)
		if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "audit", c.dir); code != 0 {
			return fmt.Errorf("%d: %.500s%s", code, stdout, stderr)
		}
		return nil
	})
}

// proved fails the test unless the mirror is right, by this test and by an audit. The
// mirror does not run any more.
func (c *mirrored) proved(t testing.TB, want map[string]string) {
	t.Helper()
	if err := c.differs(want); err != nil {
		t.Errorf("%s: %v", c.dir, err)
	}
	if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "audit", c.dir); code != 0 || stdout != "" {
		t.Errorf("rsmirror audit ended with %d: %s%s", code, stdout, stderr)
	}
}

// explain logs what an audit says of the mirror, if the test has failed.
func (c *mirrored) explain(t testing.TB) {
	if t.Failed() {
		c.Signal(syscall.SIGTERM) // what was killed is behind its files
		<-c.Done
		_, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "audit", "-retry", "5s", c.dir)
		t.Logf("rsmirror audit %s: %.2000s%.2000s", c.dir, stdout, stderr)
	}
}

// An inbox keeps the batches that a command is handed, in their order.
type inbox struct{ dir string }

// command takes a batch as a whole. Now and then it fails although it has taken it.
func (b inbox) command() string {
	return fmt.Sprintf(`t=$(mktemp %[1]s/in.XXXXXX) && cat >"$t" && mv "$t" %[1]s/$(date +%%s%%N) && [ $(($$ %% 9)) -ne 0 ]`, b.dir)
}

// A handed is one change that was handed to a command.
type handed struct {
	Position          uint64
	Loc, Change, Hash string
}

// all returns what was handed.
func (b inbox) all() ([]handed, error) {
	entries, err := os.ReadDir(b.dir) // in the order of their names
	if err != nil {
		return nil, err
	}
	var all []handed
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "in.") {
			continue // the command was killed
		}
		text, err := os.ReadFile(filepath.Join(b.dir, e.Name()))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			var h handed
			if err := json.Unmarshal([]byte(line), &h); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			all = append(all, h)
		}
	}
	return all, nil
}

// differs returns how the effect of what was handed differs from the files with these
// contents.
func (b inbox) differs(base string, want map[string]string) error {
	all, err := b.all()
	if err != nil {
		return err
	}
	got := map[string]string{}
	for _, h := range all {
		name, err := url.PathUnescape(strings.TrimPrefix(h.Loc, base))
		if err != nil {
			return err
		}
		if h.Change == "deleted" {
			delete(got, name)
		} else {
			got[name] = strings.TrimPrefix(h.Hash, "sha-256:")
		}
	}
	return compare(got, want)
}

// explain logs what was handed of some files, and what the memory has of them, if the test
// has failed.
func (b inbox) explain(t testing.TB, h *hubtest.Hub, origin *origin, names ...string) {
	if !t.Failed() {
		return
	}
	all, err := b.all()
	if err != nil {
		t.Log(err)
	}
	for _, name := range names {
		for i, e := range all {
			if e.Loc == origin.loc(name) {
				t.Logf("handed %d: %+v", i, e)
			}
		}
		for _, e := range hubtest.Memory(t, h, "files") {
			if strings.Contains(e.Text, `"`+origin.loc(name)+`"`) {
				t.Logf("memory: %+v", e)
			}
		}
	}
}

// whole returns an error unless every change up to the newest one was handed, and none
// before those that come before it. repeats is how many came again.
func (b inbox) whole() (newest uint64, repeats int, err error) {
	all, err := b.all()
	if err != nil {
		return 0, 0, err
	}
	for _, h := range all {
		switch h.Position {
		case newest + 1:
			newest++
		case 0:
			return newest, repeats, errors.New("a change has no position")
		default:
			if h.Position > newest {
				return newest, repeats, fmt.Errorf("change %d comes after %d", h.Position, newest)
			}
			repeats++
		}
	}
	return newest, repeats, nil
}
