package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestNewcomer types the five commands of each page for newcomers, as they stand there,
// in a clone in which nothing was set up. Only the ports are others. They say what the page
// says.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"sources.md", "destinations.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			python(t)
			commands, says := firstScreen(t, page)
			clone := t.TempDir()
			if err := os.CopyFS(filepath.Join(clone, "docs"), os.DirFS(root(t, "docs"))); err != nil {
				t.Fatal(err)
			}
			hub, web := hubtest.FreePort(t), hubtest.FreePort(t)
			ports := strings.NewReplacer("127.0.0.1:8080", hub, "127.0.0.1:8000", web, " 8000 ", " "+strings.TrimPrefix(web, "127.0.0.1:")+" ")
			script := "pids=\ntrap 'kill $pids; wait' EXIT\n"
			servers := []string{hub, web}
			for _, command := range commands {
				script += ports.Replace(command) + "\n"
				if words, _, _ := strings.Cut(command, "#"); strings.HasSuffix(strings.TrimSpace(words), "&") && len(servers) > 0 {
					// Who types is slower than a server that starts.
					script += "pids=\"$pids $!\"\nuntil python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", " + strings.TrimPrefix(servers[0], "127.0.0.1:") + "))' 2>/dev/null; do sleep 0.05; done\n"
					servers = servers[1:]
				}
			}
			if len(servers) > 0 {
				t.Fatalf("the commands start no server at %s", servers)
			}
			env := []string{
				"PATH=" + filepath.Dir(hubtest.Rshub) + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + t.TempDir(), "XDG_CACHE_HOME=",
				"RSHUB_LISTEN=" + hub, "RSHUB_OPS_LISTEN=127.0.0.1:0", "RSPUBLISH_HUB=http://" + hub, "no_proxy=127.0.0.1",
			}
			code, stdout, stderr := hubtest.Run(t, env, nil, "/bin/sh", "-c", "cd "+clone+"\nset -e\n"+script)
			if code != 0 {
				t.Errorf("the commands end with %d:\n%s%s", code, stdout, stderr)
			}
			said := numbers(stdout + stderr)
			for _, line := range says {
				if !strings.Contains(said, numbers(line)) {
					t.Errorf("the commands do not say %s, but\n%s%s", line, stdout, stderr)
				}
			}
			for _, name := range []string{"sources.md", "destinations.md"} {
				want, err := os.ReadFile(filepath.Join(clone, "docs", name))
				if got, cerr := os.ReadFile(filepath.Join(clone, "copy", name)); err != nil || cerr != nil || string(got) != string(want) {
					t.Errorf("the mirror has another %s: %v, %v", name, err, cerr)
				}
			}
		})
	}
}

// firstScreen returns the commands at the beginning of a page, and what they say.
func firstScreen(t *testing.T, page string) (commands, says []string) {
	t.Helper()
	b, err := os.ReadFile(root(t, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)^# .*?\n## Five commands\n.*?\n```sh\n(.*?)\n```\n.*?\n```\n(.*?)\n```\n").FindStringSubmatch(string(b))
	if m == nil || strings.Count(m[0], "\n") > 40 || strings.Count(m[0], "\n## ") != 1 {
		t.Fatalf("docs/%s does not begin with five commands, and what they say", page)
	}
	if commands = strings.Split(m[1], "\n"); len(commands) != 5 {
		t.Fatalf("docs/%s has %d commands: %q", page, len(commands), commands)
	}
	return commands, strings.Split(m[2], "\n")
}

// numbers replaces all numbers: the documentation of another day has other files.
func numbers(text string) string {
	return regexp.MustCompile(`\b[1-9][0-9]*(\.[0-9]+)?\b`).ReplaceAllString(text, "N")
}

// TestFlagsOfPages finds in what people copy from the documentation only flags that exist:
// each command of rspublish, rsmirror and rshub in a block of shell is understood.
func TestFlagsOfPages(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"README.md", "docs/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(root(t, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	helps := map[string]string{}
	help := func(program string, arguments ...string) string {
		key := program + fmt.Sprint(arguments)
		if helps[key] == "" {
			code, stdout, _ := hubtest.Run(t, nil, nil, program, append(arguments, "-h")...)
			if code != 0 || stdout == "" {
				t.Fatalf("%s -h ends with %d", key, code)
			}
			helps[key] = stdout
		}
		return helps[key]
	}
	checked := 0
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
			text := strings.ReplaceAll(block[1], "\\\n", " ")
			for _, m := range regexp.MustCompile(`(?:^|[\s;|(])(rspublish|rsmirror)( sync| watch| relay| audit)?((?: [^\n;|&#]*)?)`).FindAllStringSubmatch(text, -1) {
				program, command := hubtest.Rspublish, strings.TrimSpace(m[2])
				if m[1] == "rsmirror" {
					program, command = hubtest.Rsmirror, "" // one help for all
				} else if command == "watch" {
					command = "sync"
				}
				var arguments []string
				if command != "" {
					arguments = []string{command}
				}
				checked++
				quoted := regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllString(m[3], "x")
				for _, flag := range regexp.MustCompile(`(?:^| )-([a-z][a-z-]*)`).FindAllStringSubmatch(quoted, -1) {
					if !regexp.MustCompile(`(?m)(^ +|, )-` + flag[1] + `\b`).MatchString(help(program, arguments...)) {
						t.Errorf("%s: %s has no flag -%s", page, m[0], flag[1])
					}
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d commands were found", checked)
	}
}
