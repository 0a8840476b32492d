package clients

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A website has pages that are added and removed. A page with the text "down" cannot be fetched.
type website struct {
	*httptest.Server
	mu    sync.Mutex
	pages map[string]string
}

func (w *website) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	text, ok := w.pages[r.URL.Path]
	w.mu.Unlock()
	switch {
	case !ok:
		http.NotFound(rw, r)
	case text == "down":
		rw.WriteHeader(http.StatusServiceUnavailable)
	default:
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(rw, "<!DOCTYPE html><title>x</title><script>not this</script><p>%s", text)
	}
}

// set changes a page, and publishes the change. An empty text deletes the page.
func (w *website) set(t *testing.T, h *hubtest.Hub, page, text string) {
	t.Helper()
	kind := "updated"
	w.mu.Lock()
	if w.pages[page] = text; text == "" {
		delete(w.pages, page)
		kind = "deleted"
	}
	w.mu.Unlock()
	hubtest.Publish(t, h, "demo", fmt.Appendf(nil, `{"loc":"%s%s","change":"%s"}`+"\n", w.URL, page, kind))
}

// TestSearch feeds the search index while it and the hub are killed.
func TestSearch(t *testing.T) {
	t.Parallel()
	web := &website{pages: map[string]string{}}
	web.Server = httptest.NewServer(web)
	defer web.Close()
	h := hubtest.StartHub(t)
	index := filepath.Join(t.TempDir(), "index.db")
	search := func(arguments ...string) []string {
		return append([]string{root(t, "examples", "search", "search.py"), index}, arguments...)
	}
	feed := func() *hubtest.Process {
		return hubtest.Start(t, withClient(t), nil, python(t), search("feed", h.URL, "demo")...)
	}
	finds := func(words string, want ...string) {
		t.Helper()
		hubtest.Until(t, fmt.Sprintf("%s is found at %q", words, want), func() error {
			code, out, stderr := hubtest.Run(t, withClient(t), nil, python(t), search("find", words)...)
			var got []string
			for line := range strings.Lines(out) {
				loc, _, _ := strings.Cut(line, "\t")
				got = append(got, strings.TrimPrefix(loc, web.URL))
			}
			if slices.Sort(got); code != 0 || !slices.Equal(got, want) {
				return fmt.Errorf("found at %q; %s", got, stderr)
			}
			return nil
		})
	}
	web.set(t, h, "/a", "The hub pushes changes")
	web.set(t, h, "/b", "A mirror keeps copies &amp; changes")
	p := feed()
	finds("change", "/a", "/b")
	finds("this")
	web.set(t, h, "/a", "Nothing new")
	web.set(t, h, "/c", "down")
	finds("change", "/b")
	p.Kill()
	web.set(t, h, "/b", "")
	web.set(t, h, "/c", "It changed in the meantime")
	h.Kill()
	p = feed()
	h.Start(t)
	finds("change", "/c")
	web.set(t, h, "/d", "changing")
	finds("change", "/c", "/d")
	p.Kill()
	if code, out, stderr := hubtest.Run(t, withClient(t), nil, python(t), search("audit", h.URL, "demo")...); code != 0 || strings.TrimSpace(out) != "in sync" {
		t.Errorf("audit exited with %d, want 0 and in sync: %s%s", code, out, stderr)
	}
}

// TestTable publishes the changes of an SQL table.
func TestTable(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	db := filepath.Join(t.TempDir(), "articles.db")
	query := root(t, "examples", "table", "resources.sql")
	sql := func(statements string) {
		t.Helper()
		const script = `import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript(sys.argv[2])
db.commit()`
		if code, _, stderr := hubtest.Run(t, nil, nil, python(t), "-c", script, db, statements); code != 0 {
			t.Fatal(stderr)
		}
	}
	start := func(flags ...string) *hubtest.Process {
		t.Helper()
		args := append([]string{root(t, "examples", "table", "table.py"), db, query, h.URL, "demo"}, flags...)
		return hubtest.Start(t, withClient(t), nil, python(t), args...)
	}
	publish := func(want int, flags ...string) string {
		t.Helper()
		p := start(flags...)
		if code := p.Wait(); code != want {
			t.Fatalf("table.py exited with %d: %s%s", code, p.Stdout, p.Stderr)
		}
		return p.Stdout.String() + p.Stderr.String()
	}
	news := func(from int, want ...string) {
		t.Helper()
		var got []string
		for _, e := range hubtest.ReadMemory(t, h, "demo")[from:] {
			var c struct{ Loc, Change string }
			hubtest.Decode(t, []byte(e.Text), &c)
			got = append(got, c.Change+" "+strings.TrimPrefix(c.Loc, "https://example.org/articles/"))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("published changes = %q, want %q", got, want)
		}
	}
	sql(`CREATE TABLE article (id INTEGER PRIMARY KEY, published INTEGER, changed TEXT, body TEXT);
		INSERT INTO article VALUES (1, 1, '2026-01-01 10:00:00', 'one'), (2, 1, '2026-01-01 10:00:00', 'two'), (3, 0, '2026-01-01 10:00:00', 'draft'),
		(4, 1, '2026-01-01 10:00:00', 'four'), (5, 1, '2026-01-01 10:00:00', 'grün')`)
	publish(0)
	news(0, "created 1", "created 2", "created 4", "created 5")
	if out := publish(0); out != "" {
		t.Errorf("output without changes = %q, want none", out)
	}
	sql(`UPDATE article SET changed = '2026-01-02 10:00:00', body = 'new' WHERE id = 2; UPDATE article SET published = 1 WHERE id = 3; DELETE FROM article WHERE id = 4`)
	h.Kill()
	p := start()
	p.WaitLog("retrying in")
	h.Start(t)
	if code := p.Wait(); code != 0 {
		t.Fatalf("table.py exited with %d: %s", code, p.Stderr)
	}
	news(4, "created 3", "deleted 4", "updated 2")

	sql(`DELETE FROM article`)
	if out := publish(1); !strings.Contains(out, "4 resources would be deleted") {
		t.Errorf("output with an empty table = %q, want an error about deletions", out)
	}
	news(7)
	publish(0, "--delete-all")
	news(7, "deleted 1", "deleted 2", "deleted 3", "deleted 5")
}

// TestTableSync publishes the changes of an SQL table with the command in examples/README.md.
func TestTableSync(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(root(t, "examples", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^sqlite3 .*\| rspublish .*$`).FindString(string(readme))
	command = strings.Replace(command, "examples/table/", root(t, "examples", "table")+"/", 1)
	sqlite := interpreter(t, "sqlite3", "sqlite3")
	h := hubtest.StartHub(t)
	dir := t.TempDir()
	env := []string{"PATH=" + filepath.Dir(hubtest.Rspublish) + string(filepath.ListSeparator) + os.Getenv("PATH"), "RSPUBLISH_HUB=" + h.URL}
	sync := func(statements, want string) {
		t.Helper()
		if code, _, stderr := hubtest.Run(t, nil, nil, sqlite, filepath.Join(dir, "articles.db"), statements); code != 0 {
			t.Fatal(stderr)
		}
		code, stdout, stderr := hubtest.Run(t, env, nil, "/bin/sh", "-c", "cd "+dir+" && "+command)
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s exited with %d, output %s%s, want %s", command, code, stdout, stderr, want)
		}
	}
	sync(`CREATE TABLE article (id INTEGER PRIMARY KEY, published INTEGER, changed TEXT, body TEXT);
		INSERT INTO article VALUES (1, 1, '2026-01-01 10:00:00', 'one'), (2, 1, '2026-01-01 10:00:00', 'two'), (3, 0, '2026-01-01 10:00:00', 'draft')`, "2 created, 0 updated, 0 deleted")
	sync(``, "0 created, 0 updated, 0 deleted")
	sync(`UPDATE article SET changed = '2026-01-02 10:00:00' WHERE id = 2; UPDATE article SET published = 1 WHERE id = 3; DELETE FROM article WHERE id = 1`, "1 created, 1 updated, 1 deleted")
}

// TestIndex checks that the list of examples is complete, and that its links resolve.
func TestIndex(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root(t, "examples", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(root(t, "examples", "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d examples, %v", len(files), err)
	}
	for _, file := range files {
		name, err := filepath.Rel(root(t, "examples"), file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) != "__pycache__" && !strings.Contains(string(text), "]("+filepath.ToSlash(name)+")") {
			t.Errorf("examples/README.md does not link %s", name)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(root(t, "examples", link[1])); err != nil {
			t.Errorf("examples/README.md links %s: %v", link[1], err)
		}
	}
}
