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

// The start removes the files of an unfinished backup, but never a backup that is stored in the data
// directory.
func TestUnfinishedBackupsAreRemoved(t *testing.T) {
	data := t.TempDir()
	unfinished := filepath.Join(data, ".rshub-backup-123", "changes")
	stored := filepath.Join(data, "backup-2026-11-21", "changes")
	for _, dir := range []string{unfinished, stored} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start(t, Config{Data: data})
	if _, err := os.Stat(stored); err != nil {
		t.Errorf("stored backup: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(unfinished)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unfinished backup: got %v, want it removed", err)
	}
}

var listForm = regexp.MustCompile(`/sets/demo/changelist-\d[^<]*`)

// lists returns the paths of the Change Lists in the index of the set demo.
func (h *testHub) lists(t *testing.T) []string {
	t.Helper()
	resp, body := servertest.Do(t, http.MethodGet, h.URL+"/sets/demo/changelist-index.xml", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET the index: got %d %s, want 200", resp.StatusCode, body)
	}
	return listForm.FindAllString(body, -1)
}

// Two hubs start from one backup, and the original continues. All three fill the open Change List.
// No two hubs give different lists the same name, and no hub serves the list of another.
func TestChangeListNamesAfterRestore(t *testing.T) {
	t.Parallel()
	original := start(t, Config{ChangeListSize: 3})
	for range 4 {
		original.Publish("demo")
	}
	before := original.lists(t)
	if len(before) != 2 {
		t.Fatalf("got the lists %q, want 2", before)
	}
	hubs := []*testHub{original}
	for _, name := range []string{"first", "second"} {
		dir := filepath.Join(t.TempDir(), name)
		if _, _, err := backup.Fetch(t.Context(), strings.TrimPrefix(original.Ops, "http://"), "", dir, 0); err != nil {
			t.Fatal(err)
		}
		hubs = append(hubs, start(t, Config{Data: dir, BaseURL: original.URL}))
	}
	_, closed := servertest.Do(t, http.MethodGet, original.URL+before[0], "")
	filled := map[string]int{} // hub of each list that was filled after the backup, by name
	for i, h := range hubs {
		for range 3 {
			h.Publish("demo")
		}
		names := h.lists(t)
		if len(names) != 3 || names[0] != before[0] {
			t.Fatalf("lists of hub %d = %q, want 3 that start with %q", i, names, before[0])
		}
		if resp, body := servertest.Do(t, http.MethodGet, h.URL+names[0], ""); resp.StatusCode != http.StatusOK || body != closed {
			t.Errorf("hub %d: GET %s: got %d %s, want %s", i, names[0], resp.StatusCode, body, closed)
		}
		if other, ok := filled[names[1]]; ok {
			t.Errorf("hubs %d and %d both have the list %s, want different names", other, i, names[1])
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
				t.Errorf("hub %d: GET the list %s of hub %d: got %d, want %d", i, name, owner, resp.StatusCode, want)
			}
		}
	}
}
