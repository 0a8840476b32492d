package clients

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestDocumented runs what docs/callbacks.md shows of checking signatures.
func TestDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root(t, "docs", "callbacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Signatures\n")
	if !ok {
		t.Fatal("there is no section about signatures")
	}
	block := func(language string) string {
		t.Helper()
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(section)
		if found == nil {
			t.Fatalf("there is no example in %s", language)
		}
		return found[1]
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const body = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:h="https://github.com/rshub/rshub/terms/"><rs:md h:after="0-0" h:cursor="1-2"/></urlset>`
	query := "hub.mode=denied&rs.time=" + url.QueryEscape(time.Now().UTC().Format(time.RFC3339))

	python3, nodejs := python(t), node(t)
	goProgram := write("main.go", `package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
)

`+block("go")+`
func main() {
	h := http.Header{}
	h.Set(os.Getenv("NAME"), os.Getenv("SIGNED"))
	println(signed("own", []byte(os.Getenv("BODY")), h, "X-Hub-Signature") && signed("own", []byte(os.Getenv("QUERY")), http.Header{"Rs-Signature": {os.Getenv("ASKED")}}, "RS-Signature"))
}
`)
	program := filepath.Join(dir, "program")
	if out, err := exec.Command("go", "build", "-o", program, goProgram).CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	commands := map[string][]string{
		"go": {program},
		"js": {nodejs, write("example.mjs", `const e = process.env, secret = "own", body = e.BODY, headers = {[e.NAME.toLowerCase()]: e.SIGNED};
`+block("js")+`
console.error(signed(body, headers, "x-hub-signature") && signed(e.QUERY, {"rs-signature": e.ASKED}, "rs-signature"));
`)},
		"python": {python3, write("example.py", `import os, sys
e, secret, mark = os.environ, "own", None
headers, body, query = {e["NAME"]: e["SIGNED"], "RS-Signature": e["ASKED"]}, e["BODY"].encode(), e["QUERY"]
try:
`+regexp.MustCompile(`(?m)^`).ReplaceAllString(strings.TrimRight(block("python"), "\n"), "    ")+`
    print("true" if news.mark == "1" else "?", file=sys.stderr)
except rshub.BadSignature:
    print("false", file=sys.stderr)
`)},
	}
	for language, command := range commands {
		for i, test := range []struct {
			name, signed, asked string
			want                bool
		}{
			{"X-Hub-Signature", sign("own", body), sign("own", query), true},
			{"RS-Former-Signature", sign("own", body), sign("own", query), true},
			{"X-Hub-Signature", sign("other", body), sign("own", query), false},
			{"X-Hub-Signature", sign("own", body+" "), sign("own", query), false},
			{"X-Hub-Signature", sign("own", body), sign("other", query), false},
			{"X-Hub-Signature", "", sign("own", query), false},
			{"Link", sign("own", body), sign("own", query), false},
		} {
			env := append(withClient(t), "BODY="+body, "QUERY="+query, "NAME="+test.name, "SIGNED="+test.signed, "ASKED="+test.asked)
			_, _, said := hubtest.Run(t, env, nil, command[0], command[1:]...)
			if strings.TrimSpace(said) != fmt.Sprint(test.want) {
				t.Errorf("%s, %d: it says %q, want %v", language, i, said, test.want)
			}
		}
	}
}
