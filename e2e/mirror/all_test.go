package mirror

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// sameSets returns an error unless the mirrors in a directory have exactly the files of the origin,
// whose paths start with their set.
func (o *origin) sameSets(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := 0
	check := func(name string, b []byte) error {
		if content, ok := o.files["/"+name]; !ok || !bytes.Equal(b, content) {
			return fmt.Errorf("%s: got %d bytes, want the %d of the origin", name, len(b), len(content))
		}
		found++
		return nil
	}
	sets := map[string]bool{}
	for name := range o.files {
		sets[strings.Split(name, "/")[1]] = true
	}
	for set := range sets {
		if err := hubtest.EachFile(filepath.Join(dir, set), check); err != nil {
			return err
		}
	}
	if found != len(o.files) {
		return fmt.Errorf("got %d files, want %d", found, len(o.files))
	}
	return nil
}

// TestAllKilled mirrors all sets of a hub while changes arrive, sets are created, deleted and created
// again, and rsmirror and the hub are killed.
func TestAllKilled(t *testing.T) {
	t.Parallel()
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	r := hubtest.Random(t)
	publish := func(set string, lines [][]byte) {
		t.Helper()
		if len(lines) > 0 {
			hubtest.Publish(t, h, set, bytes.Join(lines, nil))
		}
	}
	change := func(set string, n int) (lines [][]byte) {
		for range n {
			name := fmt.Sprintf("/%s/f%d", set, r.IntN(30))
			switch {
			case r.IntN(4) > 0:
				lines = append(lines, o.set(name, random(r, 1+r.IntN(5_000)), nil))
			case o.has(name):
				lines = append(lines, o.set(name, nil, nil))
			}
		}
		return lines
	}
	complete := func(set string) {
		t.Helper()
		hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(`{"complete":true}`), hubtest.AsJSON)
	}
	recreate := func(set string) {
		t.Helper()
		hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/"+set, nil)
		var lines [][]byte
		for i := range 30 {
			if name := fmt.Sprintf("/%s/f%d", set, i); o.has(name) {
				lines = append(lines, o.set(name, random(r, 100), nil))
			}
		}
		publish(set, append(lines, o.set("/"+set+"/first", random(r, 100), nil)))
		complete(set)
	}
	args := []string{"-all", "-strip", o.URL, "-max-delete", "all", "-q", h.URL, dir}
	sets := 4
	create := func(set string) {
		t.Helper()
		publish(set, append(change(set, 30), o.set("/"+set+"/first", random(r, 100), nil)))
		complete(set)
	}
	for i := range sets {
		create(fmt.Sprint("s", i))
	}
	for range 6 {
		p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, args...)
		for range 10 {
			set := fmt.Sprint("s", r.IntN(sets))
			publish(set, change(set, r.IntN(20)))
		}
		switch r.IntN(4) {
		case 0:
			recreate(fmt.Sprint("s", r.IntN(sets)))
		case 1:
			h.Kill()
			h.Wait()
			h.Start(t)
		case 2:
			hubtest.Until(t, "the mirrors have the files of the origin", func() error { return o.sameSets(dir) })
			set := fmt.Sprint("s", r.IntN(sets))
			publish(set, change(set, 20))
		}
		create(fmt.Sprint("s", sets))
		sets++
		p.Kill()
		p.Wait()
	}
	rsmirror(t, 0, append([]string{"-once"}, args...)...)
	if err := o.sameSets(dir); err != nil {
		t.Error(err)
	}
	rsmirror(t, 0, "audit", dir)

	p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, args...)
	for range 20 {
		set := fmt.Sprint("s", r.IntN(sets))
		publish(set, change(set, 5))
		if r.IntN(5) == 0 {
			rsmirror(t, 0, "audit", dir) // changes that were not followed yet do not count
		}
	}
	hubtest.Until(t, "the mirrors have the files of the origin", func() error { return o.sameSets(dir) })
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Errorf("exit status = %d, want 0: %s", code, p.Stderr)
	}
}
