package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// written writes a file in the directory of path.
func written(t *testing.T, path, text string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Chmod(0o640)) // whatever the umask
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// holds checks that path is the only file in its directory and has the given text, with the
// permissions of the written file.
func holds(t *testing.T, path, text string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("directory has %v (err %v)", entries, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != text {
		t.Errorf("got content %q (err %v), want %q", b, err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("got permissions %v (err %v)", info, err)
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"a new file", "another"} {
		if err := Replace(written(t, path, text), path); err != nil {
			t.Fatal(err)
		}
		holds(t, path, text)
		if err := os.Chmod(path, 0o400); err != nil { // the next one has its own permissions
			t.Fatal(err)
		}
	}
	if err := Replace(written(t, path, "old"), path); err != nil {
		t.Fatal(err)
	}

	// After an error, nothing of the new file is left, and the old one is as it was.
	closed := written(t, path, "new")
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if Replace(closed, path) == nil {
		t.Error("Replace() of a file that cannot be synced succeeded")
	}
	holds(t, path, "old")
	if Replace(written(t, path, "new"), filepath.Join(path, "below")) == nil {
		t.Error("Replace() below a file succeeded")
	}
	holds(t, path, "old")
}
