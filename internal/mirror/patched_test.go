package mirror

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/resourcesync"
)

// A change that names a patch is made of the file that is there, if the hash says that the result
// is right. Otherwise the whole content is fetched.
func TestPatches(t *testing.T) {
	const before, after = `{"title":"one","year":2025}`, `{"title":"two","year":2025}`
	good := `{"title":"two"}`
	for name, test := range map[string]struct {
		kind, patch string
		there       bool // the file is as it was
		hash        bool
		whole       int // how often the whole content is asked for
	}{
		"merge patch":       {"application/merge-patch+json", good, true, true, 0},
		"JSON Patch":        {"application/json-patch+json", `[{"op":"replace","path":"/title","value":"two"}]`, true, true, 0},
		"another result":    {"application/merge-patch+json", `{"title":"three"}`, true, true, 1},
		"no patch":          {"application/merge-patch+json", `nonsense`, true, true, 1},
		"not there":         {"application/merge-patch+json", "", true, true, 1},
		"another kind":      {"application/x-diff", good, true, true, 1},
		"no hash":           {"application/merge-patch+json", good, true, false, 1},
		"the file is other": {"application/merge-patch+json", good, false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set("/a", before)
			b.apply(b.entry("/a", before))
			if !test.there {
				if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("{}"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			b.requests("/a")
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
			b.has("a", after)
			if n := b.requests("/a"); n != test.whole {
				t.Errorf("the whole content was asked for %d times, and not %d", n, test.whole)
			}
			left, err := os.ReadDir(filepath.Join(b.dir, filepath.FromSlash(home.Parts)))
			if err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}
