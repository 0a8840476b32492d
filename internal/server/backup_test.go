package server

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/backup"
	"github.com/rshub/rshub/internal/testutil/servertest"
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
// was open. No name of a closed list means two lists, and nobody answers one of another.
func TestListsOfBackup(t *testing.T) {
	t.Parallel()
	original := start(t, Config{ChangeListSize: 3})
	for range 4 {
		original.Publish("demo")
	}
	before := original.lists(t)
	if len(before) != 2 {
		t.Fatalf("lists %q", before)
	}
	hubs := []*started{original}
	for _, name := range []string{"first", "second"} {
		dir := filepath.Join(t.TempDir(), name)
		if _, _, err := backup.Fetch(t.Context(), strings.TrimPrefix(original.Ops, "http://"), "", dir, 0); err != nil {
			t.Fatal(err)
		}
		hubs = append(hubs, start(t, Config{Data: dir, BaseURL: original.URL}))
	}
	_, closed := servertest.Do(t, http.MethodGet, original.URL+before[0], "")
	filled := map[string]int{} // the hub of each list that was filled after the backup, by its name
	for i, h := range hubs {
		for range 3 {
			h.Publish("demo")
		}
		names := h.lists(t)
		if len(names) != 3 || names[0] != before[0] {
			t.Fatalf("hub %d has the lists %q, there were %q", i, names, before)
		}
		if resp, body := servertest.Do(t, http.MethodGet, h.URL+names[0], ""); resp.StatusCode != http.StatusOK || body != closed {
			t.Errorf("hub %d answers %s with %d %s, want %s", i, names[0], resp.StatusCode, body, closed)
		}
		if other, ok := filled[names[1]]; ok {
			t.Errorf("hubs %d and %d have a list %s", other, i, names[1])
		}
		filled[names[1]] = i
	}
	for name, owner := range filled {
		for i, h := range hubs {
			want := http.StatusNotFound
			if i == owner {
				want = http.StatusOK
			}
			if resp, _ := servertest.Do(t, http.MethodGet, h.URL+name, ""); resp.StatusCode != want {
				t.Errorf("hub %d answers the list %s of hub %d with %d", i, name, owner, resp.StatusCode)
			}
		}
	}
}
