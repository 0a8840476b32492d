package inventory

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/inventory/audit"
)

// TestCommand audits a list as somebody does who has exported it from a database.
func TestCommand(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	const n = 2_000
	h := hubtest.StartHub(t)
	s := newSource("listed")
	prepare(t, s, h, n)
	s.proved(t, h)
	_, held := s.newest(t)
	planted, want := faults(r, n)

	file := filepath.Join(t.TempDir(), "list.ndjson")
	write := func(f fold) {
		t.Helper()
		var b []byte
		for _, l := range f { // in any order
			row := map[string]any{"loc": l.Loc, "hash": l.Hash}
			if l.Length != nil {
				row["length"] = *l.Length
			}
			text, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			b = append(append(b, text...), '\n')
		}
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(code int, args ...string) (out, stderr string) {
		t.Helper()
		got, out, stderr := hubtest.Run(t, nil, nil, hubtest.Rshub, append([]string{"audit"}, args...)...)
		if got != code {
			t.Fatalf("rshub audit %q ends with %d, not %d: %s%s", args, got, code, out, stderr)
		}
		return out, stderr
	}
	write(held)
	if out, _ := command(0, "-hub", h.URL, "-set", s.set, "-settle", "1ms", file); out != "" {
		t.Errorf("equal lists differ: %s", out)
	}
	for _, l := range planted {
		held.apply(l)
	}
	write(held)
	out, stderr := command(1, "-hub", h.URL, "-set", s.set, "-settle", "1ms", file)
	got := map[string]audit.Kind{}
	for l := range bytes.Lines([]byte(out)) {
		var d struct {
			Difference audit.Kind
			Loc        string
			Own, Hub   *line
		}
		if err := json.Unmarshal(l, &d); err != nil || (d.Own == nil) != (d.Difference == audit.Missing) || (d.Hub == nil) != (d.Difference == audit.Extra) {
			t.Errorf("%s: %v", l, err)
		}
		got[d.Loc] = d.Difference
	}
	if len(got) != len(want) {
		t.Errorf("%d differences are named, not %d", len(got), len(want))
	}
	for loc, kind := range want {
		if got[loc] != kind {
			t.Errorf("%s is %q, not %q", loc, got[loc], kind)
		}
	}
	if !strings.Contains(stderr, "3 missing, 3 stale, 4 extra, 0 unknown") {
		t.Errorf("the sum is %q", stderr)
	}
	out, _ = command(1, "-hub", h.URL, "-set", s.set, "-settle", "1ms", "-prefix", "https://example.org/"+dead, file)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 || slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(l, "/dead/") }) {
		t.Errorf("with a prefix it names %q", out)
	}
	// What cannot be compared, and what was called wrongly.
	for _, args := range [][]string{
		{"-hub", h.URL, "-set", "nobody", file},
		{"-hub", h.URL, "-set", s.set, file + ".not"},
		{"-hub", h.URL, file},
		{"-hub", h.URL, "-set", s.set},
	} {
		if out, stderr := command(2, args...); out != "" || stderr == "" {
			t.Errorf("%q: %s%s", args, out, stderr)
		}
	}
}
