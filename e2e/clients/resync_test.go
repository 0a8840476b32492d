package clients

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestResync copies a site with the Python client "resync" from the documents of a hub: first the
// Resource List, then the Change List, in the forms of core 1.0 and 1.1. RSHUB_RESYNC is a checkout
// of https://github.com/resync/resync, which is not in Debian.
func TestResync(t *testing.T) {
	t.Parallel()
	checkout := os.Getenv("RSHUB_RESYNC")
	if checkout == "" {
		t.Skip("RSHUB_RESYNC is not set; git clone https://github.com/resync/resync and set it to the path")
	}
	if code, _, stderr := hubtest.Run(t, nil, nil, python(t), "-c", "import dateutil, defusedxml"); code != 0 {
		t.Skipf("resync lacks modules: apt-get install python3-dateutil python3-defusedxml: %s", stderr)
	}
	for _, version := range []string{"1.0", "1.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h := hubtest.StartHub(t, "RSHUB_RESOURCELIST_INTERVAL=1s")
			site, copied, home := t.TempDir(), t.TempDir(), t.TempDir()
			web := httptest.NewServer(http.FileServer(http.Dir(site)))
			defer web.Close()
			put := func(name, content string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(site, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			publish := func() {
				t.Helper()
				if code, _, stderr := hubtest.Run(t, nil, nil, hubtest.Rspublish, "sync", "-hub", h.URL, "-set", "site", "-base", web.URL+"/", "-state", home, "-max-delete", "all", site); code != 0 {
					t.Fatalf("rspublish sync exited with %d: %s", code, stderr)
				}
			}
			resync := func(args ...string) {
				t.Helper()
				script := `import os, sys; os.chdir(sys.argv[1]); sys.path.insert(0, sys.argv[2]); sys.argv = sys.argv[2:]; exec(open(os.path.join(sys.argv[0], "resync-sync")).read())`
				args = append([]string{"-c", script, home, checkout, "--noauth", "--verbose", "--spec-version", version,
					"--sitemap", h.URL + "/sets/site/resourcelist.xml"}, append(args, web.URL+"/="+copied)...)
				if code, out, stderr := hubtest.Run(t, []string{"no_proxy=127.0.0.1"}, nil, python(t), args...); code != 0 || strings.Contains(out+stderr, "Error") {
					t.Fatalf("resync exited with %d: %s%s", code, out, stderr)
				}
			}
			same := func() {
				t.Helper()
				if got, want := files(t, copied), files(t, site); got != want {
					t.Fatalf("got copy\n%s, want\n%s", got, want)
				}
			}

			// Otherwise resync repeats changes that are older than the copy.
			hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/site", []byte(`{"lastmod":"datetime"}`))
			for i := range 5 {
				put(fmt.Sprintf("%d.txt", i), fmt.Sprint("content ", i))
			}
			publish()
			hubtest.WaitOK(t, h.URL+"/sets/site/resourcelist.xml")
			resync("--baseline")
			same()

			hubtest.Until(t, "another second has started", func() error { // resync compares whole seconds
				if start := time.Now().Truncate(time.Second); time.Since(start) > 100*time.Millisecond {
					return fmt.Errorf("got %v", start)
				}
				return nil
			})
			put("0.txt", "changed")
			put("new.txt", "new")
			// Not the newest one: resync starts with the change that it knows, and ignores a creation
			// and a deletion in the same list.
			if err := os.Remove(filepath.Join(site, "1.txt")); err != nil {
				t.Fatal(err)
			}
			publish()
			resync("--incremental", "--delete", "--changelist-uri", h.URL+"/sets/site/changelist.xml")
			same()
		})
	}
}

// files returns the names and contents of the files in a directory.
func files(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		fmt.Fprintf(&b, "%s: %s\n", name, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
