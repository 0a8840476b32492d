package clients

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// sign returns the X-Hub-Signature of a body.
func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// positions returns the positions of the changes that a program printed, one per line.
func positions(t *testing.T, p *hubtest.Process) (all []uint64) {
	t.Helper()
	for line := range bytes.Lines([]byte(p.Stdout.String())) {
		var c struct{ Position uint64 }
		if line[len(line)-1] != '\n' {
			break // incomplete
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, c.Position)
	}
	return all
}

// TestNodeFollows runs examples/follow/follow.mjs while it and the hub are killed. It prints every
// change, and repeats only the changes printed just before a kill.
func TestNodeFollows(t *testing.T) {
	t.Parallel()
	program := []string{node(t), root(t, "examples", "follow", "follow.mjs")}
	h := hubtest.StartHub(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	follow := func() *hubtest.Process {
		return hubtest.Start(t, nil, nil, program[0], program[1], h.Topic("demo"), cursor)
	}
	last := uint64(0) // last position of earlier processes
	upTo := func(p *hubtest.Process, n uint64) {
		t.Helper()
		var got []uint64
		hubtest.Until(t, fmt.Sprintf("the script has printed %d changes", n), func() error {
			if got = positions(t, p); len(got) == 0 || got[len(got)-1] < n {
				return fmt.Errorf("got %d; stderr: %s", len(got), p.Stderr.String())
			}
			return nil
		})
		if got[0] > last+1 {
			t.Errorf("first position after a restart = %d, want at most %d", got[0], last+1)
		}
		for i, position := range got {
			if position != got[0]+uint64(i) {
				t.Fatalf("got position %[2]d after %[1]d", got[i-1], position)
			}
		}
	}
	p := follow()
	hubtest.Publish(t, h, "demo", hubtest.Changes("first", 1200))
	upTo(p, 1200)
	h.Kill()
	h.Start(t)
	hubtest.Publish(t, h, "demo", hubtest.Changes("second", 300))
	upTo(p, 1500)
	p.Kill()
	last = 1500
	hubtest.Publish(t, h, "demo", hubtest.Changes("third", 10))
	p = follow()
	upTo(p, 1510)
	p.Kill()

	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/demo", nil)
	hubtest.Publish(t, h, "demo", hubtest.Changes("again", 1))
	p = follow()
	if code := p.Wait(); code != 3 {
		t.Errorf("exit status with a gone cursor = %d, want 3: %s", code, p.Stderr.String())
	}
}

// TestNodeOutput runs examples/follow/follow.mjs with its output to a file, and to a full disk. It
// writes the cursor only after the changes are durable.
func TestNodeOutput(t *testing.T) {
	t.Parallel()
	program := node(t)
	h := hubtest.StartHub(t)
	hubtest.Publish(t, h, "demo", hubtest.Changes("first", 3))
	// Logs syncs and renames to standard error.
	watch := filepath.Join(t.TempDir(), "watch.cjs")
	if err := os.WriteFile(watch, []byte(`const fs = require("node:fs"), { fsyncSync, renameSync } = fs;
fs.fsyncSync = (fd) => { console.error("sync " + fs.readlinkSync("/proc/self/fd/" + fd)); fsyncSync(fd); };
fs.renameSync = (from, to) => { renameSync(from, to); console.error("rename " + to); };
require("node:module").syncBuiltinESMExports();
`), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(t *testing.T, out, cursor string) *exec.Cmd {
		t.Helper()
		f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Skip(err)
		}
		defer f.Close()
		stderr, err := os.Create(cursor + ".stderr")
		if err != nil {
			t.Fatal(err)
		}
		defer stderr.Close()
		cmd := exec.Command(program, "--require", watch, root(t, "examples", "follow", "follow.mjs"), h.Topic("demo"), cursor)
		cmd.Stdout, cmd.Stderr = f, stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd
	}
	read := func(path string) string {
		text, _ := os.ReadFile(path)
		return string(text)
	}
	t.Run("file", func(t *testing.T) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		out, cursor := filepath.Join(dir, "out"), filepath.Join(dir, "cursor")
		cmd := start(t, out, cursor)
		hubtest.Until(t, "the cursor is written", func() error {
			if !strings.HasPrefix(read(cursor), "3-") {
				return errors.New(read(cursor + ".stderr"))
			}
			return nil
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if n := strings.Count(read(out), "\n"); n != 3 {
			t.Errorf("got %d lines, want 3", n)
		}
		stderr := read(cursor + ".stderr")
		order := "sync " + out + "\nsync " + cursor + ".new\nrename " + cursor + "\n"
		if !strings.Contains(stderr, order) || !strings.Contains(stderr, "sync "+dir+"\n") {
			t.Errorf("got syncs and renames\n%swant\n%sand a sync of %s", stderr, order, dir)
		}
	})
	t.Run("full", func(t *testing.T) {
		cursor := filepath.Join(t.TempDir(), "cursor")
		cmd := start(t, "/dev/full", cursor)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		hubtest.Until(t, "the script exits", func() error {
			select {
			case <-ended:
				return nil
			default:
				if at := read(cursor); strings.HasPrefix(at, "3-") {
					t.Fatalf("got cursor %s, want none before the changes are printed", at)
				}
				return errors.New("still following")
			}
		})
		if at := read(cursor); cmd.ProcessState.ExitCode() != 1 || strings.HasPrefix(at, "3-") {
			t.Errorf("exit status = %d with cursor %q, want 1 without one: %s", cmd.ProcessState.ExitCode(), at, read(cursor+".stderr"))
		}
	})
}

// TestPage opens examples/follow/page.html in a browser while the hub is killed.
func TestPage(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	pages := httptest.NewServer(http.FileServer(http.Dir(root(t, "examples", "follow"))))
	defer pages.Close()
	h := hubtest.StartHub(t, "RSHUB_ORIGINS="+pages.URL)
	hubtest.Publish(t, h, "demo", append(hubtest.Changes("first", 3), []byte(`{"loc":"https://example.org/first/2","change":"deleted"}`+"\n")...))
	tab := browser.Open(t, chromium, pages.URL+"/page.html?topic="+h.Topic("demo"))
	shows := func(want ...string) {
		t.Helper()
		hubtest.Until(t, fmt.Sprintf("the page shows %q", want), func() error {
			got := browser.Evaluate[[]string](t, tab, `[...document.querySelectorAll("#rows tr")].map(r => r.cells[0].textContent.replace("https://example.org/", "")).sort()`)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("got %q; state: %s", got, browser.Evaluate[string](t, tab, `document.getElementById("state").textContent`))
			}
			return nil
		})
	}
	shows("first/1", "first/3")
	h.Kill()
	h.Start(t)
	hubtest.Publish(t, h, "demo", append(hubtest.Change("second"), []byte(`{"loc":"https://example.org/first/3","change":"deleted"}`+"\n")...))
	shows("first/1", "second")

	// The set is recreated: its cursors are gone, and the page starts over.
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/demo", nil)
	hubtest.Publish(t, h, "demo", hubtest.Changes("again", 2))
	h.Kill()
	h.Start(t)
	shows("again/1", "again/2")
}
