package feed

import (
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

// TestXMLOmitsPaths checks that XML omits the paths of a resource and its links, which belong to
// the manifests of packages (core section 7), and has the other members. JSON has the paths.
func TestXMLOmitsPaths(t *testing.T) {
	e := &Entry{Cursor: Cursor{Position: 1, Micros: 2}, Change: resourcesync.Change{
		Loc: "https://example.org/a", Change: resourcesync.Created, Type: "text/html", Path: "/a",
		Links: []resourcesync.Link{{Rel: "duplicate", Href: "https://example.org/b", Type: "text/plain"}, {Rel: "alternate", Href: "https://example.org/c", Path: "/c"}},
	}}
	w := NewXMLWriter()
	for name, text := range map[string][]byte{"entry": w.AppendEntry(nil, e), "resource": w.AppendResource(nil, e), "baseline": w.appendBaseline(nil, e)} {
		s := string(text)
		if strings.Contains(s, "path") || !strings.Contains(s, "text/html") || !strings.Contains(s, "text/plain") || !strings.Contains(s, "example.org/c") {
			t.Errorf("%s = %s, want all members except path", name, s)
		}
	}
	if s := string(e.AppendJSON(nil)); strings.Count(s, `"path":`) != 2 {
		t.Errorf("AppendJSON() = %s, want two paths", s)
	}
}
