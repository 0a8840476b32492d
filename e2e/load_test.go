package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// pepsFile has every change of the Python Enhancement Proposals since 2000. It
// is not part of the repository.
const pepsFile = "../../shared/data/peps-changes.jsonl.gz"

// A load is what a source publishes: one JSON object a line.
type load struct {
	lines [][]byte // without their ends
	texts []string // their canonical form
}

func newLoad(t testing.TB, lines [][]byte) *load {
	t.Helper()
	l := &load{lines: lines}
	for _, line := range lines {
		e, err := parseEntry(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		l.texts = append(l.texts, e.text)
	}
	return l
}

// ndjson is the load from change i up to change j.
func (l *load) ndjson(i, j int) []byte {
	return append(bytes.Join(l.lines[i:j], []byte("\n")), '\n')
}

// pepsLoad reads the changes of the PEPs, or skips the test.
func pepsLoad(t testing.TB) *load {
	t.Helper()
	f, err := os.Open(pepsFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is not there; the generated load is tested all the same", pepsFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return newLoad(t, bytes.Split(bytes.TrimSpace(text), []byte("\n")))
}

// someLoad is the PEPs where they are, else a generated load.
func someLoad(t testing.TB) *load {
	if _, err := os.Stat(pepsFile); err != nil {
		return generatedLoad(t, 20_000)
	}
	return pepsLoad(t)
}

// generatedLoad makes n changes, always the same, that have every member in
// all its forms.
func generatedLoad(t testing.TB, n int) *load {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	lines := make([][]byte, n)
	for i := range lines {
		line, err := json.Marshal(generatedChange(r, i))
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = line
	}
	return newLoad(t, lines)
}

func generatedChange(r *rand.Rand, i int) map[string]any {
	when := time.Date(2000+r.IntN(25), 3, 1+r.IntN(28), 12, 30, r.IntN(60), r.IntN(1e6)*1000, time.UTC)
	c := map[string]any{
		"loc":    fmt.Sprintf("https://example.org/%s/%d?a=1&b=%d#%%C3%%A4", strings.Repeat("x", r.IntN(60)), i/3, r.IntN(9)),
		"change": []string{"created", "updated", "updated", "deleted"}[r.IntN(4)],
	}
	maybe := func(name string, value any) {
		if r.IntN(3) == 0 {
			c[name] = value
		}
	}
	maybe("lastmod", when.Format([]string{time.RFC3339, time.RFC3339Nano, "2006-01-02T15:04:05.000-07:00", "2006-01-02"}[r.IntN(4)]))
	maybe("datetime", when.Format(time.RFC3339Nano))
	maybe("changefreq", "daily")
	maybe("hash", fmt.Sprintf("md5:%032x sha-256:%064x", r.Uint64(), r.Uint64()))
	maybe("length", r.Int64N(1<<53))
	maybe("length", 0)
	maybe("type", `text/html; charset="utf-8"`)
	maybe("encoding", "gzip")
	maybe("path", "/a <b> & \"c\" d")
	maybe("{https://example.org/terms#}note", "Grüße, 世界 🌍 <&>\" '")
	maybe("ln", []map[string]any{
		{"rel": "describedby", "href": "https://example.org/about?x=1&y=2", "type": "application/xml"},
		{"rel": "https://example.org/rel", "href": "https://example.org/copy", "pri": 1 + r.IntN(999_999), "length": r.IntN(1e6),
			"modified": when.Format(time.RFC3339), "hash": fmt.Sprintf("md5:%032x", r.Uint64()), "path": "/copy",
			"{https://example.org/terms#}more": "1"},
	})
	return c
}

// An entry is a change as somebody saw it. Its text is the change itself, in a
// form in which equal changes are equal.
type entry struct {
	position uint64
	datetime string // the hub's
	text     string
}

// parseEntry reads a change as it is sent, or as the hub shows it in JSON. It
// does not use rshub's own reader: that one is tested here.
func parseEntry(b []byte) (e entry, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var c map[string]any
	if err := d.Decode(&c); err != nil {
		return e, err
	}
	if p, ok := c["position"].(json.Number); ok {
		n, err := p.Int64()
		if err != nil || n < 1 {
			return e, fmt.Errorf("position %v", p)
		}
		e.position = uint64(n)
		if e.datetime, ok = c["datetime"].(string); !ok {
			return e, errors.New("an entry without datetime")
		}
		delete(c, "position")
		delete(c, "datetime")
		if own, ok := c["sourceDatetime"]; ok {
			c["datetime"] = own
			delete(c, "sourceDatetime")
		}
	}
	e.text, err = canonical(c)
	return e, err
}

// canonical writes times in one way, and members in one order.
func canonical(c map[string]any) (string, error) {
	objects := []map[string]any{c}
	if links, ok := c["ln"].([]any); ok {
		for _, l := range links {
			if m, ok := l.(map[string]any); ok {
				objects = append(objects, m)
			}
		}
	}
	for _, o := range objects {
		for _, name := range []string{"lastmod", "datetime", "modified"} {
			if s, ok := o[name].(string); ok {
				t, err := time.Parse(time.RFC3339Nano, s)
				if err != nil {
					t, err = time.Parse("2006-01-02", s)
				}
				if err != nil {
					return "", err
				}
				o[name] = t.UTC().Format(time.RFC3339Nano)
			}
		}
	}
	b, err := json.Marshal(c) // sorts the members
	return string(b), err
}
