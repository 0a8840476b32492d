package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The wheel is what Python installs, and the same each time.
func TestWheel(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var made [2][]byte
	for i := range made {
		r := &release{root: root, dist: t.TempDir(), version: "v1.2.3-rc.4", when: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}
		if err := r.makeWheel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if made[i], err = os.ReadFile(filepath.Join(r.dist, "rshub-1.2.3rc4-py3-none-any.whl")); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath("python3"); err != nil {
			t.Log("python3 is not installed, so nothing imports the wheel")
		} else if err := r.verifyWheel(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("two wheels of one commit differ")
	}
}

func TestPythonVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-beta.1": "1.2.3b1", "v1.2.3-alpha2": "1.2.3a2",
		"v1.2.3-dev+2249161d3387": "1.2.3.dev0+2249161d3387",
		"1.2.3":                   "", "v1.2": "", "v1.2.3-mine": "", "v1.2.3+dirty": "",
	} {
		if got, err := pythonVersion(version); got != want || (err == nil) != (want != "") {
			t.Errorf("%s is %q, %v, not %q", version, got, err, want)
		}
	}
}

// A changelog that begins with a release names the version of the commit.
func TestNewestRelease(t *testing.T) {
	for changelog, want := range map[string]string{
		"# Changelog\n\n## Unreleased\n\nNothing yet.\n\n## 1.2.3 (2026-11-23)\n\n- a\n\n## 1.2.2\n": "v1.2.3",
		"# Changelog\n\n## 1.2.3\n\n- a\n":                         "v1.2.3",
		"# Changelog\n\n## Unreleased\n\n- b\n\n## 1.2.3\n\n- a\n": "",
		"# Changelog\n\n## Unreleased\n\n- b\n":                    "",
		"":                                                         "",
	} {
		if got := newestRelease(changelog); got != want {
			t.Errorf("%q begins with %q, not %q", changelog, got, want)
		}
	}
}

// The repository's own files agree on the version.
func TestVersionOfRepository(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	m := released.FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("CHANGELOG.md has no release")
	}
	r := &release{root: "../..", version: "v" + m[1]}
	if err := r.verifyVersion(t.Context()); err != nil {
		t.Error(err)
	}
	r.version = "v99.0.0"
	if err := r.verifyVersion(t.Context()); err == nil {
		t.Error("a version that no file names is let pass")
	}
}

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
