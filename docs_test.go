package rshub

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	docLink   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	docNamed  = regexp.MustCompile(`\bdocs/([A-Za-z0-9_-]+\.(?:md|py)(?:#[A-Za-z0-9_-]*[A-Za-z0-9_])?)`)
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
// repository, to its heading if it names one. It also follows each page of docs, and each
// heading of one, that any other text names: source code, alerts, dashboard, chart.
func TestLinks(t *testing.T) {
	pages, links, names := 0, 0, 0
	for _, file := range texts(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if !utf8.ValidString(text) {
			continue // such as an image
		}
		for _, m := range docNamed.FindAllStringSubmatch(text, -1) {
			names++
			follow(t, file, "docs/"+m[1], ".")
		}
		if filepath.Ext(file) != ".md" {
			continue
		}
		pages++
		for _, m := range docLink.FindAllStringSubmatch(docCode.ReplaceAllString(docFence.ReplaceAllString(text, ""), ""), -1) {
			if path, _, _ := strings.Cut(m[1], "#"); strings.Contains(path, ":") {
				continue // elsewhere
			}
			links++
			follow(t, file, m[1], filepath.Dir(file))
		}
	}
	if pages < 30 || links < 250 || names < 80 {
		t.Errorf("only %d links in %d documents, and %d names of documents, were followed", links, pages, names)
	}
}

// follow looks for what a file names, as seen from dir: a file, and its heading.
func follow(t *testing.T, file, link, dir string) {
	t.Helper()
	path, anchor, named := strings.Cut(link, "#")
	target := file
	if path != "" {
		target = filepath.Join(dir, path)
	}
	there, err := os.Stat(target)
	if err != nil {
		t.Errorf("%s links to %s: %v", file, link, err)
		return
	}
	if !named || there.IsDir() {
		return
	}
	other, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	if !anchors(string(other))[anchor] {
		t.Errorf("%s links to %s, which has no such heading", file, link)
	}
}

// texts returns the files of this repository that may name a document.
func texts(t *testing.T) (all []string) {
	t.Helper()
	kinds := []string{".md", ".go", ".yaml", ".yml", ".json", ".py", ".js", ".mjs", ".sh", ".txt", ".tpl", ".html", ".service", ".env", ".cfg", ".conf", ".toml", "", ".java"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || slices.Contains([]string{"bin", "dist", "node_modules", "testdata"}, d.Name())):
			return fs.SkipDir
		case d.Type().IsRegular() && slices.Contains(kinds, filepath.Ext(path)):
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPagesAreShort holds that a page of the documentation can be read at one sitting.
func TestPagesAreShort(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > 400 {
			t.Errorf("%s has %d lines: split it", page, lines)
		}
	}
}
