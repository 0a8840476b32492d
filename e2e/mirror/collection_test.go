package mirror

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCollection mirrors and audits one collection of a set.
func TestCollection(t *testing.T) {
	t.Parallel()
	const theses = "https://example.org/oai?set=theses"
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	in := func(line []byte) []byte {
		return append(bytes.TrimRight(line, "}\n"), `,"ln":[{"rel":"collection","href":"`+theses+`"}]}`+"\n"...)
	}
	publish(t, h, in(o.set("/a", []byte("a"), nil)), in(o.set("/b", []byte("b"), nil)), o.set("/c", []byte("c"), nil))
	complete(t, h)
	mirror := func(want ...string) {
		t.Helper()
		rsmirror(t, 0, "-once", "-collection", theses, "-strip", o.URL, h.Topic("demo"), dir)
		files, err := filepath.Glob(filepath.Join(dir, "[a-z]*"))
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		if err != nil || !slices.Equal(files, want) {
			t.Errorf("files of the mirror = %q, %v, want %q", files, err, want)
		}
		rsmirror(t, 0, "audit", dir)
	}
	mirror("a", "b")
	publish(t, h, o.set("/a", []byte("left"), nil), in(o.set("/c", []byte("came"), nil)))
	mirror("b", "c")
	if _, stderr := rsmirror(t, 3, "-once", "-strip", o.URL, h.Topic("demo"), dir); !strings.Contains(stderr, "-collection") {
		t.Errorf("stderr without -collection = %q, want an error about the flag", stderr)
	}
}
