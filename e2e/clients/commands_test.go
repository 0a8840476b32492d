package clients

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/internal/testutil/pagetest"
)

// TestCommands runs the commands in README.md and in each page of docs. The blocks of a page run in
// order in one shell in a clone, with other addresses and directories. If a page does not start a
// hub, one with a set is running already. internal/testutil/pagetest documents the markers of
// blocks. A comment before a block gives the reason if no test runs it.
func TestCommands(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(root(t, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	tutorials := 0 // pages that start with five commands
	for _, page := range append([]string{root(t, "README.md")}, pages...) {
		var run []*pagetest.Block
		var want []string // output of the first commands of a tutorial
		commands := 0
		for _, b := range pagetest.Blocks(t, page) {
			if b.Heading == "Five commands" && b.Language == "" {
				want = strings.Split(strings.TrimSpace(b.Text), "\n")
				tutorials++
			}
			_, not := b.Mark("not run")
			_, file := b.Mark("file")
			if b.Language == "sh" && !not {
				commands++
			}
			if file || b.Language == "sh" && !not {
				run = append(run, b)
			}
		}
		if commands == 0 {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			python(t)
			interpreter(t, "jq", "jq")
			got := numbers(newSession(t).run(run))
			for _, line := range want {
				if !strings.Contains(got, numbers(line)) {
					t.Errorf("output lacks %q:\n%s", line, got)
				}
			}
		})
	}
	if tutorials != 2 {
		t.Errorf("got %d pages with five commands and their output, want 2", tutorials)
	}
}

// numbers replaces all numbers: they change with the documentation itself.
func numbers(text string) string {
	return regexp.MustCompile(`\b[1-9][0-9]*(\.[0-9]+)?\b`).ReplaceAllString(text, "N")
}

// A session is a shell that runs the commands of one page.
type session struct {
	t                  *testing.T
	dir                string // the part of a clone that the commands need
	hub, ops, web, own string // addresses of the hub, of its operations, of a website, and of a server in the page
	script             strings.Builder
}

func newSession(t *testing.T) *session {
	t.Helper()
	s := &session{t: t, dir: t.TempDir(), hub: hubtest.FreePort(t), ops: hubtest.FreePort(t), web: hubtest.FreePort(t), own: hubtest.FreePort(t)}
	if err := os.CopyFS(filepath.Join(s.dir, "docs"), os.DirFS(root(t, "docs"))); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"etc", "backup", "out"} {
		if err := os.Mkdir(filepath.Join(s.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// prologue makes curl fail on HTTP errors, and defines functions that wait for a server and for an
// output. At exit it prints all output, and kills all jobs.
const prologue = `set -e
exec 3>&1
trap 'set +e; tail -n +1 out/* >&3; kill $(jobs -p) 2>/dev/null; wait' EXIT
curl() { command curl -fsS "$@"; }
up() { until (exec 4<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do sleep 0.05; done; }
ready() { until command curl -fso /dev/null "http://$1/readyz"; do sleep 0.05; done; }
shows() { for _ in $(seq 200); do if grep -qF -- "$1" out/*; then return; fi; sleep 0.05; done; echo "found no output $1" >&3; exit 98; }
`

// localize replaces the addresses and directories of a page.
func (s *session) localize(text string) string {
	return strings.NewReplacer(
		"127.0.0.1:8080", s.hub, "127.0.0.1:8081", s.ops, "127.0.0.1:8000", s.web, "127.0.0.1:9000", s.own, "127.0.0.1:9001", s.own,
		`("127.0.0.1", 9000)`, `("127.0.0.1", `+port(s.own)+`)`, " 8000 ", " "+port(s.web)+" ", " 9000 ", " "+port(s.own)+" ",
		"https://www.example.org", "http://"+s.web, "https://destination.example.org", "http://"+s.own,
		"/etc/rshub", s.dir+"/etc", "/backup/", s.dir+"/backup/", "go run ./cmd/", "", "rshub follow ", "rshub follow -hub http://"+s.hub+" ",
	).Replace(text)
}

func port(address string) string { return strings.TrimPrefix(address, "127.0.0.1:") }

// startsHub matches a line that starts a hub.
var startsHub = regexp.MustCompile(`(?m)^(\S+=\S+ )*(go run \./cmd/)?rshub( &.*)?$`)

// run runs the blocks of a page, and returns their output.
func (s *session) run(blocks []*pagetest.Block) string {
	s.t.Helper()
	s.script.WriteString("cd " + s.dir + "\n" + prologue)
	if !slices.ContainsFunc(blocks, func(b *pagetest.Block) bool { return startsHub.MatchString(b.Text) }) {
		s.addLines("rshub 2>hub.log &\npython3 -m http.server -b 127.0.0.1 -d docs " + port(s.web) + " 2>web.log &\nrspublish sync -q -set demo -base http://" + s.web + "/ docs\n")
	}
	for i, b := range blocks {
		if name, ok := b.Mark("file"); ok {
			if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.localize(b.Text)), 0o600); err != nil {
				s.t.Fatal(err)
			}
			continue
		}
		s.addBlock(i, b)
	}
	env := []string{
		"PATH=" + filepath.Dir(hubtest.Rshub) + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + s.t.TempDir(), "XDG_CACHE_HOME=", "PYTHONUNBUFFERED=1",
		"RSHUB_LISTEN=" + s.hub, "RSHUB_OPS_LISTEN=" + s.ops, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8", "RSPUBLISH_HUB=http://" + s.hub, "no_proxy=127.0.0.1",
	}
	p := hubtest.Start(s.t, env, nil, "bash", "-c", s.script.String())
	for i, b := range blocks {
		hubtest.Until(s.t, fmt.Sprintf("%q has run", b.Text), func() error {
			if _, ok := b.Mark("file"); ok || p.Exited() || strings.Contains(p.Stdout.String(), fmt.Sprintf("== %02d\n", i)) {
				return nil
			}
			return errors.New("not yet")
		})
	}
	if code := p.Wait(); code != 0 {
		s.t.Errorf("commands exited with %d, want 0:\n%s\n%s%s", code, s.script.String(), p.Stdout, p.Stderr)
	}
	return p.Stdout.String()
}

// addLines adds lines to the script, and waits for servers that they start, as slow typing does.
func (s *session) addLines(text string) {
	for line := range strings.Lines(s.localize(text)) {
		s.script.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		command, _, _ := strings.Cut(line, " #")
		if command = strings.TrimSpace(command); !strings.HasSuffix(command, " &") {
			continue
		}
		switch {
		case strings.Contains(command, ".py"), strings.HasSuffix(command, " "+port(s.own)+" &"):
			s.waitPort(s.own)
		case strings.Contains(command, "http.server"):
			s.waitPort(s.web)
		case !strings.Contains(command, "follow"):
			s.waitReady()
		}
	}
}

// waitPort waits until a server listens on an address.
func (s *session) waitPort(address string) { fmt.Fprintf(&s.script, "up %s\n", port(address)) }

// waitReady waits until the hub is ready.
func (s *session) waitReady() { fmt.Fprintf(&s.script, "ready %s\n", s.ops) }

// addBlock adds a block to the script, and waits for its output.
func (s *session) addBlock(i int, b *pagetest.Block) {
	status, ends := b.Mark("ends with")
	fmt.Fprintf(&s.script, "exec >out/%02d 2>&1\n", i)
	if _, ok := b.Mark("runs on"); ok {
		s.script.WriteString("{\n" + s.localize(b.Text) + "} &\n")
		if startsHub.MatchString(b.Text) {
			s.waitReady()
		}
	} else if ends {
		s.script.WriteString("set +e\n" + s.localize(b.Text) + "[ $? = " + status + " ] || exit 97\nset -e\n")
	} else {
		s.addLines(b.Text)
	}
	if says, ok := b.Mark("shows"); ok {
		fmt.Fprintf(&s.script, "shows '%s'\n", says)
	}
	fmt.Fprintf(&s.script, "echo == %02d >&3\n", i)
}
