package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is not committed is not released.
func TestPrepareRefusesChanges(t *testing.T) {
	root := t.TempDir()
	r := &release{root: root, dist: filepath.Join(root, "dist")}
	git := func(args ...string) {
		t.Helper()
		if _, err := r.output(t.Context(), nil, "git", append([]string{"-c", "user.name=A", "-c", "user.email=a@example.org"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("file", "committed")
	write(".gitignore", "/dist/\n")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	for range 2 { // what the first made is ignored
		if err := r.prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(r.work); err != nil {
			t.Fatal(err)
		}
		write("dist/made", "")
	}
	for _, name := range []string{"file", "new"} {
		write(name, "changed")
		if err := r.prepare(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("with a change of %s: %v", name, err)
		}
		git("stash", "-q", "-u")
	}
}
