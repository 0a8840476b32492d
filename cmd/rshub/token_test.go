package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/access"
)

var tokenText = regexp.MustCompile(`(?m)^token: (rshub_[A-Z2-7]{26})$`)

func TestTokenNew(t *testing.T) {
	code, stdout, stderr := runCommand(t, "token", "new", "-name", "alice", "-rights", "publish:demo, follow:*")
	m := tokenText.FindStringSubmatch(stdout)
	if code != 0 || stderr != "" || m == nil {
		t.Fatalf("rshub token new = %d, %q, %q, want 0 and a token", code, stdout, stderr)
	}
	if want := "add to RSHUB_TOKENS_FILE: alice " + access.Digest(m[1]) + " publish:demo,follow:*\n"; !strings.HasSuffix(stdout, want) {
		t.Errorf("stdout = %q, want suffix %q", stdout, want)
	}
}

func TestTokenNewRefuses(t *testing.T) {
	for _, test := range []struct{ name, rights, want string }{
		{"", "publish:demo", "NAME"},
		{"two words", "publish:demo", "NAME"},
		{"a#b", "publish:demo", "NAME"},
		{"anyone", "publish:demo", "NAME"},
		{"rshub_SECRET", "publish:demo", "name"},
		{"alice", "", "RIGHTS"},
		{"alice", ",", "no right"},
		{"alice", "publish", `"publish"`},
		{"alice", "publish:a #,operate", `"#"`}, // the rest would be a comment
	} {
		t.Run(test.name+" "+test.rights, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			code, stdout, stderr := runCommand(t, "token", "new", "-name", test.name, "-rights", test.rights, "-file", path)
			if code != 2 || stdout != "" || !strings.Contains(stderr, test.want) || strings.Contains(stderr, "SECRET") {
				t.Errorf("rshub token new = %d, %q, %q, want 2 and %q", code, stdout, stderr, test.want)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("the tokens file was written")
			}
		})
	}
}

func TestTokenNewInFile(t *testing.T) {
	const before = "# ours\nanyone - follow:*" // without a newline at the end
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	newToken := func(name string) (int, string, string) {
		return runCommand(t, "token", "new", "-name", name, "-rights", "publish:demo", "-file", path)
	}
	if code, _, stderr := newToken("alice"); code != 0 {
		t.Fatalf("rshub token new with a new file: %s", stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of a new file = %v (%v), want 0600", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil { // for the hub's group
		t.Fatal(err)
	}
	code, stdout, stderr := newToken("alice")
	if code != 0 {
		t.Fatal(stderr)
	}
	text := readFile(t, path)
	if m := tokenText.FindStringSubmatch(stdout); m == nil || text != before+"\nalice "+access.Digest(m[1])+" publish:demo\n" {
		t.Errorf("stdout = %q and file = %q, want the line of the new token", stdout, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode = %v (%v), want 0640", info.Mode(), err)
	}

	// A failure leaves the file unchanged. The cases depend on each other's files.
	for _, test := range []struct {
		name   string
		broken func()
		want   string
	}{
		{"duplicate name", func() {}, `duplicate name "alice"`},
		{"another command is running", func() { writeFile(t, path+".new", "") }, "tokens.new exists"},
		{"invalid file", func() { removeFile(t, path+".new"); writeFile(t, path, text+"half\n") }, "line 4"},
	} {
		test.broken()
		was := readFile(t, path)
		code, stdout, stderr := newToken("alice")
		if code != 1 || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: rshub token new = %d, %q, %q, want 1 and %q", test.name, code, stdout, stderr, test.want)
		}
		if now := readFile(t, path); now != was {
			t.Errorf("%s: file = %q, want it unchanged", test.name, now)
		}
	}
	names, err := fs.Glob(os.DirFS(dir), "*")
	if err != nil || len(names) != 1 {
		t.Errorf("directory has %v (%v), want the tokens file only", names, err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
