package directory

import (
	"path"
	"testing"
)

// The shortcut of matches agrees with path.Match.
func TestMatches(t *testing.T) {
	patterns := append([]string{"", "a", "ab", "a?", "?b", "[ab]", "[^a]b", `a\*`, `\a`, `a\b`, `a\]`, `\[a`, "ä", "*ä", "drafts/*.xml", "*"}, TemporaryNames...)
	names := []string{"", "a", "b", "ab", "cb", "a*", "a]", "[a", "ä", "xä", "drafts/a.xml", "a~", "~", ".a.swp", ".#a", "#a#", ".~lock.a#", ".nfs00000001", "*", `\`}
	for _, pattern := range patterns {
		for _, name := range names {
			if want, _ := path.Match(pattern, name); matches(pattern, name) != want {
				t.Errorf("matches(%q, %q) = %v", pattern, name, !want)
			}
		}
	}
}
