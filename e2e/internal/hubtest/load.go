package hubtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// A Load is a sequence of changes to publish, one JSON object per line.
type Load struct {
	Lines [][]byte // without line ends
	Texts []string // canonical forms of the lines
}

// NDJSON returns the changes i to j, without j.
func (l *Load) NDJSON(i, j int) []byte {
	return append(bytes.Join(l.Lines[i:j], []byte("\n")), '\n')
}

// GeneratedLoad generates n deterministic changes with all members in all forms, except path,
// which is not in XML.
func GeneratedLoad(t testing.TB, n int) *Load {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	l := &Load{}
	for i := range n {
		line, err := json.Marshal(generatedChange(r, i))
		if err != nil {
			t.Fatal(err)
		}
		e, err := trial.ParseEntry(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		l.Lines, l.Texts = append(l.Lines, line), append(l.Texts, e.Text)
	}
	return l
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
	maybe("{https://example.org/terms#}note", "Grüße, 世界 🌍 <&>\" '")
	maybe("ln", []map[string]any{
		{"rel": "describedby", "href": "https://example.org/about?x=1&y=2", "type": "application/xml"},
		{"rel": "https://example.org/rel", "href": "https://example.org/copy", "pri": 1 + r.IntN(999_999), "length": r.IntN(1e6),
			"modified": when.Format(time.RFC3339), "hash": fmt.Sprintf("md5:%032x", r.Uint64()),
			"{https://example.org/terms#}more": "1"},
	})
	return c
}
