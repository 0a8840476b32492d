package hubtest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/rshub/rshub/conformance/trial"
)

// pepsFile has every change of the Python Enhancement Proposals since 2000. It
// is not part of the repository.
const pepsFile = "../../../shared/data/peps-changes.jsonl.gz"

// A Load is what a source publishes: one JSON object a line.
type Load struct {
	Lines [][]byte // without their ends
	Texts []string // their canonical form
}

func newLoad(t testing.TB, lines [][]byte) *Load {
	t.Helper()
	l := &Load{Lines: lines}
	for _, line := range lines {
		e, err := trial.ParseEntry(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		l.Texts = append(l.Texts, e.Text)
	}
	return l
}

// NDJSON is the load from change i up to change j.
func (l *Load) NDJSON(i, j int) []byte {
	return append(bytes.Join(l.Lines[i:j], []byte("\n")), '\n')
}

// PepsLoad reads the changes of the PEPs, or skips the test.
func PepsLoad(t testing.TB) *Load {
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

// SomeLoad is the PEPs where they are, else a generated load.
func SomeLoad(t testing.TB) *Load {
	if _, err := os.Stat(pepsFile); err != nil {
		return GeneratedLoad(t, 20_000)
	}
	return PepsLoad(t)
}

// GeneratedLoad makes n changes, always the same, that have every member in
// all its forms.
func GeneratedLoad(t testing.TB, n int) *Load {
	t.Helper()
	lines, err := trial.Samples(n)
	if err != nil {
		t.Fatal(err)
	}
	return newLoad(t, lines)
}
