package client_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// openCursors opens a CursorFile until the end of the test.
func openCursors(t *testing.T, path string) *client.CursorFile {
	t.Helper()
	f, err := client.OpenCursorFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// checkCursors fails the test unless a CursorFile has the given cursors.
func checkCursors(t *testing.T, f *client.CursorFile, want map[string]feed.Cursor) {
	t.Helper()
	if got, err := f.Load(t.Context()); err != nil || !maps.Equal(got, want) {
		t.Errorf("Load() = %v, %v, want %v", got, err, want)
	}
}

// save saves a cursor.
func save(t *testing.T, f *client.CursorFile, set string, at feed.Cursor) {
	t.Helper()
	if err := f.Save(t.Context(), set, at); err != nil {
		t.Fatal(err)
	}
}

// TestCursorFile checks that a CursorFile has the last cursor of each set after it is opened again.
func TestCursorFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cursors")
	f := openCursors(t, path)
	checkCursors(t, f, map[string]feed.Cursor{})
	save(t, f, "a", cursor(1))
	save(t, f, "b.c", cursor(2))
	save(t, f, "a", cursor(3))
	save(t, f, "a", cursor(3))
	want := map[string]feed.Cursor{"a": cursor(3), "b.c": cursor(2)}
	checkCursors(t, f, want)
	if _, err := client.OpenCursorFile(path); runtime.GOOS == "linux" && (err == nil || !strings.Contains(err.Error(), "in use by another process")) {
		t.Errorf("OpenCursorFile() of an open file = %v, want an error", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Save(t.Context(), "a", cursor(4)); err == nil {
		t.Error("Save() after Close = nil, want an error")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "a 1-1001\nb.c 2-1002\na 3-1003\n" {
		t.Errorf("got file %q, %v, want a line for each Save of another cursor", got, err)
	}
	f = openCursors(t, path)
	checkCursors(t, f, want)
	if err := f.Save(t.Context(), "a/b", cursor(1)); err == nil {
		t.Error("Save() of an invalid name = nil, want an error")
	}
}

// TestCursorFileInterrupted checks that a crash of the program at any byte of a write leaves the
// cursors before it, and that later cursors are not damaged by the rest.
func TestCursorFileInterrupted(t *testing.T) {
	const text = "a 1-1001\nbc 2-1002\na 3-1003\n"
	path := filepath.Join(t.TempDir(), "cursors")
	for n := range len(text) + 1 {
		if err := os.WriteFile(path, []byte(text[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		want := map[string]feed.Cursor{}
		for i, line := range strings.SplitAfter(text[:n], "\n") {
			if strings.HasSuffix(line, "\n") {
				want[[]string{"a", "bc", "a"}[i]] = cursor(i + 1)
			}
		}
		f := openCursors(t, path)
		checkCursors(t, f, want)
		save(t, f, "c", cursor(4))
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		want["c"] = cursor(4)
		f = openCursors(t, path)
		checkCursors(t, f, want)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCursorFileCompacts checks that a file stays small however often cursors are saved, and loses
// none.
func TestCursorFileCompacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cursors")
	f, r := openCursors(t, path), testutil.Rand(t)
	want := map[string]feed.Cursor{}
	most := int64(0)
	for i := range 20_000 {
		set := fmt.Sprint("set", r.IntN(20))
		want[set] = cursor(i)
		save(t, f, set, want[set])
		if info, err := os.Stat(path); err != nil {
			t.Fatal(err)
		} else if most = max(most, info.Size()); i%1000 == 0 && r.IntN(2) == 0 {
			_ = f.Close()
			f = openCursors(t, path)
			checkCursors(t, f, want)
		}
	}
	checkCursors(t, f, want)
	if most > 70_000 || most < 60_000 {
		t.Errorf("got a file of up to %d bytes, want about 64 KiB", most)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("got files %v, %v, want one", files, err)
	}
}

// TestCursorFileInvalid checks that a file with another content is an error, and is not changed.
func TestCursorFileInvalid(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"other text", "a 1-1001\nhello, world\n", `line 2: got "hello, world", want a set and its cursor`},
		{"cursor of Python", "1-1001\n", "line 1: "},
		{"invalid set", "A 1-1001\n", "line 1: "},
		{"invalid cursor", "a 1\n", "line 1: "},
		{"no name", " 1-1001\n", "line 1: "},
		{"more words", "a 1-1001 b\n", "line 1: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(tt.text+"rest"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := client.OpenCursorFile(path); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("OpenCursorFile() = %v, want %q", err, tt.want)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != tt.text+"rest" {
				t.Errorf("got file %q, %v, want it unchanged", got, err)
			}
		})
	}
	if _, err := client.OpenCursorFile(filepath.Join(t.TempDir(), "missing", "file")); err == nil {
		t.Error("OpenCursorFile() in a missing directory = nil, want an error")
	}
}

// TestCursorFileCrash checks that blocks which a crash of the machine left unwritten are ignored.
func TestCursorFileCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cursors")
	if err := os.WriteFile(path, []byte("a 1-1001\r\nb 2-10\x00\x00\x00\nc 3-1003\n\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkCursors(t, openCursors(t, path), map[string]feed.Cursor{"a": cursor(1), "c": cursor(3)})
}

// FuzzCursorFile checks that what a CursorFile reads is the same after further text without a newline,
// and that names and cursors are valid.
func FuzzCursorFile(f *testing.F) {
	for _, s := range []string{"", "a 1-1001\n", "a 1-1001\nb 2-2", "a 1-1001\r\n\x00\n", "\n", "a\n", "a 1-99999999999999999999\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cursors, size, err := client.ParseCursorFile(text)
		if err != nil {
			return
		}
		if size > len(text) || size > 0 && text[size-1] != '\n' {
			t.Fatalf("got size %d of %d bytes, want the end of a line", size, len(text))
		}
		for set, at := range cursors {
			if err := feed.CheckSet(set); err != nil {
				t.Error(err)
			}
			if got, err := feed.ParseCursor(at.String()); err != nil || got != at {
				t.Errorf("ParseCursor(%v) = %v, %v, want the same", at, got, err)
			}
		}
		again, _, err := client.ParseCursorFile(append(text[:size:size], "a 1-1"...))
		if err != nil || !maps.Equal(again, cursors) {
			t.Errorf("with an interrupted line: got %v, %v, want %v", again, err, cursors)
		}
	})
}
