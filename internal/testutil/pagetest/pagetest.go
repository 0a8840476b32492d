// Package pagetest finds the commands in pages of the documentation.
//
// Tests in e2e run them, and a test lists those that no test runs.
package pagetest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A Block is a block of code in a page. A comment on the line before it may say how a test
// runs it. In Markdown it looks like this:
//
//	<!-- file: NAME -->          it is the text of a file
//	<!-- not run: REASON -->     no test runs it
//	<!-- runs on -->             its last command does not end by itself
//	<!-- shows: TEXT -->         it prints TEXT, or it runs on and has printed TEXT before the next block
//	<!-- ends with: STATUS -->   the exit status of its last command
//
// Several are separated by semicolons. A block of shell with none of them ends by itself
// with status 0.
type Block struct {
	Page     string // the path of the file
	Heading  string // the heading above it
	Language string // such as sh; empty if the page names none
	Text     string
	marks    map[string]string
}

// Mark returns what a comment says of a block, and whether there is a mark of this name.
func (b *Block) Mark(name string) (says string, ok bool) {
	says, ok = b.marks[name]
	return says, ok
}

var (
	blocks   = regexp.MustCompile("(?ms)^(?:<!-- ([^\n]*) -->\n)?```([a-z]*)\n(.*?)^```$|^#+ ([^\n]*)$")
	allMarks = map[string]bool{"file": true, "not run": true, "runs on": true, "shows": true, "ends with": true}
)

// Blocks returns the blocks of a page. A mark that is not known fails the test.
func Blocks(t *testing.T, page string) (all []*Block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	heading := ""
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		if m[4] != "" {
			heading = m[4]
			continue
		}
		b := &Block{Page: page, Heading: heading, Language: m[2], Text: m[3], marks: map[string]string{}}
		for mark := range strings.SplitSeq(m[1], ";") {
			if name, says, _ := strings.Cut(mark, ":"); mark != "" {
				name = strings.TrimSpace(name)
				if b.marks[name] = strings.TrimSpace(says); !allMarks[name] {
					t.Errorf("%s, %s: nobody knows the mark %q", page, heading, name)
				}
			}
		}
		all = append(all, b)
	}
	return all
}
