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

// TestCommands runs the commands of README.md and of each page of docs, out of the page.
// The commands of a page are typed one block after the other into one shell, in a clone.
// Only addresses and places are others. Where a page does not start a hub first, one runs
// already that has a set. internal/testutil/pagetest explains what a page says of its blocks.
// A comment before a block says why no test runs it.
func TestCommands(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(root(t, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	newcomers := 0 // pages for them
	for _, page := range append([]string{root(t, "README.md")}, pages...) {
		var run []*pagetest.Block
		var says []string // what the first commands of a page for newcomers print
		commands := 0
		for _, b := range pagetest.Blocks(t, page) {
			if b.Heading == "Five commands" && b.Language == "" {
				says = strings.Split(strings.TrimSpace(b.Text), "\n")
				newcomers++
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
			said := numbers(newSession(t).run(run))
			for _, line := range says {
				if !strings.Contains(said, numbers(line)) {
					t.Errorf("the commands do not say %s, but\n%s", line, said)
				}
			}
		})
	}
	if newcomers != 2 {
		t.Errorf("%d pages begin with five commands and what they say", newcomers)
	}
}

// numbers replaces all numbers: the documentation of another day has other files.
func numbers(text string) string {
	return regexp.MustCompile(`\b[1-9][0-9]*(\.[0-9]+)?\b`).ReplaceAllString(text, "N")
}

// A session is a shell in which the commands of one page are typed.
type session struct {
	t                  *testing.T
	dir                string // a clone, as far as the commands need it
	hub, ops, web, own string // addresses: of the hub, of its operations, of a website, of what a page itself listens with
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

// begin has curl fail if the hub answers with an error, and says how to wait for a server,
// and for a text that a command prints. At the end all is printed, and nothing runs any more.
const begin = `set -e
exec 3>&1
trap 'set +e; tail -n +1 out/* >&3; kill $(jobs -p) 2>/dev/null; wait' EXIT
curl() { command curl -fsS "$@"; }
up() { until (exec 4<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do sleep 0.05; done; }
ready() { until command curl -fso /dev/null "http://$1/readyz"; do sleep 0.05; done; }
shows() { for _ in $(seq 200); do if grep -qF -- "$1" out/*; then return; fi; sleep 0.05; done; echo "nothing shows $1" >&3; exit 98; }
`

// places gives a text other addresses and places than the page has.
func (s *session) places(text string) string {
	return strings.NewReplacer(
		"127.0.0.1:8080", s.hub, "127.0.0.1:8081", s.ops, "127.0.0.1:8000", s.web, "127.0.0.1:9000", s.own, "127.0.0.1:9001", s.own,
		`("127.0.0.1", 9000)`, `("127.0.0.1", `+port(s.own)+`)`, " 8000 ", " "+port(s.web)+" ", " 9000 ", " "+port(s.own)+" ",
		"https://www.example.org", "http://"+s.web, "https://destination.example.org", "http://"+s.own,
		"/etc/rshub", s.dir+"/etc", "/backup/", s.dir+"/backup/", "go run ./cmd/", "", "rshub follow ", "rshub follow -hub http://"+s.hub+" ",
	).Replace(text)
}

func port(address string) string { return strings.TrimPrefix(address, "127.0.0.1:") }

// startsHub is a line that starts a hub.
var startsHub = regexp.MustCompile(`(?m)^(\S+=\S+ )*(go run \./cmd/)?rshub( &.*)?$`)

// run types the blocks of a page, and returns what they print.
func (s *session) run(blocks []*pagetest.Block) string {
	s.t.Helper()
	s.script.WriteString("cd " + s.dir + "\n" + begin)
	if !slices.ContainsFunc(blocks, func(b *pagetest.Block) bool { return startsHub.MatchString(b.Text) }) {
		s.typed("rshub 2>hub.log &\npython3 -m http.server -b 127.0.0.1 -d docs " + port(s.web) + " 2>web.log &\nrspublish sync -q -set demo -base http://" + s.web + "/ docs\n")
	}
	for i, b := range blocks {
		if name, ok := b.Mark("file"); ok {
			if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.places(b.Text)), 0o600); err != nil {
				s.t.Fatal(err)
			}
			continue
		}
		s.block(i, b)
	}
	env := []string{
		"PATH=" + filepath.Dir(hubtest.Rshub) + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + s.t.TempDir(), "XDG_CACHE_HOME=", "PYTHONUNBUFFERED=1",
		"RSHUB_LISTEN=" + s.hub, "RSHUB_OPS_LISTEN=" + s.ops, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8", "RSPUBLISH_HUB=http://" + s.hub, "no_proxy=127.0.0.1",
	}
	p := hubtest.Start(s.t, env, nil, "bash", "-c", s.script.String())
	for i, b := range blocks {
		hubtest.Until(s.t, fmt.Sprintf("%q is typed", b.Text), func() error {
			if _, ok := b.Mark("file"); ok || p.Exited() || strings.Contains(p.Stdout.String(), fmt.Sprintf("== %02d\n", i)) {
				return nil
			}
			return errors.New("not yet")
		})
	}
	if code := p.Wait(); code != 0 {
		s.t.Errorf("the commands end with %d:\n%s\n%s%s", code, s.script.String(), p.Stdout, p.Stderr)
	}
	return p.Stdout.String()
}

// typed types lines. Who types is slower than a server that starts, so it waits for those.
func (s *session) typed(text string) {
	for line := range strings.Lines(s.places(text)) {
		s.script.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		command, _, _ := strings.Cut(line, " #")
		if command = strings.TrimSpace(command); !strings.HasSuffix(command, " &") {
			continue
		}
		switch {
		case strings.Contains(command, ".py"), strings.HasSuffix(command, " "+port(s.own)+" &"):
			s.up(s.own)
		case strings.Contains(command, "http.server"):
			s.up(s.web)
		case !strings.Contains(command, "follow"):
			s.ready()
		}
	}
}

// up waits until something listens at an address.
func (s *session) up(address string) { fmt.Fprintf(&s.script, "up %s\n", port(address)) }

// ready waits until the hub is ready.
func (s *session) ready() { fmt.Fprintf(&s.script, "ready %s\n", s.ops) }

// block types a block, and waits until it has shown what it shows.
func (s *session) block(i int, b *pagetest.Block) {
	status, ends := b.Mark("ends with")
	fmt.Fprintf(&s.script, "exec >out/%02d 2>&1\n", i)
	if _, ok := b.Mark("runs on"); ok {
		s.script.WriteString("{\n" + s.places(b.Text) + "} &\n")
		if startsHub.MatchString(b.Text) {
			s.ready()
		}
	} else if ends {
		s.script.WriteString("set +e\n" + s.places(b.Text) + "[ $? = " + status + " ] || exit 97\nset -e\n")
	} else {
		s.typed(b.Text)
	}
	if says, ok := b.Mark("shows"); ok {
		fmt.Fprintf(&s.script, "shows '%s'\n", says)
	}
	fmt.Fprintf(&s.script, "echo == %02d >&3\n", i)
}
