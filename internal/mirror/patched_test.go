package mirror

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/resourcesync"
)

// A patch named by a change is applied to the existing file if the hash confirms the result.
// Otherwise the whole content is fetched.
func TestPatchIsApplied(t *testing.T) {
	const before, after = `{"title":"one","year":2025}`, `{"title":"two","year":2025}`
	good := `{"title":"two"}`
	for name, test := range map[string]struct {
		kind, patch string
		unmodified  bool // whether the file is as it was
		hash        bool
		whole       int // expected requests for the whole content
	}{
		"merge patch":      {"application/merge-patch+json", good, true, true, 0},
		"JSON Patch":       {"application/json-patch+json", `[{"op":"replace","path":"/title","value":"two"}]`, true, true, 0},
		"wrong result":     {"application/merge-patch+json", `{"title":"three"}`, true, true, 1},
		"invalid patch":    {"application/merge-patch+json", `nonsense`, true, true, 1},
		"patch not found":  {"application/merge-patch+json", "", true, true, 1},
		"unsupported type": {"application/x-diff", good, true, true, 1},
		"without a hash":   {"application/merge-patch+json", good, true, false, 1},
		"file is modified": {"application/merge-patch+json", good, false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			b.set("/a", before)
			b.apply(b.entry("/a", before))
			if !test.unmodified {
				if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("{}"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			b.requestCount("/a")
			b.set("/a", after)
			if test.patch != "" {
				b.set("/patch", test.patch)
			}
			e := b.entry("/a", after)
			e.Change.Links = []resourcesync.Link{{Rel: resourcesync.RelPatch, Href: b.URL + "/patch", Type: test.kind}}
			if !test.hash {
				e.Change.Hash = ""
			}
			b.apply(e)
			b.wantFile("a", after)
			if n := b.requestCount("/a"); n != test.whole {
				t.Errorf("got %d requests for the whole content, want %d", n, test.whole)
			}
			left, err := os.ReadDir(filepath.Join(b.dir, filepath.FromSlash(home.Parts)))
			if err != nil || len(left) > 0 {
				t.Errorf("temporary files = %v, %v, want none", left, err)
			}
		})
	}
}
