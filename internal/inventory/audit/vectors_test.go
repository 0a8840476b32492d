package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// vectors is the content of testdata/digest.json, to which docs/audit.md links.
type vectors struct {
	Versions []struct {
		Name    string
		Change  json.RawMessage
		Version string
		Weak    bool
	}
	Elements []struct{ Loc, Version, E string }
	Digests  []struct {
		Sum    digest.Sum
		Count  uint64
		Digest string
	}
	Prefixes []struct{ Prefix, From, To string }
	Sets     []struct {
		Name      string
		Resources []json.RawMessage
		Ranges    []struct {
			From, To          string
			Count, Weak       uint64
			Position, Content string
		}
	}
}

// TestVectors compares the digests with the digests of another implementation.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/digest.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Versions {
		doc, err := resourcesync.ReadJSON(strings.NewReader(`{"changes":[`+string(c.Change)+`]}`), resourcesync.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if version, weak := digest.Version(&doc.Items[0].Change); version != c.Version || weak != c.Weak {
			t.Errorf("%s: %q, weak %t; want %q, %t", c.Name, version, weak, c.Version, c.Weak)
		}
	}
	for _, c := range v.Elements {
		if e := digest.Element(c.Loc, c.Version); hex.EncodeToString(e[:]) != c.E {
			t.Errorf("Element(%q, %q) = %x, want %s", c.Loc, c.Version, e, c.E)
		}
	}
	for _, c := range v.Digests {
		if d := digest.Make(&c.Sum, c.Count); d.String() != c.Digest {
			t.Errorf("%d resources, sum %x: %v, want %s", c.Count, c.Sum, d, c.Digest)
		}
	}
	for _, c := range v.Prefixes {
		if r := inventory.Prefix(c.Prefix); r != (inventory.Range{From: c.From, To: c.To}) {
			t.Errorf("Prefix(%q) = %q", c.Prefix, r)
		}
	}
	for _, set := range v.Sets {
		now := sourcetest.Set{}
		for _, r := range set.Resources {
			e, err := feed.ParseEntry(r)
			if err != nil {
				t.Fatal(err)
			}
			now.Add(e)
		}
		s := holding(t, feed.Cursor{}, now.Entries())
		for _, r := range set.Ranges {
			look, err := Summarize(context.Background(), s, inventory.Range{From: r.From, To: r.To})
			if err != nil {
				t.Fatal(err)
			}
			if look.Count != r.Count || look.Weak != r.Weak || look.Position.String() != r.Position || look.Content.String() != r.Content {
				t.Errorf("%s from %q to %q: %+v, want %+v", set.Name, r.From, r.To, look, r)
			}
		}
	}
}

// python runs docs/audit.py, and returns its standard output and standard error.
func python(t *testing.T, arguments ...string) (out, errs string, status int) {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("docs/audit.py needs python3")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append([]string{"../../../docs/audit.py"}, arguments...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// TestPythonVectors checks that docs/audit.py computes the same digests.
func TestPythonVectors(t *testing.T) {
	if out, errs, status := python(t, "--vectors", "testdata/digest.json"); status != 0 {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	broken := filepath.Join(t.TempDir(), "broken.json")
	text, _ := os.ReadFile("testdata/digest.json")
	if err := os.WriteFile(broken, bytes.Replace(text, []byte(`;10"`), []byte(`;11"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, status := python(t, "--vectors", broken); status == 0 || !strings.Contains(errs, "AssertionError") {
		t.Errorf("with a broken vector: status %d\n%s", status, errs)
	}
}

// servePages returns the answers about changes by the parameter since: a baseline at a cursor, and the log after it.
func servePages(base []feed.Entry, at feed.Cursor, log []feed.Entry) map[string]string {
	pages, since, n := map[string]string{}, "baseline", 0
	for part := range slices.Chunk(base, 97) {
		n += len(part)
		next := fmt.Sprintf("%v~%d", at, n)
		pages[since] = fmt.Sprintf(`{"set":"demo","baseline":true,"restart":%t,"cursor":%q,"resources":[%s]}`, n == len(part), next, objects(part))
		since = next
	}
	pages[since] = fmt.Sprintf(`{"set":"demo","baseline":false,"cursor":"%v","changes":[]}`, at)
	for part := range slices.Chunk(log, 61) {
		last := part[len(part)-1].Cursor
		pages[at.String()] = fmt.Sprintf(`{"set":"demo","cursor":"%v","changes":[%s]}`, last, objects(part))
		at = last
	}
	return pages
}

func objects(entries []feed.Entry) []byte {
	var b []byte
	for i := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendResource(b, &Resource{Loc: entries[i].Change.Loc, Position: entries[i].Position, Entry: &entries[i]})
	}
	return b
}

// TestPythonAudit checks that docs/audit.py reads a baseline and the changes after it, and finds the
// faults in a list.
func TestPythonAudit(t *testing.T) {
	src := sourcetest.New(11, 600)
	now := sourcetest.Set{}
	for range 900 {
		now.Add(src.Next())
	}
	base, at := now.Entries(), src.Head
	o := holding(t, at, base).Overlay()
	var log []feed.Entry
	for range 200 {
		e := src.Next()
		log = append(log, e)
		now.Add(e)
	}
	if err := o.Add(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	head := o.State(src.Head)
	pages := servePages(base, at, append(log, src.Next(), src.Next())) // two are later than the summary
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var reply Reply
		var summary Summary
		var err error
		switch {
		case r.Method == http.MethodPost:
			var q Question
			if q, err = ReadQuestion(r.Body); err == nil {
				reply, err = Answer(r.Context(), head, q)
			}
			reply.Set = "demo"
			w.Write(reply.AppendJSON(nil))
		case strings.HasSuffix(r.URL.Path, "/audit"):
			summary, err = Summarize(r.Context(), head, inventory.Range{})
			summary.Set = "demo"
			w.Write(summary.AppendJSON(nil))
		default:
			fmt.Fprint(w, pages[r.URL.Query().Get("since")])
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()

	out, errs, status := python(t, server.URL+"/sets/demo")
	if lines := strings.Count(out, "\n"); status != 0 || errs != "" || lines != len(now) {
		t.Fatalf("status %d, %d resources, want %d\n%s", status, lines, len(now), errs)
	}

	// The list has the resources of the hub, except for some faults.
	lines := strings.SplitAfter(out, "\n")
	loc := func(line string) string {
		var r struct{ Loc string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		return r.Loc
	}
	want := []string{`{"difference": "missing", "loc": "` + loc(lines[100]) + `"}`, `{"difference": "stale", "loc": "` + loc(lines[7]) + `"}`,
		`{"difference": "extra", "loc": "https://example.org/more"}`}
	lines[7] = `{"loc":"` + loc(lines[7]) + `","hash":"md5:00"}` + "\n"
	lines[100] = `{"loc":"https://example.org/more"}` + "\n"
	file := filepath.Join(t.TempDir(), "list.ndjson")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, status = python(t, server.URL+"/sets/demo", file)
	got := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if status != 1 || !slices.Equal(got, want) {
		t.Errorf("status %d\n%s\nwant\n%s\n%s", status, got, want, errs)
	}
}
