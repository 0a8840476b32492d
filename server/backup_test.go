package server

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/backup"
	"github.com/rshub/rshub/internal/servertest"
)

// What a hub that was killed during a backup left is removed, and nothing else:
// least of all a backup that somebody keeps there.
func TestOldBackupsAreRemoved(t *testing.T) {
	data := t.TempDir()
	left := filepath.Join(data, ".rshub-backup-123", "changes")
	kept := filepath.Join(data, "backup-2026-11-21", "changes")
	for _, dir := range []string{left, kept} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start(t, Config{Data: data})
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a backup is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

var listForm = regexp.MustCompile(`/sets/demo/changelist-\d[^<]*`)

// lists returns the paths of the lists that the index of the set demo names.
func (h *started) lists(t *testing.T) []string {
	t.Helper()
	resp, body := servertest.Do(t, http.MethodGet, h.URL+"/sets/demo/changelist-index.xml", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the index: %d %s", resp.StatusCode, body)
	}
	return listForm.FindAllString(body, -1)
}

// A backup is started twice, and the original goes on. All three fill the list that
// was open. No name means two lists.
func TestEpochOfBackup(t *testing.T) {
	t.Parallel()
	original := start(t, Config{ChangeListSize: 3})
	for range 4 {
		original.Publish("demo")
	}
	open := original.lists(t)
	if len(open) != 2 {
		t.Fatalf("lists %q", open)
	}
	hubs := []*started{original}
	for _, name := range []string{"first", "second"} {
		dir := filepath.Join(t.TempDir(), name)
		if _, _, err := backup.Fetch(t.Context(), strings.TrimPrefix(original.Ops, "http://"), "", dir); err != nil {
			t.Fatal(err)
		}
		hubs = append(hubs, start(t, Config{Data: dir, BaseURL: original.URL}))
	}
	bodies := map[string]string{}
	for i, h := range hubs {
		for range 3 {
			h.Publish("demo")
		}
		names := h.lists(t)
		if len(names) != 3 || names[0] != open[0] || (names[1] == open[1]) != (i == 0) {
			t.Errorf("hub %d has the lists %q, there were %q", i, names, open)
		}
		for _, name := range names {
			resp, body := servertest.Do(t, http.MethodGet, h.URL+name, "")
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %d", name, resp.StatusCode)
			}
			if other, ok := bodies[name]; ok && other != body {
				t.Errorf("two lists have the name %s:\n%s\n%s", name, other, body)
			}
			bodies[name] = body
		}
	}
	for name := range bodies { // nobody answers a name of another epoch
		for i, h := range hubs {
			if slices.Contains(h.lists(t), name) {
				continue
			}
			if resp, _ := servertest.Do(t, http.MethodGet, h.URL+name, ""); resp.StatusCode != http.StatusNotFound {
				t.Errorf("hub %d answers %s with %d", i, name, resp.StatusCode)
			}
		}
	}
}
