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

// A Block is a code block of a page. Marks in a comment on the line before it specify how a
// test runs it. In Markdown it has this form:
//
//	<!-- file: NAME -->          the block is the content of a file
//	<!-- not run: REASON -->     no test runs it
//	<!-- runs on -->             the last command does not exit by itself
//	<!-- shows: TEXT -->         the output contains TEXT; if it runs on, before the next block
//	<!-- ends with: STATUS -->   exit status of the last command
//
// Several marks are separated by semicolons. A shell block without marks must exit by itself
// with status 0.
type Block struct {
	Page     string // path of the file
	Heading  string // heading above the block
	Language string // such as sh; empty if the page does not specify it
	Text     string
	marks    map[string]string
}

// Mark returns the text of a mark of the block, and whether the block has the mark.
func (b *Block) Mark(name string) (says string, ok bool) {
	says, ok = b.marks[name]
	return says, ok
}

var (
	blocks   = regexp.MustCompile("(?ms)^(?:<!-- ([^\n]*) -->\n)?```([a-z]*)\n(.*?)^```$|^#+ ([^\n]*)$")
	allMarks = map[string]bool{"file": true, "not run": true, "runs on": true, "shows": true, "ends with": true}
)

// Blocks returns the blocks of a page. An unknown mark fails the test.
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
					t.Errorf("%s, %s: unknown mark %q", page, heading, name)
				}
			}
		}
		all = append(all, b)
	}
	return all
}
