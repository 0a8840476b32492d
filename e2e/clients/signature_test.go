package clients

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestDocumentedSignatureCheck runs the Python example of docs/callbacks.md that checks signatures.
func TestDocumentedSignatureCheck(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root(t, "docs", "callbacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Signatures\n")
	example := regexp.MustCompile("(?s)```python\n(.*?)\n```").FindStringSubmatch(section)
	if example == nil {
		t.Fatal("found no Python example under Signatures in docs/callbacks.md")
	}
	program := filepath.Join(t.TempDir(), "example.py")
	source := `import os, sys
e, secret, mark = os.environ, "own", None
headers, body, query = {e["NAME"]: e["DELIVERY_SIGNATURE"], "RS-Signature": e["QUERY_SIGNATURE"]}, e["BODY"].encode(), e["QUERY"]
try:
` + regexp.MustCompile(`(?m)^`).ReplaceAllString(example[1], "    ") + `
    print("true" if new.mark == "1" else "?", file=sys.stderr)
except rshub.SignatureError:
    print("false", file=sys.stderr)
`
	if err := os.WriteFile(program, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	const body = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:h="https://github.com/rshub/rshub/terms/"><rs:md h:after="0-0" h:cursor="1-2"/></urlset>`
	query := "hub.mode=denied&rs.time=" + url.QueryEscape(time.Now().UTC().Format(time.RFC3339))
	interpreter := python(t)
	for _, tt := range []struct {
		name, header, delivery, query string
		want                          bool
	}{
		{"current secret", "X-Hub-Signature", sign("own", body), sign("own", query), true},
		{"former secret", "RS-Former-Signature", sign("own", body), sign("own", query), true},
		{"other secret", "X-Hub-Signature", sign("other", body), sign("own", query), false},
		{"other body", "X-Hub-Signature", sign("own", body+" "), sign("own", query), false},
		{"query with other secret", "X-Hub-Signature", sign("own", body), sign("other", query), false},
		{"empty signature", "X-Hub-Signature", "", sign("own", query), false},
		{"no signature", "Link", sign("own", body), sign("own", query), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := append(withClient(t), "BODY="+body, "QUERY="+query, "NAME="+tt.header, "DELIVERY_SIGNATURE="+tt.delivery, "QUERY_SIGNATURE="+tt.query)
			_, _, got := hubtest.Run(t, env, nil, interpreter, program)
			if strings.TrimSpace(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %q, want %v", got, tt.want)
			}
		})
	}
}
