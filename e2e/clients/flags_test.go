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

// TestFlagsOfPages checks that the commands of rspublish and rsmirror in shell blocks of the
// documentation use only existing flags.
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
				t.Fatalf("%s -h exited with %d, want 0 and a text", key, code)
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
			for _, m := range regexp.MustCompile(`(?:^|[\s;|(])(rspublish|rsmirror)( sync| watch| relay| dump| audit)?((?: [^\n;|&#]*)?)`).FindAllStringSubmatch(text, -1) {
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
		t.Errorf("found %d commands, want at least 15", checked)
	}
}
