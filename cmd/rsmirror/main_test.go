package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
)

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-h", 0, "Exit codes"},
		{"-version", 0, "rsmirror "},
		{"help", 0, "Exit codes"},
		{"version", 0, "rsmirror "},
		{"", 2, "URL and DIR"},
		{"https://example.org d -once", 2, "flag -once must be before URL and DIR"},
		{"-retry 5 https://example.org d", 2, "want a duration with a unit"},
		{"audit -strip https://example.org/ d", 2, "rsmirror audit has no flag -strip"},
		{"secret@example.org d", 2, "http://"},
		{"https://example.org", 2, "URL and DIR"},
		{"audit", 2, "DIR"},
		{"audit -once d", 2, "-once"},
		{"audit -all d", 2, "rsmirror audit has no flag -all"},
		{"-all https://example.org", 2, "HUB and DIR"},
		{"-all https://example.org/?a=b d", 2, "got a URL with a query"},
		{"-all -to ndjson https://example.org d", 2, "use rshub follow -all"},
		{"-all -once -retry 1ms http://127.0.0.1:1/ " + dir + "/all", 4, "refused"},
		{"audit -remove-extra d", 2, "-repair"},
		{"example.org d", 2, "got example.org"},
		{"https://user:secret@example.org d", 2, "RSMIRROR_TOKEN"},
		{"-every 0s https://example.org d", 2, "-every"},
		{"-parallel 0 https://example.org d", 2, "-parallel"},
		{"-max-size 0 https://example.org d", 2, "-max-size"},
		{"-max-delete x https://example.org d", 2, "all"},
		{"-to file https://example.org d", 2, "ndjson"},
		{"-to exec: https://example.org d", 2, "command"},
		{"-to ndjson -strip https://example.org/ https://example.org d", 2, "-strip"},
		{"-collection c https://example.org d", 2, "collection"},
		{"-strip a/b https://example.org d", 2, "-strip"},
		{"-token-file " + empty + " https://example.org d", 2, "empty"},
		{"-content-token " + empty + " https://example.org d", 2, "https://HOST=FILE"},
		{"-content-token https://user:pw@example.org=" + empty + " https://example.org d", 2, "https://HOST=FILE"},
		{"-content-token https://example.org=" + empty + " https://example.org d", 2, "empty"},
		{"audit " + dir + "/none", 3, "to create one, run rsmirror URL " + dir + "/none"},
		{"-once https://example.org " + dir, 3, "-adopt"},
		{"dump -h", 0, "-package-size"},
		{"dump " + dir + " " + dir + "2", 2, "-out-url URL is missing"},
		{"dump -out-url https://example.org/d/ " + dir, 2, "DIR and OUT"},
		{"dump -out-url https://example.org/d/ " + dir + " " + dir + "/out", 2, "would be packed, too"},
		{"dump -out-url https://example.org/d/ " + dir + " " + dir + "2 -q", 2, "write flags before"},
		{"dump -out-url https://example.org/d/ " + dir + "/none " + dir + "2", 3, "to create one, run rsmirror URL " + dir + "/none"},
		{"-once -retry 1ms http://127.0.0.1:1/ " + dir + "/new", 4, "refused"},
	} {
		t.Run(strings.ReplaceAll(test.args, dir, "dir"), func(t *testing.T) {
			var stdout, stderr strings.Builder
			code := run(t.Context(), strings.Fields(test.args), func(string) string { return "" }, &stdout, &stderr)
			if output := stdout.String() + stderr.String(); code != test.code || !strings.Contains(output, test.want) || strings.Contains(output, "secret") {
				t.Errorf("rsmirror %s = %d, want %d and %q without the password:\n%s", test.args, code, test.code, test.want, output)
			}
		})
	}
}

// TestDuplicatesFirst checks that -duplicates-first fetches a content from its duplicate.
func TestDuplicatesFirst(t *testing.T) {
	var mu sync.Mutex
	requests := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if requests[r.URL.Path]++; r.URL.Path != "/list.xml" {
			return // the content is empty
		}
		fmt.Fprintf(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcelist" at="2026-01-01T00:00:00Z"/>`+
			`<url><loc>http://%s/a</loc><rs:md hash="md5:d41d8cd98f00b204e9800998ecf8427e" length="0"/><rs:ln rel="duplicate" href="http://%[1]s/duplicate"/></url></urlset>`, r.Host)
	}))
	defer s.Close()
	for args, want := range map[string]string{"": "/a", "-duplicates-first": "/duplicate"} {
		var out strings.Builder
		if code := run(t.Context(), strings.Fields("-q -once "+args+" "+s.URL+"/list.xml "+filepath.Join(t.TempDir(), "dir")), func(string) string { return "" }, &out, &out); code != 0 {
			t.Errorf("rsmirror %s = %d, want 0: %s", args, code, &out)
		}
		if requests["/a"]+requests["/duplicate"] != 1 || requests[want] != 1 {
			t.Errorf("rsmirror %s requested %v, want one of %s", args, requests, want)
		}
		clear(requests)
	}
}

// TestTokens checks that each token is sent only to its own server, even after redirects.
func TestTokens(t *testing.T) {
	var mu sync.Mutex
	authorization := map[string]string{} // Authorization header of requests, by path
	serve := func(answer http.HandlerFunc) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			authorization[r.URL.Path] = r.Header.Get("Authorization")
			mu.Unlock()
			answer(w, r)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	other := serve(func(http.ResponseWriter, *http.Request) {})
	moved := http.RedirectHandler(other+"/from-contents", http.StatusFound)
	contents := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			moved.ServeHTTP(w, r)
		}
	})
	site := serve(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/content":
		case "/list.xml":
			fmt.Fprintf(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>%[1]s/a</loc></url><url><loc>%[1]s/moved</loc></url>`+
				`<url><loc>%s/plain</loc></url><url><loc>http://%s/content</loc></url></urlset>`, contents, other, r.Host)
		default:
			http.NotFound(w, r)
		}
	})
	redirecting := serve(http.RedirectHandler(site+"/list.xml", http.StatusFound).ServeHTTP)
	dir := t.TempDir()
	for name, token := range map[string]string{"documents": "tok-documents", "contents": "tok-contents\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mirror := func(args string, want map[string]string) {
		t.Helper()
		mu.Lock()
		clear(authorization)
		mu.Unlock()
		var out strings.Builder
		args = "-once -token-file " + dir + "/documents " + args + " " + filepath.Join(t.TempDir(), "dir")
		if code := run(t.Context(), strings.Fields(args), func(string) string { return "" }, &out, &out); code != 0 {
			t.Errorf("rsmirror %s = %d, want 0: %s", args, code, &out)
		}
		mu.Lock()
		defer mu.Unlock()
		for path, token := range want {
			if got, ok := authorization[path]; !ok || got != token {
				t.Errorf("Authorization of %s = %q, %v, want %q", path, got, ok, token)
			}
		}
	}
	mirror("-content-token "+contents+"="+dir+"/contents "+site+"/list.xml", map[string]string{
		"/list.xml": "Bearer tok-documents", "/content": "", "/a": "Bearer tok-contents", "/moved": "Bearer tok-contents", "/from-contents": "", "/plain": "",
	})
	mirror(redirecting+"/sitemap.xml", map[string]string{"/sitemap.xml": "Bearer tok-documents", "/list.xml": ""})
}

// TestToNDJSON checks that -to ndjson writes changes to standard output.
func TestToNDJSON(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://%s/a</loc></url></urlset>`, r.Host)
	}))
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "dir")
	for i, args := range []string{"-once -to ndjson " + s.URL + "/sitemap.xml " + dir, "audit " + dir} {
		var stdout, stderr strings.Builder
		code := run(t.Context(), strings.Fields(args), func(string) string { return "" }, &stdout, &stderr)
		if want := `{"loc":"` + s.URL + `/a",`; code != 0 || i == 0 && (!strings.HasPrefix(stdout.String(), want) || strings.Count(stdout.String(), "\n") != 1) {
			t.Errorf("rsmirror %s = %d, want 0: %s%s", args, code, &stdout, &stderr)
		}
	}
}

// A fullDisk is a writer that fails as if its disk was full.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestSummaryWriteError checks that a failed write of the summary is an error. Otherwise a script
// would read half of it, or nothing.
func TestSummaryWriteError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>`)
	}))
	defer s.Close()
	for _, flag := range []string{"", "-json "} {
		var stderr strings.Builder
		args := strings.Fields("-once " + flag + s.URL + "/sitemap.xml " + filepath.Join(t.TempDir(), "dir"))
		if code := run(t.Context(), args, func(string) string { return "" }, fullDisk{}, &stderr); code != 3 {
			t.Errorf("rsmirror -once %s= %d, want 3: %s", flag, code, &stderr)
		}
	}
}

// TestSystemdUnit checks that the systemd unit starts rsmirror with valid flags.
func TestSystemdUnit(t *testing.T) {
	args := testutil.UnitArgs(t, "../../deploy/systemd/rsmirror@.service", map[string]string{"URL": "https://example.org/", "ARGS": "-public -q"})
	cfg, err := parseArgs(args, func(string) string { return "" })
	if err != nil || cfg.settings.URL != "https://example.org/" || cfg.dir != "/var/lib/rsmirror/name" || !cfg.public {
		t.Errorf("parseArgs(%q) = %+v, %v", args, cfg, err)
	}
}
