package documents_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
)

// indexed returns the paths of the lists that a set's index names.
func (s *server) indexed(set string) (paths []string) {
	s.Helper()
	for _, e := range s.read("/sets/" + set + "/changelist-index.xml").Sitemaps {
		paths = append(paths, strings.TrimPrefix(e.Loc, base))
	}
	return paths
}

// A new epoch gives other names to the lists that were open, and to no others. What
// is asked for by a name of before is not there: it never is another list.
func TestEpoch(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 3)
	m.add("peps", 8)
	s := newServer(m, documents.Options{})
	before := s.indexed("peps")
	if want := []string{list(m.state("peps"), 1), list(m.state("peps"), 2), list(m.state("peps"), 3)}; !slices.Equal(before, want) {
		t.Fatalf("lists %q, want %q", before, want)
	}
	index := "/sets/peps/changelist-index.xml"
	rolling := []string{index, "/sets/peps/changelist.xml", "/sets/peps/changes", "/sets/peps/changelist.xml?from=2026-01-02T03:04:06Z"}
	tags, bodies := map[string]string{}, map[string][]byte{}
	for _, path := range slices.Concat(before, rolling) {
		w := s.get(path)
		tags[path], bodies[path] = w.Header().Get("Etag"), w.Body.Bytes()
	}
	names := map[string]bool{}
	for range 3 {
		if err := m.BeginEpoch(t.Context(), "peps", feed.MaxNumber); err != nil {
			t.Fatal(err)
		}
		after := s.indexed("peps")
		if len(after) != 3 || !slices.Equal(after[:2], before[:2]) || names[after[2]] || after[2] == before[2] {
			t.Fatalf("lists %q, before %q", after, before)
		}
		names[after[2]] = true
		form := fmt.Sprintf("changelist-%d.%s-3.xml", m.state("peps").Begin, m.state("peps").Epochs.Of(3))
		if !strings.HasSuffix(after[2], "/"+form) {
			t.Errorf("the open list is %s, want %s", after[2], form)
		}
		for _, path := range before[:2] {
			if w := s.get(path, "If-None-Match", tags[path]); w.Code != 304 {
				t.Errorf("closed list %s: %d", path, w.Code)
			}
		}
		for _, path := range rolling {
			if w := s.get(path, "If-None-Match", tags[path]); w.Code != 200 {
				t.Errorf("%s in a new epoch: %d", path, w.Code)
			}
		}
		if w := s.get(after[2]); w.Code != 200 || w.Header().Get("Etag") == tags[before[2]] {
			t.Errorf("open list %s: %d, ETag %s", after[2], w.Code, w.Header().Get("Etag"))
		}
		if w := s.get(before[2]); w.Code != 404 {
			t.Errorf("open list of before: %d", w.Code)
		}
	}
	last := s.indexed("peps")[2]
	m.add("peps", 3) // closes it
	if closed := s.indexed("peps"); len(closed) != 4 || closed[2] != last || !strings.Contains(closed[3], m.state("peps").Epochs.Of(3)) {
		t.Errorf("lists %q", closed)
	}
	for _, path := range []string{before[2], list(m.state("peps"), 4), strings.Replace(last, "-3.xml", "-2.xml", 1)} {
		if w := s.get(path); w.Code != 404 {
			t.Errorf("%s of another epoch: %d", path, w.Code)
		}
	}
	for _, path := range before[:2] {
		if w := s.get(path); !bytes.Equal(w.Body.Bytes(), bodies[path]) {
			t.Errorf("closed list %s has other bytes", path)
		}
	}
	m.down.Store(true) // what is kept for this time is not confused either
	if w := s.get(before[2]); w.Code != 503 {
		t.Errorf("%s without the memory: %d", before[2], w.Code)
	}
	for _, path := range before[:2] {
		if w := s.get(path); w.Code != 200 || !bytes.Equal(w.Body.Bytes(), bodies[path]) {
			t.Errorf("%s without the memory: %d, with other bytes", path, w.Code)
		}
	}
}
