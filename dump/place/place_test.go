package place

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDirectory holds a directory to what a Place does. The tests of the programs do so with S3.
func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	p, err := Open("dir:" + dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	put := func(name, text string, commit bool) {
		t.Helper()
		w, err := p.Create(t.Context(), name)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err == nil && commit {
			err = w.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Abort()
	}
	get := func(name string) string {
		t.Helper()
		f, err := p.Open(t.Context(), name)
		if errors.Is(err, ErrAbsent) {
			return "absent"
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil || f.Size() != int64(len(text)) {
			t.Errorf("%s: %v, size %d", name, err, f.Size())
		}
		if _, err := f.Seek(1, io.SeekStart); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(f); err != nil || string(rest) != string(text[min(1, len(text)):]) {
			t.Errorf("the rest of %s: %q %v", name, rest, err)
		}
		return string(text)
	}
	put("set/a.zip", "first", true)
	put("set/a.zip", "given up", false)
	put("set/never", "given up", false)
	put("set/b.zip", "b", true)
	put("set/a.zip", "second", true)
	put("other/c", "c", true)
	for name, want := range map[string]string{"set/a.zip": "second", "set/b.zip": "b", "set/never": "absent", "other/c": "c", "none/x": "absent"} {
		if got := get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	names := func(prefix string) string {
		t.Helper()
		all := map[string]bool{}
		for f, err := range p.List(t.Context(), prefix) {
			if err != nil || time.Since(f.Changed) > time.Minute {
				t.Errorf("%v %v", f, err)
			}
			all[f.Name] = true
		}
		return strings.Join(slices.Sorted(maps.Keys(all)), " ")
	}
	for prefix, want := range map[string]string{"": "other/c set/a.zip set/b.zip", "set/": "set/a.zip set/b.zip", "none/": ""} {
		if got := names(prefix); got != want {
			t.Errorf("%q has %s, want %s", prefix, got, want)
		}
	}
	for range 2 {
		if err := p.Remove(t.Context(), "other/c"); err != nil {
			t.Error(err)
		}
	}
	if got := names(""); got != "set/a.zip set/b.zip" {
		t.Errorf("after Remove there are %s", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory is left: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, temporaryDir))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v %v", left, err)
	}
	if _, err := p.Open(t.Context(), "../../x"); err == nil || errors.Is(err, ErrAbsent) {
		t.Errorf("a file outside: %v", err)
	}
}

// What a crash has left is removed at a start, when nobody can be writing it any more.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, temporaryDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": time.Hour} {
		path := filepath.Join(dir, temporaryDir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	left, err := os.ReadDir(filepath.Join(dir, temporaryDir))
	if fmt.Sprint(left) != "[- new]" || err != nil {
		t.Errorf("there are %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"/a/b":        "/a/b",
		"a":           "a",
		"dir:a:b":     "a:b",
		"s3://b":      "b  https://s3.amazonaws.com ",
		"s3://b/x/y/": "b x/y/ https://s3.amazonaws.com ",
		"s3://b/x?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=eu": "b x/ http://127.0.0.1:9000 eu",
		"":                           "error",
		"dir:":                       "error",
		"s3:":                        "error",
		"s3:///x":                    "error",
		"s3://me:secret@b":           "error",
		"s3://b?endpoint=here":       "error",
		"s3://b?endpiont=http://x":   "error",
		"https://example.org/bucket": "error",
	} {
		p, err := parse(text)
		got := p.dir
		switch {
		case err != nil:
			got = "error"
		case p.bucket != "":
			got = fmt.Sprint(p.bucket, " ", p.prefix, " ", p.endpoint, " ", p.region)
		}
		if got != want || (Check(text) == nil) != (err == nil) {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}
