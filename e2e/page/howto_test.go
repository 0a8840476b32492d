package page

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/browser"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestHowTo runs the commands and programs that the page shows, for a public set, and for one that
// requires a token.
func TestHowTo(t *testing.T) {
	t.Parallel()
	content := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	t.Cleanup(content.Close)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/tokens"
	owner := hubtest.NewToken(t, file, "owner", "publish:*,follow:*,operate")
	reader := hubtest.NewToken(t, file, "reader", "follow:letters")
	writeFile(t, file, readFile(t, file)+"anyone - follow:open\n")
	h := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file)
	bearer := "Authorization: Bearer " + owner
	b := open(t, browser.Start(t), h.URL+"/")
	for _, set := range []string{"open", "letters"} {
		loc := content.URL + "/" + set + ".txt"
		hubtest.Publish(t, h, set, []byte(`{"loc":"`+loc+`","change":"created"}`+"\n"), bearer)
		if set == "letters" {
			hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(`{"private":true}`), bearer)
		}
		b.goTo(h.URL + "/sets/" + set)
		if set == "letters" {
			b.until(`document.querySelector("dialog[open]")`)
			b.until(`document.activeElement.id === "token"`)
			b.key(reader + "\r")
		}
		b.until("document.querySelector('.status.live')")
		b.goTo(h.URL + "/sets/" + set + "#follow")
		b.until(`document.querySelector('pre[aria-label="Go program"]')`)
		for label, command := range map[string]string{
			"curl command":                "",
			"curl command for a baseline": "",
			"rsmirror command":            "",
			"rshub command for all sets":  "",
			"Python program":              "python3 -u program",
			"JavaScript program":          "node program.mjs",
			"Go program":                  "./built",
		} {
			program := browser.Evaluate[string](t, b, `document.querySelector('pre[aria-label="`+label+`"]').textContent`)
			t.Run(set+"/"+label, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				done := func(out string) bool { return strings.Contains(out, loc) }
				if command == "" {
					command = program
				}
				if label == "rsmirror command" { // prints nothing, and creates a copy
					done = func(string) bool {
						found, _ := filepath.Glob(filepath.Join(dir, set+"-copy", "*", set+".txt"))
						return len(found) == 1
					}
				}
				writeFile(t, filepath.Join(dir, "program"), program)
				writeFile(t, filepath.Join(dir, "program.mjs"), program)
				if label == "Go program" {
					writeFile(t, filepath.Join(dir, "program.go"), program)
					build := exec.Command("go", "build", "-o", filepath.Join(dir, "built"), filepath.Join(dir, "program.go"))
					build.Dir = root
					if out, err := build.CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
				}
				env := []string{"TOKEN=" + reader, "PYTHONPATH=" + root + "/clients/python", "PYTHONDONTWRITEBYTECODE=1", "PATH=" + filepath.Dir(hubtest.Rshub) + ":" + os.Getenv("PATH")}
				p := hubtest.Start(t, env, nil, "bash", "-c", "cd "+dir+"\n"+command)
				hubtest.Until(t, "the program prints the change", func() error {
					if out := p.Stdout.String() + p.Stderr.String(); !done(out) {
						return errors.New(out)
					}
					return nil
				})
			})
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
