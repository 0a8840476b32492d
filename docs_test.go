package rshub

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	docLink   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	docFence  = regexp.MustCompile("(?ms)^```.*?^```$")
	docHead   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	docCode   = regexp.MustCompile("`[^`\n]*`")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns what links to the headings of a text, as GitHub makes it.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range docHead.FindAllStringSubmatch(docFence.ReplaceAllString(text, ""), -1) {
		title := docLink.ReplaceAllString(m[1], "]")
		all[strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	return all
}

// TestLinks follows every link in the documentation that leads to a file of this
// repository, to its heading if it names one.
func TestLinks(t *testing.T) {
	var docs []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, found...)
	}
	followed := 0
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range docLink.FindAllStringSubmatch(docCode.ReplaceAllString(docFence.ReplaceAllString(string(text), ""), ""), -1) {
			path, anchor, named := strings.Cut(m[1], "#")
			if strings.Contains(path, ":") {
				continue // elsewhere
			}
			followed++
			target := doc
			if path != "" {
				target = filepath.Join(filepath.Dir(doc), path)
			}
			there, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
				continue
			}
			if !named || there.IsDir() {
				continue
			}
			other, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if !anchors(string(other))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", doc, m[1])
			}
		}
	}
	if len(docs) < 10 || followed < 80 {
		t.Errorf("only %d links in %d documents were followed", followed, len(docs))
	}
}
