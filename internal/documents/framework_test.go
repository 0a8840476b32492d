package documents_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// Framework returns existing documents with the digests of their bytes.
func TestFrameworkDocuments(t *testing.T) {
	sh := &inventories{}
	m, s := newFilled(t, 4, 0, documents.Options{Inventories: sh})
	wantDocuments := func(want ...string) {
		t.Helper()
		all, err := s.Framework(t.Context(), m.state("peps"))
		if err != nil {
			t.Fatal(err)
		}
		states, err := m.Sets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx := access.NewContext(t.Context(), access.Caller{Rights: access.All()})
		description, err := s.FrameworkDescription(ctx, states)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, c := range append(all, description) {
			got = append(got, c.FrameworkCapability())
			for _, url := range append([]resourcesync.Link{{Href: c.Loc}}, c.Links...) {
				w := s.get(url.Href[len(base):])
				if w.Code != http.StatusOK {
					t.Errorf("GET %s: got %d, want 200", url.Href, w.Code)
				}
				if sum := fmt.Sprintf("sha-256:%x", sha256.Sum256(w.Body.Bytes())); url.Rel == "" && c.Hash != "" && c.Hash != sum {
					t.Errorf("digest of %s = %s, want %s", c.Loc, c.Hash, sum)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got the documents %q, want %q", got, want)
		}
	}
	sh.put(1, 0, small)
	wantDocuments("capabilitylist", "description")
	m.add("peps", 9)
	sh.put(9, 4, small)
	wantDocuments("capabilitylist", "changelist", "resourcelist", "description")
	sh.put(50_020, 50_001, small)
	wantDocuments("capabilitylist", "changelist", "resourcelist", "description")
}
