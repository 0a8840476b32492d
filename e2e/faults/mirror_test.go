package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/mirror/filename"
)

// A mirrored is a mirror of the files of an origin.
type mirrored struct {
	*player
	dir, base string
}

// mirror plays rsmirror.
func (s *stage) mirror(name, base, of string, more ...string) *mirrored {
	m := &mirrored{dir: s.TempDir(), base: base}
	m.player = s.program(name, nil, hubtest.Rsmirror, append(append([]string{"-strip", base, "-max-delete", "all"}, more...), of, m.dir)...)
	return m
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
	found, err := contents(m.dir)
	if err != nil {
		return err
	}
	for name, content := range found {
		plain := strings.TrimSuffix(strings.ReplaceAll(name, "%~dir/", "/"), "%~file") // of what has the name of a directory
		if loc, whole := names.Loc(name); whole {
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

// compare returns how two sets of files differ, by name and hash.
func compare(got, want map[string]string) error {
	if maps.Equal(got, want) {
		return nil
	}
	var all []string
	for name, content := range want {
		if got[name] != content {
			all = append(all, fmt.Sprintf("%q: %.16s is wanted, and %.16s is there", name, content, got[name]))
		}
	}
	for name, content := range got {
		if _, ok := want[name]; !ok {
			all = append(all, fmt.Sprintf("%q ought not to be there, and %.16s is", name, content))
		}
	}
	slices.Sort(all)
	return fmt.Errorf("%d differences: %s", len(all), strings.Join(all[:min(len(all), 5)], "; "))
}

// An inbox keeps the batches that a command is handed, in their order.
type inbox struct{ dir string }

// command takes a batch as a whole. Now and then it fails, and may have taken it or not.
func (b inbox) command() string {
	return fmt.Sprintf(`[ $(($$ %% 7)) -ne 0 ] && t=$(mktemp %[1]s/in.XXXXXX) && cat >"$t" && mv "$t" %[1]s/$(date +%%s%%N) && [ $(($$ %% 9)) -ne 0 ]`, b.dir)
}

// A said is what a change says of a resource.
type said struct {
	Position                   uint64
	Loc, Change, Hash, Lastmod string
}

// handed returns the changes of the log up to the newest one that was handed over. It is an
// error that one came before those that come before it; it may come again.
func (b inbox) handed() (all []said, err error) {
	entries, err := os.ReadDir(b.dir) // in the order of their names
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "in.") {
			continue // the command was killed
		}
		text, err := os.ReadFile(filepath.Join(b.dir, e.Name()))
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
	return all, nil
}

// log returns what the log of the set has, and after it the version of each resource by its
// loc: the hash, or without one the modification time.
func (s *stage) log() (all []said, versions map[string]string) {
	versions = map[string]string{}
	for _, e := range hubtest.Memory(s, s.Hubs[0], "files") {
		c := said{Position: e.Position}
		hubtest.Decode(s, []byte(e.Text), &c)
		all = append(all, c)
		if versions[c.Loc] = cmp.Or(c.Hash, c.Lastmod); c.Change == "deleted" {
			delete(versions, c.Loc)
		}
	}
	return all, versions
}
